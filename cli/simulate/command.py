"""`drawbridge simulate`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import click

from cli.errors import WRONG, Failure
from cli.explain.kinds import ingress_daemonsets_of, segments_of
from cli.inventory import Inventory
from cli.session import Commands, Session, pass_session
from cli.simulate.values import (
    Judge,
    Subject,
    Unreadable,
    Values,
    ValuesFacts,
    compare,
    concerns_pods,
    outcome,
    values_in,
)
from features import FEATURES
from kube.resources import NAMESPACES, PODS, Selection
from kube.types import Namespace

Raw = dict[str, Any]


class Simulations(Commands):
    """Those of the features, and of a change of values."""

    def list_commands(self, context: click.Context) -> list[str]:
        return sorted([*super().list_commands(context), *_OF_FEATURES])

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name in _OF_FEATURES:
            found: click.Command = resolve_name(_OF_FEATURES[name])
            return found
        return super().get_command(context, name)


_OF_FEATURES = {name: reference for row in FEATURES for name, reference in row.simulates.items()}


@click.group(cls=Simulations)
def simulate() -> None:
    """What would happen, decided as Drawbridge decides. Nothing is written."""


@simulate.command("values")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@pass_session
def values_command(session: Session, file: Path) -> None:
    """What a change of the chart's values would bring.

    As helm upgrade --reset-then-reuse-values -f FILE. Ends with 1 when a value is refused, or unknown to the chart.
    """
    found = simulate_values(Inventory(session.cluster), file.read_text())
    session.show(found)
    if found.refused:
        raise SystemExit(WRONG)


def simulate_values(inventory: Inventory, text: str) -> Values:
    """KubeError; Failure for a file that has no values, or where the settings cannot be read."""
    namespace = inventory.namespace
    try:
        values = values_in(text)
    except Unreadable as error:
        raise Failure(f"the file cannot be used: {error}", "write values as for helm upgrade -f") from None
    _ = inventory.settings  # where they cannot be read, nothing can be compared
    found = outcome(inventory.installed.text, values, namespace)
    namespaces = {each.metadata.name: each for each in inventory.cached(NAMESPACES, Namespace)}
    judges: dict[str, Judge] = {row.name: resolve_name(row.judge) for row in FEATURES if row.judge}
    releases = [resolve_name(row.releases) for row in FEATURES if row.releases]
    segments = segments_of(inventory)
    facts = ValuesFacts(
        found,
        _subjects(inventory, namespaces) if concerns_pods(found, judges) else (),
        namespaces,
        inventory.nodes(),
        ingress_daemonsets_of(inventory, None),
        [gone for release in releases for gone in release(segments, found, inventory.now())],
        judges,
    )
    return compare(facts)


def _subjects(inventory: Inventory, namespaces: Iterable[str]) -> list[Subject]:
    """The API server lists several namespaces at a time."""
    reads = {name: partial(inventory.cached, PODS, Subject, Selection(name)) for name in namespaces}
    found = inventory.cluster.read_all(reads)
    return [each for pods in found.values() for each in pods]
