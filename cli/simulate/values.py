"""What a change of the chart's values brings: pods, nodes and namespaces that it concerns, and what is released."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from api.anycast_ip import is_proven_bound, wanted
from api.ingress_daemonset.types import IngressDaemonSet
from api.ip_reservation import NAMESPACE_LABEL, NAMESPACE_LABEL_VALUES, unselected
from calico.segment import IPReservation
from cli.explain.reservations import ip_of
from cli.output import Document, Part, Table, bad, count_of, title, warning
from cli.simulate.subjects import Subject
from cli.simulate.values_settings import Difference, Outcome, Refusal
from controllers.ip_reservation.release_planner import Cause, Life, Pods, plan
from kube.types import Namespace, Node
from settings import Settings
from webhook.elasticity.webhook import held, reaches_super_nodes

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


def simulate(facts: ValuesFacts, now: datetime) -> Values:
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


def parts(found: Values) -> Iterator[Part]:
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
    why, _warnings = held(pod, subject.metadata.namespace, settings.elasticity, reaches=reaches)
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
            yield (ip_of(record.cidr), f"{record.namespace}/{record.pod}"), cause


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
