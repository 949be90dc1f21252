"""`drawbridge simulate`."""

from __future__ import annotations

from pathlib import Path
from pkgutil import resolve_name

import click

from cli.errors import WRONG, Failure
from cli.inventory import Inventory
from cli.session import Commands, Session, pass_session
from cli.simulate.effects import Change
from cli.simulate.values import Unreadable, Values, outcome, values_in
from features import FEATURES


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
    try:
        values = values_in(text)
    except Unreadable as error:
        raise Failure(f"the file cannot be used: {error}", "write values as for helm upgrade -f") from None
    _ = inventory.settings  # where they cannot be read, nothing can be compared
    found = outcome(inventory.installed.text, values, inventory.namespace)
    effects, released = [], []
    if found.then:
        change = Change(found.now, found.then)
        for row in FEATURES:
            if row.effects and change.concerns(row.name):
                effects += resolve_name(row.effects)(inventory, change)
            if row.releases:
                released += resolve_name(row.releases)(inventory, change)
    return Values(found.differences, found.refused, tuple(effects), tuple(released), found.others)
