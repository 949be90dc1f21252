"""What a change of the chart's values brings: pods, nodes and namespaces that it concerns, and what is released."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from typing import Any

import msgspec
import yaml

from api.anycast_ip import is_proven_bound, wanted
from api.ingress_daemonset.types import IngressDaemonSet
from cli.output import Document, Part, Report, Table, bad, count_of, title, warning
from cli.simulate.value_names import MAPS, NO_SETTINGS, OTHER_NAMES, SETTINGS
from kube.types import Namespace, Node, ObjectMeta, Pod, PodStatus, Toleration, Value
from kube.types import PodSpec as KnownSpec
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


KNOWN = sorted({*SETTINGS, *OTHER_NAMES, *NO_SETTINGS})
SIMILAR = 0.8
"""How much of a name a slip leaves."""
SHOWN = 20
"""Objects of a feature that the table names; all with ``-o json``."""


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
    unknown = [_unknown(given) for given, _ in _leaves(values) if not _is_known(given)]
    for given, value in _leaves(values):
        name = OTHER_NAMES.get(given, given)
        if name not in SETTINGS:
            if _is_known(given):
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
        then = parse(yaml.safe_dump(after))
        return Outcome(now, None if unknown else then, changes, tuple(unknown), ignored)
    except SettingsError as error:
        return Outcome(now, None, changes, (*unknown, *map(_refusal, error.problems)), ignored)


def _is_known(name: str) -> bool:
    """Whether the chart has it, or has values in it or around it."""
    parents = {name.rsplit(".", number)[0] for number in range(name.count(".") + 1)}
    return not parents.isdisjoint(KNOWN) or any(each.startswith(f"{name}.") for each in KNOWN)


def _unknown(name: str) -> Refusal:
    """Helm refuses it by the chart's schema."""
    last = name.rpartition(".")[2]
    elsewhere = [each for each in KNOWN if each.rpartition(".")[2] == last]
    near = get_close_matches(name, elsewhere, 1, 0.0) or get_close_matches(name, KNOWN, 1, SIMILAR)
    way_out = f"did you mean {near[0]}?" if near else "charts/drawbridge/README.md has all"
    return Refusal(name, f"the chart has no such value: {way_out}")


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


class Spec(Value, frozen=True):
    host_network: bool = False
    tolerations: tuple[Toleration, ...] = ()
    affinity: dict[str, Any] | None = None


class Subject(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: Spec = Spec()
    status: PodStatus = PodStatus()

    @property
    def name(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"

    def as_it_is(self) -> Pod:
        return Pod(self.metadata, KnownSpec(host_network=self.spec.host_network), self.status)


Judge = Callable[[Subject, Namespace, Settings], str]
"""Of a pod and its namespace: what a feature does to it with these settings, or nothing."""


@dataclass(frozen=True)
class ValuesFacts:
    """*namespaces* by name; *pods* are those that the outcome may concern, *released* what the leader releases.

    *judges* are of features, by name.
    """

    outcome: Outcome
    pods: Sequence[Subject]
    namespaces: Mapping[str, Namespace]
    nodes: Sequence[Node]
    ingress_daemonsets: Sequence[IngressDaemonSet]
    released: Sequence[Released]
    judges: Mapping[str, Judge] = field(default_factory=dict)


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
        rows = [(each.value, _text(each.now), _text(each.then)) for each in self.differences]
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


def concerns_pods(found: Outcome, features: Iterable[str]) -> bool:
    """Whether pods may fare differently with its settings of these *features*: else they need not be read."""
    return found.then is not None and any(_differ(found.now, found.then, name) for name in features)


def compare(facts: ValuesFacts) -> Values:
    found = facts.outcome
    then = found.then
    effects = tuple(_effects(facts, then)) if then else ()
    return Values(
        differences=found.differences,
        refused=found.refused,
        effects=effects,
        released=tuple(facts.released),
        not_settings=found.others,
    )


def _effects(facts: ValuesFacts, then: Settings) -> Iterator[Effect]:
    now = facts.outcome.now
    for name, judge in facts.judges.items():
        if _differ(now, then, name):
            first, *others = name.split("_")
            feature = first + "".join(map(str.capitalize, others))
            yield from _compared(facts, now, then, judge, feature)
    for node in facts.nodes:
        before, after = (each.anycast_ip.enabled and wanted(node, each.anycast_ip) for each in (now, then))
        if before != after:
            yield Effect("anycastIP", "node", node.metadata.name, after, _of_node(node, after, then))
    if now.ingress_daemonset.enabled != then.ingress_daemonset.enabled:
        begins = then.ingress_daemonset.enabled
        what = "is rolled out and followed" if begins else "is followed no more, and its pods stay"
        for each in facts.ingress_daemonsets:
            name = f"{each.metadata.namespace}/{each.metadata.name}"
            yield Effect("ingressDaemonSet", "IngressDaemonSet", name, begins, what)


def _differ(now: Settings, then: Settings, section: str) -> bool:
    return bool(getattr(now, section) != getattr(then, section))


def _compared(
    facts: ValuesFacts, now: Settings, then: Settings, judge: Judge, feature: str
) -> Iterator[Effect]:
    for pod in facts.pods:
        namespace = facts.namespaces.get(pod.metadata.namespace, Namespace())
        before, after = judge(pod, namespace, now), judge(pod, namespace, then)
        if bool(before) != bool(after):
            yield Effect(feature, "pod", pod.name, bool(after), after or f"no more: {before}")


def _of_node(node: Node, after: bool, then: Settings) -> str:
    if after:
        closed = "keeps its address" if is_proven_bound(node) else "is tainted, and an address is ordered"
        return f"needs an anycast IP: {closed}"
    if not then.anycast_ip.enabled:
        return "is left as it is: its taint stays, and its address"
    released = then.anycast_ip.release_on_label_removal
    return "needs no address; it is released" if released else "needs no address; it keeps the one it has"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
