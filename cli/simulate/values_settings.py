"""The settings that a file of Helm values would bring about, over those in force."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from cli.output import Document
from cli.simulate.value_names import MAPS, OTHER_NAMES, SETTINGS
from settings import Settings
from settings.load import SettingsError, parse

Raw = Mapping[str, Any]
EXCLUDED = "elasticity.excludedNamespaces"
"""To these the chart adds Drawbridge's own namespace."""
WITH_DEFAULTS = (
    "ingressDaemonSet.healthChecker.image",
    "ingressDaemonSet.healthChecker.imagePullPolicy",
    "anycastIP.egressCheck.image",
    "anycastIP.egressCheck.imagePullPolicy",
)
"""The chart fills these in when they are empty."""
FOLLOWING = {"cloud.region": ("elasticity.region",), "elasticity.enabled": ("elasticity.openGates",)}
"""Settings that the chart makes of the same value."""


class Unreadable(ValueError):
    """The file is no mapping of values."""


class Difference(Document, frozen=True):
    """A setting that changes: the *value* of the chart, as it is *now* and *then*, as JSON would have it."""

    value: str
    now: Any
    then: Any


class Refusal(Document, frozen=True):
    """A *value* that is refused, and why; the reason says what to write instead."""

    value: str
    why: str


@dataclass(frozen=True)
class Outcome:
    """*then* is None when anything is *refused*; *others* are values that become no setting."""

    now: Settings
    then: Settings | None
    differences: tuple[Difference, ...]
    refused: tuple[Refusal, ...]
    others: tuple[str, ...]


def values_in(text: str) -> dict[str, Any]:
    """Unreadable."""
    try:
        found = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        raise Unreadable(f"it is no YAML: {error}") from None
    if not isinstance(found, dict):
        raise Unreadable("it is no mapping of values")
    return found


def outcome(stored: str, values: Raw, namespace: str) -> Outcome:
    """*stored* is the configuration in the cluster. As `helm upgrade --reset-then-reuse-values -f`. SettingsError."""
    now, before = parse(stored), yaml.safe_load(stored)
    after, others = copy.deepcopy(before), list[str]()
    differences: dict[str, Difference] = {}
    for given, value in _leaves(values):
        name = OTHER_NAMES.get(given, given)
        if name not in SETTINGS:
            others.append(given)
            continue
        if value in ("", None, {}) and (given in OTHER_NAMES or name in WITH_DEFAULTS):
            continue
        old = _get(before, SETTINGS[name])
        new = _merged(old, value) if name in MAPS else value
        if name == EXCLUDED and isinstance(new, list):
            new = [*new, *({namespace} - set(new))]
        for setting in (SETTINGS[name], *FOLLOWING.get(name, ())):
            _set(after, setting, new)
        if old != new:
            differences[name] = Difference(name, old, new)
    changes, ignored = tuple(differences.values()), tuple(sorted(others))
    try:
        return Outcome(now, parse(yaml.safe_dump(after)), changes, (), ignored)
    except SettingsError as error:
        return Outcome(now, None, changes, tuple(_refusal(each) for each in error.problems), ignored)


def _leaves(values: Raw, path: str = "") -> Iterator[tuple[str, Any]]:
    """By their names; a value that is a map itself is one."""
    for key, value in values.items():
        name = f"{path}.{key}" if path else str(key)
        is_value = OTHER_NAMES.get(name, name) in SETTINGS
        if isinstance(value, Mapping) and not is_value:
            yield from _leaves(value, name)
        else:
            yield name, value


def _merged(old: Any, new: Any) -> Any:
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return new
    return {key: value for key, value in {**old, **new}.items() if value is not None}


def _get(document: Any, path: str) -> Any:
    for part in path.split("."):
        document = (document or {}).get(part)
    return document


def _set(document: dict[str, Any], path: str, value: Any) -> None:
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
    return Refusal(
        where if colon and " " not in where else "", why if colon and " " not in where else problem
    )
