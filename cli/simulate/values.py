"""What a change of the chart's values brings: pods, nodes and namespaces that it concerns, and what is released."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from typing import Any

import msgspec
import yaml

from api.anycast_ip import is_proven_bound, wanted
from api.ingress_daemonset.types import IngressDaemonSet
from api.ip_reservation import NAMESPACE_LABEL, NAMESPACE_LABEL_VALUES, unselected
from calico.segment import IPReservation
from cli.output import Document, Part, Table, bad, count_of, title, warning
from cli.reservations import address_of
from cli.simulate.value_names import MAPS, NO_SETTINGS, OTHER_NAMES, SETTINGS
from controllers.ip_reservation.release_planner import Cause, Life, Pods, plan
from kube.types import Namespace, Node, ObjectMeta, Pod, PodStatus, Toleration, Value
from kube.types import PodSpec as KnownSpec
from settings import Settings
from settings.load import SettingsError, parse
from webhook.elasticity.webhook import NewPod, gate_reason, reaches_super_nodes
from webhook.elasticity.webhook import PodSpec as NewSpec

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

    def as_new(self) -> NewPod:
        """A pod like it, before it has a node."""
        return NewPod(self.metadata, NewSpec(tolerations=self.spec.tolerations))

    @property
    def reach(self) -> dict[str, Any]:
        """What of the spec says which nodes it may reach, as it is written."""
        return {"affinity": self.spec.affinity} if self.spec.affinity is not None else {}


OF_PODS = {"ipReservation": "ip_reservation", "elasticity": "elasticity"}
"""The sections of the settings on which it depends what happens to pods, by feature."""
SHOWN = 20
"""Objects of a feature that the table names; all with ``-o json``."""


@dataclass(frozen=True)
class ValuesFacts:
    """*namespaces* by name; *pods* are those that the outcome may concern."""

    outcome: Outcome
    pods: Sequence[Subject]
    namespaces: Mapping[str, Namespace]
    nodes: Sequence[Node]
    ingress_daemonsets: Sequence[IngressDaemonSet]
    segments: Sequence[IPReservation]


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


class Values(Document, frozen=True):
    """With anything *refused* nothing else is known: Helm refuses it, or the programs keep what they have."""

    differences: tuple[Difference, ...]
    refused: tuple[Refusal, ...]
    effects: tuple[Effect, ...]
    released: tuple[Released, ...]
    not_settings: tuple[str, ...]


def concerns_pods(found: Outcome) -> bool:
    """Whether pods may fare differently with its settings: else they need not be read."""
    return found.then is not None and any(_differ(found.now, found.then, each) for each in OF_PODS.values())


def compare(facts: ValuesFacts, now: datetime) -> Values:
    found = facts.outcome
    then = found.then
    effects = tuple(_effects(facts, then)) if then else ()
    return Values(
        differences=found.differences,
        refused=found.refused,
        effects=effects,
        released=tuple(_released(facts, then, now)) if then else (),
        not_settings=found.others,
    )


def values_parts(found: Values) -> Iterator[Part]:
    changed = len(found.differences)
    yield title(
        f"{count_of(changed, 'setting')} changed, {count_of(len(found.effects), 'object')} concerned,"
        f" {count_of(len(found.released), 'IP')} released"
    )
    rows = [(each.value, _text(each.now), _text(each.then)) for each in found.differences]
    yield Table(("VALUE", "NOW", "THEN"), rows, empty="No setting changes.")
    if found.refused:
        yield bad("Refused: nothing would change.")
        yield Table(("REFUSED", "WHY, AND WHAT TO WRITE"), [(each.value, each.why) for each in found.refused])
    for feature in dict.fromkeys(each.feature for each in found.effects):
        of_it = [each for each in found.effects if each.feature == feature]
        shown = [(f"{each.kind} {each.name}", each.what) for each in of_it[:SHOWN]]
        yield Table((feature.upper(), "THEN"), shown)
        if len(of_it) > SHOWN:
            yield f"and {len(of_it) - SHOWN} others: -o json has all"
    if found.released:
        rows = [(each.ip, each.pod, each.why) for each in found.released]
        yield Table(("RELEASED AT ONCE", "POD", "WHY"), rows)
    if found.not_settings:
        yield warning(
            f"Not looked at, as these are no settings of the programs: {', '.join(found.not_settings)}."
            " helm diff, or helm template, shows the objects that they change."
        )


def _effects(facts: ValuesFacts, then: Settings) -> Iterator[Effect]:
    now = facts.outcome.now
    for feature, judge in JUDGES.items():
        if _differ(now, then, OF_PODS[feature]):
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


Judge = Callable[[Subject, Namespace, Settings], str]
"""Of a pod and its namespace: what happens to it with these settings, or nothing."""


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


def _reserved(subject: Subject, namespace: Namespace, settings: Settings) -> str:
    metadata, pod = namespace.metadata, subject.as_it_is()
    if metadata.labels.get(NAMESPACE_LABEL) not in NAMESPACE_LABEL_VALUES or pod.finished or pod.terminating:
        return ""
    is_left = unselected(pod, metadata.annotations, settings.ip_reservation)
    return "" if is_left else "its IP is reserved when it goes"


def _gated(subject: Subject, _: Namespace, settings: Settings) -> str:
    if not settings.elasticity.enabled:
        return ""
    pod = subject.as_new()
    reaches = reaches_super_nodes(pod, subject.reach)
    why, _warnings = gate_reason(pod, subject.metadata.namespace, settings.elasticity, reaches=reaches)
    return f"one like it is placed by elasticity: {why}" if why else ""


JUDGES: Mapping[str, Judge] = {"ipReservation": _reserved, "elasticity": _gated}


def _of_node(node: Node, after: bool, then: Settings) -> str:
    if after:
        closed = "keeps its address" if is_proven_bound(node) else "is tainted, and an address is ordered"
        return f"needs an anycast IP: {closed}"
    if not then.anycast_ip.enabled:
        return "is left as it is: its taint stays, and its address"
    released = then.anycast_ip.release_on_label_removal
    return "needs no address; it is released" if released else "needs no address; it keeps the one it has"


def _released(facts: ValuesFacts, then: Settings, now: datetime) -> Iterator[Released]:
    """What the leader releases with the settings of *then*, and would not with those of now."""
    if not then.ip_reservation.enabled:
        return
    # A record without an end is of a pod that has its address: it neither counts nor ends.
    records = [each for segment in facts.segments if segment.ours for each in segment.records]
    lives = {each.uid: Life.TERMINATING for each in records if not each.ended}
    before, after = (
        dict(_causes(facts.segments, Pods(lives, {}), each, now)) for each in (facts.outcome.now, then)
    )
    why = {
        Cause.AGE: "older than ipReserveTime",
        Cause.NAMESPACE: "the oldest of more than maxPerNamespace",
        Cause.COUNT: "the oldest of more than ipReserveMaxCount",
    }
    for (ip, pod), cause in after.items():
        if (ip, pod) not in before:
            yield Released(ip, pod, why.get(cause, cause.value))


def _causes(
    segments: Sequence[IPReservation], pods: Pods, settings: Settings, now: datetime
) -> Iterable[tuple[tuple[str, str], Cause]]:
    ours = [each for each in segments if each.ours]
    for change in plan(ours, pods, settings.ip_reservation, now).changes:
        for record, cause in change.released:
            yield (address_of(record.cidr), f"{record.namespace}/{record.pod}"), cause


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
