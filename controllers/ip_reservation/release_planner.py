"""Plan which reservations to release: those that are over, and the oldest when there are too many.

A reservation's time counts from the end of its pod, which the leader notes in the record: so it survives a restart,
and only the leader's clock counts. An address that its pod still has neither counts nor is released, unless the pod's
deletion was refused. An unconfirmed record neither counts nor ends; a forged one is dropped. One that was promised to
a pod of the same name waits for it, and ends when that has the address.

What is decided about a record is decided from all its copies, and carried out in all of them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, StrEnum

from msgspec.structs import replace

from calico.segment import IPReservation, Record
from controllers.ip_reservation.budget import beyond, beyond_namespaces, beyond_pools
from controllers.ip_reservation.compaction import Compaction, compact
from controllers.ip_reservation.confirmations import Doubts
from controllers.ip_reservation.copies import Copy, Identity, by_identity, identity_of, merged, place_of
from controllers.ip_reservation.pool_usage import Pool
from controllers.ip_reservation.promises import Promises
from kube.types import Pod
from settings import IPReservationSettings

END_WAITS, SHARE_OF_TIME = 60.0, 1 / 40
"""An end that is known in memory is stored after so many seconds, or that share of ipReserveTime if it is less.

Many ends share a write so. A leader that is killed before makes a reservation so much longer.
"""

Asking = tuple[str, str, datetime]
"""One admitted deletion: address, pod uid, and when by the webhook server's clock."""


class Life(Enum):
    """The state of a record's pod."""

    RUNNING = "running"
    TERMINATING = "terminating"
    GONE = "gone"


class Cause(StrEnum):
    """Why an address is released."""

    AGE = "age"
    NAMESPACE = "namespace"
    POOL = "pool"
    COUNT = "count"
    GIVEN_BACK = "given-back"
    RETURNED = "returned"
    BY_HAND = "by-hand"
    FORGED = "forged"


EARLY = (Cause.NAMESPACE, Cause.POOL, Cause.COUNT)
"""Because too many are reserved, in the order in which this is decided."""


@dataclass(frozen=True)
class Change:
    """Write *kept* to *segment*, or delete it."""

    segment: IPReservation
    kept: tuple[Record, ...]
    released: tuple[tuple[Record, Cause], ...]
    delete: bool


@dataclass(frozen=True)
class Plan:
    """*changes* leave the greatest copy of each record for last; *uncompacted* are due when a compaction fails."""

    changes: Sequence[Change]
    compactions: Sequence[Compaction]
    uncompacted: Sequence[Change] = ()


@dataclass(frozen=True)
class Pods:
    """What is known of the records' pods.

    *lives* by pod uid, where absent means gone; *waits* are the seconds since the leader first saw each asking for
    a pod that runs; *ends*, by record key, are when pods were seen gone; *doubts* are about whether they existed;
    *promises* are to the pods that take their places.
    """

    lives: Mapping[str, Life]
    waits: Mapping[Asking, float]
    ends: Mapping[str, datetime] = field(default_factory=dict)
    doubts: Doubts = field(default_factory=Doubts)
    promises: Promises = field(default_factory=Promises)

    def life_of(self, record: Record) -> Life:
        return self.lives.get(record.uid, Life.GONE)

    def goes(self, record: Record) -> bool:
        """Whether it is certain that its pod does not stay."""
        return self.life_of(record) is not Life.RUNNING and record.key not in self.doubts.unconfirmed


def plan(
    segments: Sequence[IPReservation],
    pods: Pods,
    settings: IPReservationSettings,
    now: datetime,
    *,
    quiet: bool = False,
    pools: Sequence[Pool] | None = None,
) -> Plan:
    """The segments to rewrite or to delete, and to create; *quiet*: none was created for a while.

    While *pools* are not known, nothing is released for them.
    """
    copies = by_identity(segments)
    noted = {identity: note_end(merged(each), pods, now) for identity, each in copies.items()}
    causes = _causes(copies, noted, pods, settings, now)
    waiting = {each for each, record in noted.items() if record.key in pods.promises.waiting}
    causes |= _early(noted, causes.keys() | waiting, settings, pools or ())
    decided = _Decided(noted, causes, set(_dropped(copies, causes, pods)))
    changes = [decided.change(segment) for segment in sorted(segments, key=place_of)]
    whole = [each.segment for each in changes if len(each.kept) == len(each.segment.records)]
    compactions = compact([(each, decided.records(each)) for each in whole], quiet=quiet)
    sources = {name for each in compactions for name in each.sources}
    needed = [each for each in changes if _is_needed(each, pods, settings, now)]
    return Plan(
        [each for each in needed if each.segment.metadata.name not in sources],
        compactions,
        [each for each in needed if each.segment.metadata.name in sources],
    )


@dataclass(frozen=True)
class _Decided:
    """What is *noted* of each record, why it is released, and which copies are *dropped*."""

    noted: Mapping[Identity, Record]
    causes: Mapping[Identity, Cause]
    dropped: Container[tuple[str, str]]

    def records(self, segment: IPReservation) -> Sequence[Record]:
        """With all that is known from their copies."""
        return [self.noted[identity_of(segment, each)] for each in segment.records]

    def change(self, segment: IPReservation) -> Change:
        kept, released, name = [], [], segment.metadata.name
        for record in segment.records:
            identity = identity_of(segment, record)
            if (name, record.key) in self.dropped:
                continue
            if cause := self.causes.get(identity):
                released.append((self.noted[identity], cause))
            else:
                kept.append(_with_end(record, self.noted[identity].ended))
        return Change(segment, tuple(kept), tuple(released), delete=not kept)


def _dropped(
    copies: Mapping[Identity, Sequence[Copy]], causes: Container[Identity], pods: Pods
) -> Iterator[tuple[str, str]]:
    """Segment and key of each copy that a greater one makes needless.

    One that a user wants released stays until that is done: the order to do so would go with its segment.
    """
    for identity, each in copies.items():
        *lesser, greatest = each
        if not lesser:
            continue
        goes = pods.goes(greatest.record)
        for number, copy in enumerate(lesser, 1):
            needless = any(copy.is_covered_by(other, goes=goes) for other in each[number:])
            if identity in causes or (needless and not copy.segment.to_be_released):
                yield copy.segment.metadata.name, copy.record.key


def _with_end(record: Record, ended: datetime | None) -> Record:
    return record if record.ended == ended else replace(record, ended=ended)


def _is_needed(change: Change, pods: Pods, settings: IPReservationSettings, now: datetime) -> bool:
    """Whether it is worth a write, which stores all ends that are known."""
    before = change.segment.records
    # A write also repairs a malformed entry, for which Calico would give no pod an address.
    if change.delete or len(change.kept) < len(before) or change.segment.malformed:
        return True
    recent = timedelta(seconds=min(END_WAITS, SHARE_OF_TIME * settings.ip_reserve_time))
    return any(
        held.ended or not (ended := pods.ends.get(held.key)) or now - ended >= recent
        for held, kept in zip(before, change.kept, strict=True)
        if held is not kept
    )


def note_end(record: Record, pods: Pods, now: datetime) -> Record:
    """*record* with the time at which its pod was seen ended; without while it has its address or is unconfirmed."""
    if pods.life_of(record) is not Life.GONE or record.key in pods.doubts.unconfirmed:
        return _with_end(record, None)
    return _with_end(record, min(record.ended or pods.ends.get(record.key, now), now))


def asking_of(record: Record) -> Asking:
    return record.cidr, record.uid, record.last_asked


def may_be_given_back(record: Record, pods: Pods, settings: IPReservationSettings) -> bool:
    """Whether the pod has run so long since its deletion was admitted that it must have been refused elsewhere."""
    if record.key in pods.doubts.unconfirmed:
        return False
    waited = pods.waits.get(asking_of(record), 0.0)
    return pods.life_of(record) is Life.RUNNING and waited >= settings.give_back_after


def _causes(
    copies: Mapping[Identity, Sequence[Copy]],
    noted: Mapping[Identity, Record],
    pods: Pods,
    settings: IPReservationSettings,
    now: datetime,
) -> dict[Identity, Cause]:
    """Why each record is released, but for those that are too many."""
    causes = {}
    for identity, record in noted.items():
        if cause := _cause(record, copies[identity], pods, settings, now):
            causes[identity] = cause
    return causes


def _early(
    noted: Mapping[Identity, Record],
    settled: Container[Identity],
    settings: IPReservationSettings,
    pools: Sequence[Pool],
) -> Mapping[Identity, Cause]:
    """Each limit counts what the one before it leaves, and nothing that is *settled*."""
    early: dict[Identity, Cause] = {}
    for cause in EARLY:
        left = {
            each: record
            for each, record in noted.items()
            if record.ended and each not in settled and each not in early
        }
        early |= dict.fromkeys(_too_many(cause, left, settings, pools), cause)
    return early


def _too_many(
    cause: Cause, reserved: Mapping[Identity, Record], settings: IPReservationSettings, pools: Sequence[Pool]
) -> Iterable[Identity]:
    if cause is Cause.NAMESPACE:
        return beyond_namespaces(reserved, settings.max_per_namespace)
    if cause is Cause.POOL:
        return beyond_pools(reserved, pools, settings.max_pool_share)
    return beyond(reserved, settings.ip_reserve_max_count)


def _cause(
    record: Record, copies: Sequence[Copy], pods: Pods, settings: IPReservationSettings, now: datetime
) -> Cause | None:
    """By age only when its end is stored, so that it shows when its time began."""
    if record.key in pods.doubts.forged:
        return Cause.FORGED
    if record.ended and record.key in pods.promises.kept:
        return Cause.RETURNED
    if record.key in pods.promises.waiting:
        return None
    if record.ended and any(record.cidr in each.segment.to_be_released.values() for each in copies):
        return Cause.BY_HAND
    if is_over(record, settings, now) and any(each.record.ended for each in copies):
        return Cause.AGE
    return Cause.GIVEN_BACK if may_be_given_back(record, pods, settings) else None


def is_over(record: Record, settings: IPReservationSettings, now: datetime) -> bool:
    """Whether its time has passed since its pod ended."""
    return record.ended is not None and now - record.ended >= timedelta(seconds=settings.ip_reserve_time)


def life_of(pod: Pod | None) -> Life:
    if pod is None or pod.finished:
        return Life.GONE
    return Life.TERMINATING if pod.terminating else Life.RUNNING
