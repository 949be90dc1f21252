"""`drawbridge simulate`, and `simulate values`: which settings a change of values changes, and what that concerns.

What becomes of objects then, the features say: `judged` asks one about each pod.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import click
import msgspec
import yaml
from msgspec.structs import replace

from cli.errors import WRONG, Failure
from cli.inventory import Inventory
from cli.output import Document, Part, Report, Table, bad, count_of, title, warning
from cli.pods import Pod
from cli.session import Command, Commands, Session, log_no_decisions, pass_session
from cli.value_names import MAPS, NO_SETTINGS, NULLS, ORIGINALS, SETTINGS
from features import FEATURES
from kube.resources import NAMESPACES
from kube.types import Namespace
from settings import Settings
from settings.load import SettingsError, parse

Raw = Mapping[str, Any]
EXCLUDED = "elasticity.excludedNamespaces"
"""To these the chart adds Drawbridge's own namespace."""
FOLLOWING = {"cloud.region": ("elasticity.region",), "elasticity.enabled": ("elasticity.openGates",)}
"""Settings that the chart makes of the same value."""
KNOWN = sorted({*SETTINGS, *ORIGINALS, *NO_SETTINGS})
SIMILAR = 0.8
"""How much of a name a slip leaves."""
SHOWN = 20
"""Objects of a feature that the table names; all with ``-o json``."""


@dataclass(frozen=True)
class Change:
    """Of settings."""

    now: Settings
    then: Settings

    def concerns(self, feature: str) -> bool:
        return bool(getattr(self.now, feature) != getattr(self.then, feature))


class Effect(Document, frozen=True):
    """What becomes of an object: *begins* or *ends*, with why."""

    feature: str
    kind: str
    name: str
    begins: bool
    what: str


class Released(Document, frozen=True):
    ip: str
    pod: str
    why: str


Judge = Callable[[Pod, Namespace, Settings], str]
"""Of a pod and its namespace: what a feature does to it with these settings, or nothing."""


def judged(inventory: Inventory, change: Change, judge: Judge, name: str) -> Iterator[Effect]:
    """*name* is that of the feature's values."""
    namespaces = {each.metadata.name: each for each in inventory.cached(NAMESPACES, Namespace)}
    for pod in inventory.all_pods():
        of = namespaces[pod.metadata.namespace]
        before, after = (judge(pod, of, each) for each in (change.now, change.then))
        if bool(before) != bool(after):
            yield Effect(name, "pod", pod.key, bool(after), after or f"no more: {before}")


class Difference(Document, frozen=True):
    """A setting that changes: the *value* of the chart, as it is *now* and *then*, as JSON would have it."""

    value: str
    now: Any
    then: Any


class Refusal(Document, frozen=True):
    """A *value* that is refused, and why; the reason says what to write instead."""

    value: str
    why: str


class Values(Report, frozen=True):
    """With anything *refused* nothing else is known: Helm refuses it, or the programs keep what they have."""

    differences: tuple[Difference, ...]
    refused: tuple[Refusal, ...]
    effects: tuple[Effect, ...]
    released: tuple[Released, ...]
    not_settings: tuple[str, ...]

    def parts(self, now: datetime) -> Iterator[Part]:
        changed = len(self.differences)
        yield title(
            f"{count_of(changed, 'setting')} changed, {count_of(len(self.effects), 'object')} concerned,"
            f" {count_of(len(self.released), 'IP')} released"
        )

        def text(value: Any) -> str:
            return value if isinstance(value, str) else msgspec.json.encode(value).decode()

        rows = [(each.value, text(each.now), text(each.then)) for each in self.differences]
        yield Table(("VALUE", "NOW", "THEN"), rows, empty="No setting changes.")
        if self.refused:
            yield bad("Refused: nothing would change.")
            yield Table(
                ("REFUSED", "WHY, AND WHAT TO WRITE"), [(each.value, each.why) for each in self.refused]
            )
        for feature in dict.fromkeys(each.feature for each in self.effects):
            of_it = [each for each in self.effects if each.feature == feature]
            shown = [(f"{each.kind} {each.name}", each.what) for each in of_it[:SHOWN]]
            yield Table((feature.upper(), "THEN"), shown)
            if len(of_it) > SHOWN:
                yield f"and {len(of_it) - SHOWN} others: -o json has all"
        if self.released:
            rows = [(each.ip, each.pod, each.why) for each in self.released]
            yield Table(("RELEASED AT ONCE", "POD", "WHY"), rows)
        if self.not_settings:
            yield warning(
                f"Not looked at, as these are no settings of the programs: {', '.join(self.not_settings)}."
                " helm diff, or helm template, shows the objects that they change."
            )


def outcome(stored: str, values: Raw, namespace: str) -> tuple[Values, Change | None]:
    """*stored* is the configuration in the cluster. As `helm upgrade --reset-then-reuse-values -f`. SettingsError.

    The change is None when anything is refused.
    """
    now, before = parse(stored), yaml.safe_load(stored)
    after, others, refused = copy.deepcopy(before), list[str](), list[Refusal]()
    differences: dict[str, Difference] = {}
    given_by = dict[str, tuple[str, Any]]()
    for given, value in leaves(values, lambda name: ORIGINALS.get(name, name) in SETTINGS):
        name = ORIGINALS.get(given, given)
        if given in ORIGINALS and value in ("", None, {}):
            continue
        if name not in SETTINGS:
            if value == {} and _is_known(given):
                continue
            if _lacks_its_map(given, value):
                refused.append(
                    Refusal(given, "the chart has values in it: write one of them, or leave it out")
                )
            else:
                others.append(given) if _is_known(given) else refused.append(_unknown(given))
            continue
        other, same = given_by.setdefault(name, (given, value))
        if same != value:
            refused.append(
                Refusal(given, f"{other} is set, too, and differs: they are two names of one value")
            )
            continue
        old, new = before, value
        for part in SETTINGS[name].split("."):
            old = (old or {}).get(part)
        if value is None:
            new = NULLS.get(name)
        if name in MAPS and isinstance(old, Mapping) and isinstance(value, Mapping):
            new = {key: each for key, each in {**old, **value}.items() if each is not None}
        if name == EXCLUDED and isinstance(new, list):
            new = [*new, *([] if namespace in new else [namespace])]
        for setting in (SETTINGS[name], *FOLLOWING.get(name, ())):
            put(after, setting, new)
        if old != new:
            differences[name] = Difference(name, old, new)
    try:
        change = Change(now, parse(yaml.safe_dump(after)))
    except SettingsError as error:
        refused += map(_refusal, error.problems)
    found = Values(tuple(differences.values()), tuple(refused), (), (), tuple(sorted(others)))
    return found, None if refused else change


def _unknown(name: str) -> Refusal:
    """Helm refuses it by the chart's schema."""
    if name.replace(r"\.", ".") in KNOWN:
        return Refusal(name, "to Helm, a dot within a key is part of a name: write a map in its place")
    last = name.rpartition(".")[2]
    elsewhere = [each for each in KNOWN if each.rpartition(".")[2] == last]
    near = get_close_matches(name, elsewhere, 1, 0.0) or get_close_matches(name, KNOWN, 1, SIMILAR)
    way_out = f"did you mean {near[0]}?" if near else "charts/drawbridge/README.md has all"
    return Refusal(name, f"the chart has no such value: {way_out}")


def _is_known(name: str) -> bool:
    """Whether the chart has it, or has values in it or around it."""
    parents = {name.rsplit(".", number)[0] for number in range(name.count(".") + 1)}
    return not parents.isdisjoint(KNOWN) or any(each.startswith(f"{name}.") for each in KNOWN)


def _lacks_its_map(name: str, value: object) -> bool:
    """Whether the chart has values below it, and *value* is not the map of them: Helm refuses that, also a null.

    But for a null below `config`, of which the chart needs nothing.
    """
    has_values = name not in KNOWN and any(each.startswith(f"{name}.") for each in KNOWN)
    return has_values and not (value is None and name.startswith("config."))


def leaves(values: Raw, is_value: Callable[[str], bool], path: str = "") -> Iterator[tuple[str, Any]]:
    """By their names; *is_value* says of a name whether a map there is a value itself, as one without entries is.

    A dot within a key is escaped, as for ``helm --set``: Helm takes ``a.b: 1`` for no value of a.
    """
    for key, value in values.items():
        part = str(key).replace(".", r"\.")
        name = f"{path}.{part}" if path else part
        if value and isinstance(value, Mapping) and not is_value(name):
            yield from leaves(value, is_value, name)
        else:
            yield name, value


def put(document: dict[str, Any], path: str, value: Any) -> None:
    """Below the sections that *path* names, which are made where they are not."""
    *parents, last = path.split(".")
    for part in parents:
        document = document.setdefault(part, {})
    document[last] = value


def _refusal(problem: str) -> Refusal:
    """Under the name of the value, where the problem names one setting."""
    where, colon, why = problem.partition(": ")
    by_setting = {setting: value for value, setting in SETTINGS.items()}
    for setting in sorted(by_setting, key=len, reverse=True):
        if colon and (where == setting or where.startswith((f"{setting}.", f"{setting}["))):
            return Refusal(by_setting[setting] + where.removeprefix(setting), why)
    return Refusal(where, why) if colon and " " not in where else Refusal("", problem)


SIMULATIONS = {"values": "cli.simulate:values_command"} | {
    name: reference for row in FEATURES for name, reference in row.simulates.items()
}
"""Where each sub-command is: those of the features, and of a change of values."""


class Simulations(Commands):
    def list_commands(self, _context: click.Context) -> list[str]:
        return sorted(SIMULATIONS)

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        found: click.Command | None = resolve_name(SIMULATIONS[name]) if name in SIMULATIONS else None
        return found


class ValuesLoader(yaml.SafeLoader):
    """Refuses what contains itself by an alias, as Helm does."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        if node in self.recursive_objects:
            raise yaml.YAMLError("Circular reference detected")
        return super().construct_object(node, deep=True)


def values_of(file: Path, what_to_do: str) -> dict[str, Any]:
    """Of a chart; raises Failure, with *what_to_do*, where *file* has none."""
    try:
        values = yaml.load(file.read_text(), ValuesLoader)  # noqa: S506 - a safe loader
        why = "" if isinstance(values, dict) else "it is no mapping of values"
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        why = f"it is no YAML: {error}"
    if why:
        raise Failure(f"the file cannot be used: {why}", what_to_do)
    return dict(values)


@click.group(cls=Simulations)
def simulate() -> None:
    """Predict what a change would do. Nothing is written."""
    log_no_decisions()


@click.command("values", cls=Command)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@pass_session
def values_command(session: Session, file: Path) -> None:
    """Predict what other values of the chart would do.

    As with helm upgrade --reset-then-reuse-values -f FILE. Exits with 1 if a value is refused, or unknown to the chart.
    """
    values = values_of(file, "write values as for helm upgrade -f")
    inventory = Inventory(session.cluster)
    _ = inventory.settings  # where they cannot be read, nothing can be compared
    found, change = outcome(inventory.installed.text, values, inventory.namespace)
    effects, released = [], []
    if change:
        for row in FEATURES:
            if row.effects and change.concerns(row.name):
                effects += resolve_name(row.effects)(inventory, change)
            if row.releases:
                released += resolve_name(row.releases)(inventory, change)
    session.show(replace(found, effects=tuple(effects), released=tuple(released)))
    if found.refused:
        raise SystemExit(WRONG)
