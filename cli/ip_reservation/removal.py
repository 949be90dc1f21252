"""`drawbridge simulate drain|delete`, and a scale-in: IPs that would be reserved, why not others, and who returns."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cmp_to_key
from typing import Any

import click
import msgspec
from msgspec.structs import replace

from api.elasticity import COST
from api.ingress_daemonset.types import time_of
from api.ip_reservation import NAMESPACE_LABEL, NAMESPACE_LABEL_VALUES, SAME_ADDRESS_PATH, unselected
from api.ip_reservation import PATH as RESERVES
from api.same_address import IP_ADDRS, SAME_ADDRESS_FROM, promise_of, stateful_set_of
from calico.segment import MANAGED_BY, MANAGER, IPReservation, Record, body
from cli.explain.kinds import objects_about, snapshot_of
from cli.explain.matching import ApiRequest, Verdict
from cli.explain.prediction import (
    UNREGISTERED,
    Prediction,
    Snapshot,
    creation_of,
    deletion_of,
    eviction_of,
    predict,
    why_not_reserved,
)
from cli.inventory import Inventory
from cli.ip_reservation.explanation import counted
from cli.ip_reservation.pools import Headroom, PoolFacts, headroom, headroom_parts, pools_of
from cli.ip_reservation.reservations import address_of, records_of, segments_if_any
from cli.ip_reservation.webhooks import snapshot_with_segments
from cli.output import Cell, Document, Part, Report, Table, bad, count_of, good, moment, title, warning
from cli.session import Command, Session, pass_session
from cli.simulate.effects import Change, Effect, Released, Subject, judged
from controllers.ip_reservation.release_planner import Cause, Life, Pods, plan
from features import unregistered
from kube.resources import NODES, PODS, Selection
from kube.types import MIRROR, Namespace, ObjectMeta
from settings import Settings

Raw = dict[str, Any]
NAME = "simulated"
"""Of the segment with what is only reserved in a simulation."""
PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


class ReservedIP(Document, frozen=True):
    ip: str
    pod: str
    node: str
    owner: str


class Unreserved(Document, frozen=True):
    """A pod that goes, and whose IPs are free at once."""

    pod: str
    ips: tuple[str, ...]
    why: str


class Kept(Document, frozen=True):
    """A pod that a drain leaves where it is."""

    pod: str
    why: str


class Denied(Document, frozen=True):
    """A pod that is not removed at the first attempt: a drain tries again."""

    pod: str
    message: str


class Removal(Report, frozen=True):
    """*counted* reservations are of pods that are gone, of at most *most*; *beyond* are released early after this.

    *problem* is why no IP is reserved though the feature is on; *unknown* says which conditions could not be evaluated:
    their webhooks are taken to be called.
    """

    what: str
    reserved: tuple[ReservedIP, ...]
    not_reserved: tuple[Unreserved, ...]
    kept: tuple[Kept, ...]
    denied: tuple[Denied, ...]
    unknown: tuple[str, ...]
    counted: int
    most: int
    pools: tuple[Headroom, ...] = ()
    pools_unknown: str = ""
    returning: tuple[Returning, ...] = ()
    problem: str = ""

    @property
    def beyond(self) -> int:
        return max(0, self.counted + len({each.ip for each in self.reserved}) - self.most)

    def parts(self, now: datetime) -> Iterator[Part]:
        going = len({each.pod for each in self.reserved}) + len(self.not_reserved)
        yield title(
            f"{self.what}: {count_of(len(self.reserved), 'IP')} reserved, {count_of(going, 'pod')} removed"
        )
        if self.problem:
            yield bad(f"{self.problem}: see drawbridge status.")
        if self.beyond:
            yield warning(
                f"With the {self.counted} that are reserved, this is {self.beyond} over ipReserveMaxCount"
                f" ({self.most}): the oldest are released first."
            )
        for each in self.unknown:
            yield warning(f"Taken to be called, as it is not known: {each}")
        yield Table(
            ("RESERVED", "POD", "NODE", "OWNER"),
            [(each.ip, each.pod, each.node, each.owner) for each in self.reserved],
            empty="No IP is reserved.",
            wide=2,
        )
        if self.not_reserved:
            rows = [(each.pod, " ".join(each.ips), each.why) for each in self.not_reserved]
            yield Table(("NOT RESERVED", "IP", "WHY"), rows)
        if self.returning:
            back: list[list[Cell]] = [
                [each.pod, " ".join(each.ips), good("its own") if each.promised else "any", each.why]
                for each in self.returning
            ]
            yield Table(("COMES BACK", "HAD", "GETS", "BECAUSE"), back)
        if self.denied:
            yield Table(("DENIED AT FIRST", "WHY"), [(each.pod, each.message) for each in self.denied])
        if self.kept:
            yield Table(("STAYS", "WHY"), [(each.pod, each.why) for each in self.kept])
        yield from headroom_parts(self.pools, self.pools_unknown)


def stays(pod: Raw) -> str:
    """Why a drain leaves *pod* alone; nothing when it evicts it."""
    metadata = pod["metadata"]
    if MIRROR in (metadata.get("annotations") or {}):
        return "mirror of a static pod"
    owners = metadata.get("ownerReferences") or ()
    of_daemon_set = any(each.get("controller") and each.get("kind") == "DaemonSet" for each in owners)
    is_finished = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return "pod of a DaemonSet" if of_daemon_set and not is_finished else ""


def key_of(pod: Raw) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _problem(snapshot: Snapshot) -> str:
    registered = [each.path for each in snapshot.webhooks]
    return UNREGISTERED if RESERVES in unregistered(snapshot.settings, registered) else ""


class Returning(Document, frozen=True):
    """A pod of the name of one that goes: whether it is promised *ips*, which the former has, and else *why* not."""

    pod: str
    ips: tuple[str, ...]
    promised: bool
    why: str


def returning(gone: Sequence[tuple[Raw, Prediction]], snapshot: Snapshot) -> tuple[Returning, ...]:
    """Of StatefulSets' pods that are reserved, were they created again at once; none where same addresses are off."""
    if not snapshot.settings.ip_reservation.same_address.enabled:
        return ()
    records = [record for _, ahead in gone for record in ahead.records]
    after = dataclasses.replace(snapshot, segments=[*snapshot.segments, _segment(records)])
    return tuple(
        _returning(pod, ahead.records, after) for pod, ahead in gone if ahead.records and _returns(pod)
    )


def _returning(pod: Raw, records: Sequence[Record], after: Snapshot) -> Returning:
    answer = _answer(predict(creation_of(PODS, _without_promise(pod)), after))
    is_promised = bool(answer and answer.decision and "promised" in answer.decision.audit)
    return Returning(
        pod=key_of(pod),
        ips=tuple(address_of(each.cidr) for each in records),
        promised=is_promised,
        why="it is promised to it" if is_promised else _why(answer),
    )


def _answer(ahead: Prediction) -> Verdict | None:
    """Of the webhook that promises: of one that is called, if any is."""
    asked = [each for each in ahead.answers if each.webhook.path == SAME_ADDRESS_PATH]
    return next((each for each in (*(each for each in asked if each.decision), *asked)), None)


def _why(answer: Verdict | None) -> str:
    if answer is None:
        return "the webhook that promises is not installed"
    skipped = answer.decision.audit.get("skipped") if answer.decision else None
    return skipped or answer.effect


def _returns(pod: Raw) -> bool:
    return stateful_set_of(msgspec.convert(pod["metadata"], ObjectMeta)) is not None


def _without_promise(pod: Raw) -> Raw:
    """As its template makes it: without the promise that *pod* itself got."""
    annotations = pod["metadata"].get("annotations") or {}
    ours = (SAME_ADDRESS_FROM, IP_ADDRS) if promise_of(annotations) else (SAME_ADDRESS_FROM,)
    left = {name: value for name, value in annotations.items() if name not in ours}
    return {**pod, "metadata": {**pod["metadata"], "annotations": left}}


def _segment(records: Iterable[Record]) -> IPReservation:
    made = body(records)
    made["metadata"] |= {"name": NAME, "labels": {MANAGED_BY: MANAGER}}
    return msgspec.convert(made, IPReservation)


class Going(Document, frozen=True):
    """A pod that is removed, the first ones first, and what puts it before others."""

    pod: str
    node: str
    why: str


class ScaleIn(Report, frozen=True):
    workload: str
    before: int
    after: int
    going: tuple[Going, ...]
    removal: Removal

    def parts(self, now: datetime) -> Iterator[Part]:
        yield from self.removal.parts(now)
        yield title("In this order")
        rows = [(each.pod, each.node, each.why) for each in self.going]
        yield Table(("REMOVED", "NODE", "BECAUSE OF"), rows, empty="No pod is removed.")


def in_order(pods: Sequence[Raw], now: datetime) -> list[Raw]:
    """As the ReplicaSet controller removes them: `ActivePodsWithRanks.Less` in Kubernetes,
    pkg/controller/controller_utils.go, with its defaults since 1.22 (PodDeletionCost, LogarithmicScaleDown)."""
    ranks = Counter(map(_node, pods))

    def compared(one: Raw, other: Raw) -> int:
        for first, second in zip(_key(one, ranks), _key(other, ranks), strict=True):
            if first != second:
                return -1 if first < second else 1
        return (
            _by_age(one, other, [_ready_at(one), _ready_at(other)], now)
            or _restarts(other) - _restarts(one)
            or _by_age(one, other, [_created_at(one), _created_at(other)], now)
        )

    return sorted(pods, key=cmp_to_key(compared))


def _key(pod: Raw, ranks: Mapping[str, int]) -> tuple[int, ...]:
    """Not scheduled, Pending, not ready, cheap, and with others of the ReplicaSet on its node: these go first."""
    is_scheduled, phase = bool(_node(pod)), PHASES.get(pod["status"].get("phase", ""), 0)
    return int(is_scheduled), phase, int(_ready_at(pod) is not None), _cost(pod), -ranks[_node(pod)]


def _by_age(one: Raw, other: Raw, since: Sequence[datetime | None], now: datetime) -> int:
    """The younger one goes first, but an age counts by its power of two; of the same one, the lower uid."""
    first, second = since
    if first is None or second is None or first == second:
        return 0
    difference = _magnitude(first, now) - _magnitude(second, now)
    return difference or (-1 if _uid(one) < _uid(other) else 1)


def _magnitude(since: datetime, now: datetime) -> int:
    nanoseconds = (now - since).total_seconds() * 1e9
    return int(math.log2(nanoseconds)) if nanoseconds > 0 else -1


def _reasons(pod: Raw, ranks: Mapping[str, int]) -> Iterator[str]:
    node, phase = _node(pod), pod["status"].get("phase", "")
    if not node:
        yield "not scheduled"
    if phase != "Running":
        yield phase
    elif _ready_at(pod) is None:
        yield "not ready"
    if cost := _cost(pod):
        yield f"deletion cost {cost}"
    if node and ranks[node] > 1:
        yield f"{ranks[node]} replicas on its node"
    if since := _ready_at(pod):
        yield f"ready since {moment(since)}"


def _is_active(pod: Raw) -> bool:
    is_finished = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return not is_finished and "deletionTimestamp" not in pod["metadata"]


def _node(pod: Raw) -> str:
    return str(pod["spec"].get("nodeName", ""))


def _uid(pod: Raw) -> str:
    return str(pod["metadata"].get("uid", ""))


def _cost(pod: Raw) -> int:
    """0 for one that is no number, as the controller takes it."""
    text = (pod["metadata"].get("annotations") or {}).get(COST, "0")
    try:
        return int(text)
    except ValueError:
        return 0


def _ready_at(pod: Raw) -> datetime | None:
    for each in pod["status"].get("conditions", ()):
        if (each["type"], each["status"]) == ("Ready", "True"):
            return time_of(each.get("lastTransitionTime", "")) or _created_at(pod)
    return None


def _created_at(pod: Raw) -> datetime | None:
    return time_of(pod["metadata"].get("creationTimestamp", ""))


def _restarts(pod: Raw) -> int:
    return max(
        (each.get("restartCount", 0) for each in pod["status"].get("containerStatuses", ())), default=0
    )


def _ordinal(pod: Raw) -> int:
    text = pod["metadata"]["name"].rpartition("-")[2]
    return int(text) if text.isdecimal() else -1


def reserved_when_it_goes(subject: Subject, namespace: Namespace, settings: Settings) -> str:
    """What becomes of a pod's IP, for a change of values."""
    metadata, pod = namespace.metadata, subject.as_it_is()
    if metadata.labels.get(NAMESPACE_LABEL) not in NAMESPACE_LABEL_VALUES or pod.finished or pod.terminating:
        return ""
    is_left = unselected(pod, metadata.annotations, settings.ip_reservation)
    return "" if is_left else "its IP is reserved when it goes"


def effects(inventory: Inventory, change: Change) -> Iterator[Effect]:
    return judged(inventory, change, reserved_when_it_goes, "ipReservation")


def released(inventory: Inventory, change: Change) -> Iterator[Released]:
    """What the leader releases with the settings of then, and would not with those of now."""
    if not change.then.ip_reservation.enabled:
        return
    segments, now = segments_if_any(inventory), inventory.now()
    # A record without an end is of a pod that has its address: it neither counts nor ends.
    lives = {each.uid: Life.TERMINATING for each in records_of(segments) if not each.ended}
    before, after = (
        dict(_causes(segments, Pods(lives, {}), each, now)) for each in (change.now, change.then)
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


@click.command("drain", cls=Command)
@click.argument("node")
@pass_session
def drain_command(session: Session, node: str) -> None:
    """Which IPs the drain of a node would reserve, and why not the others."""
    # As kubectl drain --ignore-daemonsets --delete-emptydir-data --force.
    inventory = Inventory(session.cluster)
    inventory.get(NODES, node, None, Raw)
    pods = inventory.list(PODS, Raw, Selection(field_selector=f"spec.nodeName={node}"))
    kept = tuple(Kept(key_of(pod), why) for pod in pods if (why := stays(pod)))
    going = [pod for pod in pods if not stays(pod)]
    session.show(replace(removal(inventory, f"Draining node {node}", going, eviction_of), kept=kept))


@click.command("delete", cls=Command)
@click.argument("names", metavar="POD...", nargs=-1, required=True)
@pass_session
def delete_command(session: Session, names: tuple[str, ...]) -> None:
    """Which IPs the deletion of these pods would reserve, and why not the others."""
    inventory = Inventory(session.cluster)
    pods = [inventory.get(PODS, name, session.namespace, Raw) for name in names]
    session.show(removal(inventory, f"Deleting {', '.join(map(key_of, pods))}", pods, deletion_of))


def removal(
    inventory: Inventory,
    what: str,
    pods: Sequence[Raw],
    request: Callable[[Raw], ApiRequest],
    *,
    comes_back: bool = True,
) -> Removal:
    """Of *pods*, each by its own *request*; without *comes_back* no pods take their places."""
    objects, segments = objects_about(inventory, pods), segments_if_any(inventory)
    snapshot = (snapshot_with_segments if comes_back else snapshot_of)(inventory, objects)
    predicted = [(pod, predict(request(pod), snapshot)) for pod in sorted(pods, key=key_of)]
    reserved = tuple(
        ReservedIP(address_of(record.cidr), key_of(pod), record.node, record.owner)
        for pod, ahead in predicted
        for record in ahead.records
    )
    back = returning(predicted, snapshot) if comes_back else ()
    pools = pools_of(inventory, segments)
    return Removal(
        what=what,
        reserved=reserved,
        not_reserved=tuple(
            Unreserved(key_of(pod), _ips(pod), why_not_reserved(ahead))
            for pod, ahead in predicted
            if not ahead.records
        ),
        kept=(),
        denied=tuple(
            Denied(key_of(pod), " ".join(ahead.denials)) for pod, ahead in predicted if ahead.denials
        ),
        unknown=tuple(dict.fromkeys(each for _, ahead in predicted for each in ahead.unknown)),
        counted=counted(segments),
        most=snapshot.settings.ip_reservation.ip_reserve_max_count,
        pools=headroom_after(pools, reserved, back),
        pools_unknown=pools.unknown,
        returning=back,
        problem=_problem(snapshot),
    )


def headroom_after(
    pools: PoolFacts, reserved: Iterable[ReservedIP], back: Iterable[Returning]
) -> tuple[Headroom, ...]:
    """An IP that its own pod gets back takes no other one."""
    kept = {ip for each in back if each.promised for ip in each.ips}
    return headroom(pools, (each.ip for each in reserved if each.ip not in kept))


def _ips(pod: Raw) -> tuple[str, ...]:
    return tuple(each["ip"] for each in pod.get("status", {}).get("podIPs", ()))


def scale_in(inventory: Inventory, workload: Raw, owner: Raw, first: int | None, replicas: int) -> ScaleIn:
    """*owner* is that of its pods, *first* the first ordinal of a StatefulSet, and None of a Deployment."""
    metadata, before = workload["metadata"], workload["spec"].get("replicas", 1)
    active = [
        pod
        for pod in inventory.list(PODS, Raw, Selection(metadata["namespace"]))
        if any(of["uid"] == owner["metadata"]["uid"] for of in pod["metadata"].get("ownerReferences", ()))
        if _is_active(pod)
    ]
    if first is None:
        going = in_order(active, inventory.now())[: max(0, len(active) - replicas)]
        ranks = Counter(map(_node, active))
        why = {_uid(pod): "; ".join(_reasons(pod, ranks)) for pod in going}
    else:
        last = first + replicas - 1
        going = sorted((pod for pod in active if _ordinal(pod) > last), key=_ordinal, reverse=True)
        why = {_uid(pod): f"ordinal {_ordinal(pod)}" for pod in going}
    name = f"{metadata['namespace']}/{metadata['name']}"
    what = f"Scaling {name} from {before} to {replicas}"
    return ScaleIn(
        workload=name,
        before=before,
        after=replicas,
        going=tuple(Going(key_of(pod), _node(pod), why[_uid(pod)]) for pod in going),
        removal=removal(inventory, what, going, deletion_of, comes_back=False),
    )
