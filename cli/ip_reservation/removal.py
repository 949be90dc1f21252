"""`drawbridge simulate drain|delete`, and a scale-in: IPs that would be reserved, why not others, and who returns."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cmp_to_key

import click
import msgspec
from msgspec.structs import replace

from api.ip_reservation import NAMESPACE_LABEL, NAMESPACE_LABEL_VALUES, SAME_ADDRESS_PATH, unselected
from api.ip_reservation import PATH as RESERVES
from api.same_address import IP_ADDRS, SAME_ADDRESS_FROM, promise_of, stateful_set_of
from calico.segment import MANAGED_BY, MANAGER, IPReservation, Record, body
from cli.errors import Failure
from cli.explain.kinds import snapshot_of
from cli.explain.matching import ApiRequest
from cli.explain.prediction import (
    UNREGISTERED,
    Prediction,
    Snapshot,
    creation_of,
    deletion_of,
    eviction_of,
    predict,
)
from cli.inventory import Inventory
from cli.ip_reservation.explanation import snapshot_with_segments
from cli.ip_reservation.pools import Headroom, headroom, headroom_parts
from cli.ip_reservation.reservations import address_of, counted, segments_if_any, stored_in
from cli.output import Cell, Document, Part, Report, Table, bad, count_of, good, moment, title, warning
from cli.pods import Pod, Raw, StoredPod, stored
from cli.session import Command, Session, object_name, pass_session, selector_option
from cli.simulate import Change, Effect, Released, judged
from controllers.ip_reservation.release_planner import Cause, Life, Pods, plan
from features import unregistered
from kube.resources import NODES, PODS, Selection
from kube.types import MIRROR, Namespace, ObjectMeta, key_of
from settings import Settings

NAME = "simulated"
"""Of the segment with what is only reserved in a simulation."""
PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


class Fate(Document, frozen=True):
    """What becomes of a pod, which has *ips*, and *why*."""

    pod: str
    ips: tuple[str, ...]
    why: str

    @staticmethod
    def of(pod: Pod, why: str) -> Fate:
        return Fate(pod.key, pod.status.addresses, why)


class Removal(Report, frozen=True):
    """IPs of pods that are *not_reserved* are free at once. A drain leaves those that are *kept* where they are, and
    tries again with those that are *denied* at first.

    *counted* reservations are of pods that are gone, of at most *most*; *beyond* are released early after this.
    *problem* is why no IP is reserved though the feature is on; *unknown* says which conditions could not be evaluated:
    their webhooks are taken to be called.
    """

    what: str
    reserved: tuple[Record, ...]
    not_reserved: tuple[Fate, ...]
    kept: tuple[Fate, ...]
    denied: tuple[Fate, ...]
    unknown: tuple[str, ...]
    counted: int
    most: int
    pools: tuple[Headroom, ...] = ()
    pools_unknown: str = ""
    returning: tuple[Returning, ...] = ()
    problem: str = ""

    @property
    def beyond(self) -> int:
        return max(0, self.counted + len({each.cidr for each in self.reserved}) - self.most)

    def parts(self, now: datetime) -> Iterator[Part]:
        going = len({each.uid for each in self.reserved}) + len(self.not_reserved)
        yield title(
            f"{self.what}: {count_of(len(self.reserved), 'IP')} reserved, {count_of(going, 'pod')} removed"
        )
        if self.problem:
            yield bad(f"{self.problem}: see drawbridge status.")
        if self.beyond:
            yield warning(
                f"With the {self.counted} that are reserved, this is {self.beyond} over ipReservation.maxCount"
                f" ({self.most}): the oldest are released first."
            )
        for each in self.unknown:
            yield warning(f"Taken to be called, as it is not known: {each}")
        yield Table(
            ("RESERVED", "POD", "NODE", "OWNER"),
            [
                (address_of(each.cidr), f"{each.namespace}/{each.pod}", each.node, each.owner)
                for each in self.reserved
            ],
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
            yield Table(("DENIED AT FIRST", "WHY"), [(each.pod, each.why) for each in self.denied])
        if self.kept:
            yield Table(("STAYS", "WHY"), [(each.pod, each.why) for each in self.kept])
        yield from headroom_parts(self.pools, self.pools_unknown)


def stays(pod: Pod) -> str:
    """Why a drain leaves it alone; nothing when it evicts it."""
    if MIRROR in pod.metadata.annotations:
        return "mirror of a static pod"
    owner = pod.metadata.controller
    of_daemon_set = owner is not None and owner.kind == "DaemonSet"
    return "pod of a DaemonSet" if of_daemon_set and not pod.finished else ""


class Returning(Document, frozen=True):
    """A pod of the name of one that goes: whether it is promised *ips*, which the former has, and else *why* not."""

    pod: str
    ips: tuple[str, ...]
    promised: bool
    why: str


def returning(gone: Sequence[tuple[StoredPod, Prediction]], snapshot: Snapshot) -> Iterator[Returning]:
    """Of StatefulSets' pods that are reserved, were they created again at once; none where same addresses are off."""
    if not snapshot.settings.ip_reservation.same_address.enabled:
        return
    made = body([record for _, ahead in gone for record in ahead.records])
    made["metadata"] |= {"name": NAME, "labels": {MANAGED_BY: MANAGER}}
    segments = [*snapshot.segments, msgspec.convert(made, IPReservation)]
    after = dataclasses.replace(snapshot, segments=segments)
    for pod, ahead in gone:
        if not ahead.records or stateful_set_of(pod.metadata) is None:
            continue
        # As its template makes it: without the promise that the pod itself got.
        given = pod.metadata.annotations
        promise = (SAME_ADDRESS_FROM, IP_ADDRS) if promise_of(given) else (SAME_ADDRESS_FROM,)
        annotations = {key: value for key, value in given.items() if key not in promise}
        new = {**pod.raw, "metadata": {**pod.raw["metadata"], "annotations": annotations}}
        answer = predict(creation_of(PODS, new), after).answer(SAME_ADDRESS_PATH)
        audit = answer.decision.audit if answer and answer.decision else {}
        if answer is None:
            why = "the webhook that promises is not installed"
        elif "promised" in audit:
            why = "it is promised to it"
        else:
            why = audit.get("skipped") or answer.effect
        ips = tuple(address_of(each.cidr) for each in ahead.records)
        yield Returning(pod.key, ips, "promised" in audit, why)


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
        yield title("In this order:")
        rows = [(each.pod, each.node, each.why) for each in self.going]
        yield Table(("REMOVED", "NODE", "BECAUSE OF"), rows, empty="No pod is removed.")


def in_order(pods: Sequence[StoredPod], now: datetime) -> list[StoredPod]:
    """As the ReplicaSet controller removes them: `ActivePodsWithRanks.Less` in Kubernetes,
    pkg/controller/controller_utils.go, with its defaults since 1.22 (PodDeletionCost, LogarithmicScaleDown)."""
    ranks = Counter(pod.spec.node_name for pod in pods)

    def key(pod: Pod) -> tuple[int, ...]:
        """Not scheduled, Pending, not ready, cheap, with others of the ReplicaSet on its node: these go first."""
        node, phase = pod.spec.node_name, PHASES.get(pod.status.phase, 0)
        return bool(node), phase, pod.ready_at is not None, pod.cost, -ranks[node]

    def by_age(one: Pod, other: Pod, first: datetime | None, second: datetime | None) -> int:
        """The younger one goes first, but an age counts by its power of two; of the same one, the lower uid."""
        if first is None or second is None or first == second:
            return 0
        difference = magnitude(first) - magnitude(second)
        return difference or (-1 if one.metadata.uid < other.metadata.uid else 1)

    def magnitude(since: datetime) -> int:
        nanoseconds = (now - since).total_seconds() * 1e9
        return int(math.log2(nanoseconds)) if nanoseconds > 0 else -1

    def compared(one: Pod, other: Pod) -> int:
        if key(one) != key(other):
            return -1 if key(one) < key(other) else 1
        return (
            by_age(one, other, one.ready_at, other.ready_at)
            or other.restarts - one.restarts
            or by_age(one, other, one.metadata.creation_timestamp, other.metadata.creation_timestamp)
        )

    return sorted(pods, key=cmp_to_key(compared))


def _reasons(pod: Pod, ranks: Mapping[str, int]) -> Iterator[str]:
    node, phase = pod.spec.node_name, pod.status.phase
    if not node:
        yield "not scheduled"
    if phase != "Running":
        yield phase
    elif pod.ready_at is None:
        yield "not ready"
    if pod.cost:
        yield f"deletion cost {pod.cost}"
    if node and ranks[node] > 1:
        yield f"{ranks[node]} replicas on its node"
    if pod.ready_at:
        yield f"ready since {moment(pod.ready_at)}"


def reserved_when_it_goes(pod: Pod, namespace: Namespace, settings: Settings) -> str:
    """What becomes of a pod's IP, for a change of values."""
    metadata = namespace.metadata
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
    pods = Pods({each.uid: Life.TERMINATING for each, _ in stored_in(segments) if not each.ended}, {})
    ours = [each for each in segments if each.ours]

    def causes(settings: Settings) -> dict[tuple[str, str], Cause]:
        return {
            (address_of(record.cidr), f"{record.namespace}/{record.pod}"): cause
            for planned in plan(ours, pods, settings.ip_reservation, now).changes
            for record, cause in planned.released
        }

    before = causes(change.now)
    why = {
        Cause.AGE: "older than ipReservation.duration",
        Cause.NAMESPACE: "the oldest of more than maxPerNamespace",
        Cause.FINISHED: "the oldest of more than ipReservation.maxFinished",
        Cause.COUNT: "the oldest of more than ipReservation.maxCount",
    }
    for (ip, pod), cause in causes(change.then).items():
        if (ip, pod) not in before:
            yield Released(ip, pod, why.get(cause, cause.value))


@click.command("drain", cls=Command)
@click.argument("node", type=object_name)
@pass_session
def drain_command(session: Session, node: str) -> None:
    """Predict which IPs draining a node would reserve, and why not the others."""
    # As kubectl drain --ignore-daemonsets --delete-emptydir-data --force.
    inventory = Inventory(session.cluster)
    inventory.get(NODES, node, None, Raw)
    pods = inventory.pods(Selection(field_selector=f"spec.nodeName={node}"))
    kept = tuple(Fate.of(pod, why) for pod in pods if (why := stays(pod)))
    going = [pod for pod in pods if not stays(pod)]
    session.show(replace(removal(inventory, f"Draining node {node}", going, eviction_of), kept=kept))


@click.command("delete", cls=Command)
@click.argument("names", metavar="[POD...]", nargs=-1, type=object_name)
@selector_option("pods")
@pass_session
def delete_command(session: Session, names: tuple[str, ...], selector: str) -> None:
    """Predict which IPs deleting these pods would reserve, and why not the others."""
    if bool(names) == bool(selector):
        raise click.UsageError("name the pods, or select them with -l")
    inventory = Inventory(session.cluster)
    pods = (
        inventory.pods(Selection(session.scope, label_selector=selector))
        if selector
        else [stored(inventory.get(PODS, name, session.namespace, Raw)) for name in names]
    )
    if not pods:
        raise Failure(
            f"no pod has the labels {selector}", "kubectl get pods --show-labels; -A is for all namespaces"
        )
    session.show(removal(inventory, f"Deleting {', '.join(pod.key for pod in pods)}", pods, deletion_of))


def removal(
    inventory: Inventory,
    what: str,
    pods: Sequence[StoredPod],
    request: Callable[[Raw], ApiRequest],
    *,
    comes_back: bool = True,
) -> Removal:
    """Of *pods*, each by its own *request*; without *comes_back* no pods take their places."""
    segments = segments_if_any(inventory)
    snapshot = (snapshot_with_segments if comes_back else snapshot_of)(inventory, [pod.raw for pod in pods])
    by_name = sorted(pods, key=lambda pod: pod.key)
    predicted = [(pod, predict(request(pod.raw), snapshot)) for pod in by_name]
    reserved = tuple(record for _, ahead in predicted for record in ahead.records)
    back = tuple(returning(predicted, snapshot)) if comes_back else ()
    kept = {ip for each in back if each.promised for ip in each.ips}
    # An IP that its own pod gets back takes no other one.
    pools, unknown = headroom(inventory, segments, {address_of(each.cidr) for each in reserved} - kept)
    registered = [each.path for each in snapshot.webhooks]
    return Removal(
        what=what,
        reserved=reserved,
        not_reserved=tuple(
            Fate.of(pod, ahead.why_not_reserved) for pod, ahead in predicted if not ahead.records
        ),
        kept=(),
        denied=tuple(Fate.of(pod, " ".join(ahead.denials)) for pod, ahead in predicted if ahead.denials),
        unknown=tuple(dict.fromkeys(each for _, ahead in predicted for each in ahead.unknown)),
        counted=counted(segments),
        most=snapshot.settings.ip_reservation.max_count,
        pools=pools,
        pools_unknown=unknown,
        returning=back,
        problem=UNREGISTERED if RESERVES in unregistered(snapshot.settings, registered) else "",
    )


def scale_in(
    inventory: Inventory, workload: ObjectMeta, owner: str, first: int | None, before: int, replicas: int
) -> ScaleIn:
    """*owner* is the uid of that of its pods, *first* the first ordinal of a StatefulSet, and None of a Deployment."""
    name = key_of(workload)
    active = [
        pod
        for pod in inventory.pods(Selection(workload.namespace))
        if any(each.uid == owner for each in pod.metadata.owner_references)
        and not (pod.finished or pod.terminating)
    ]
    if first is None:
        chosen = in_order(active, inventory.now())[: max(0, len(active) - replicas)]
        ranks = Counter(pod.spec.node_name for pod in active)
        why = ["; ".join(_reasons(pod, ranks)) for pod in chosen]
    else:
        beyond = [pod for pod in active if pod.ordinal > first + replicas - 1]
        chosen = sorted(beyond, key=lambda pod: pod.ordinal, reverse=True)
        why = [f"ordinal {pod.ordinal}" for pod in chosen]
    return ScaleIn(
        workload=name,
        before=before,
        after=replicas,
        going=tuple(
            Going(pod.key, pod.spec.node_name, reason) for pod, reason in zip(chosen, why, strict=True)
        ),
        removal=removal(
            inventory, f"Scaling {name} from {before} to {replicas}", chosen, deletion_of, comes_back=False
        ),
    )
