"""Plan which reservations to release: those that are over, and the oldest when there are too many.

A reservation's time counts from the end of its pod, which the leader notes in the record: so it survives a restart,
and only the leader's clock counts. An address that its pod still has neither counts nor is released, unless the pod's
deletion was refused. An unconfirmed record neither counts nor ends; a forged one is dropped. One that was promised to
a pod of the same name waits for it, and ends when that has the address.

Compaction and repeated requests leave copies: records of one pod's address in several segments. What is decided about
a record is decided from all its copies, and carried out in all of them. A copy is dropped only when a greater one says
as much. The order is total, and of what never changes, so two leaders with different views never drop each other's
copies: the greatest one stays.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum, StrEnum

from msgspec.structs import replace

from api.ip_reservation import FINISHED, cidrs_of
from api.standing import STANDING
from calico.pools import Pool
from calico.segment import ENTRIES, NO_KEYS, SIZE, IPReservation, Keys, Record, pages
from kube.types import Pod
from settings import IPReservationSettings

END_WAITS, SHARE_OF_TIME = 60.0, 1 / 40
"""An end that is known in memory is stored after so many seconds, or that share of `duration` if it is less.

Many ends share a write so. A leader that is killed before makes a reservation so much longer.
"""
WITHDRAWN = 10.0
"""Seconds for which a standing reservation was not relied on before it is given back: it may be so in a moment."""
FEW = 16
"""Small segments that are compacted when no new one has come for a while."""
MANY = 100
"""Small segments that are compacted also during a storm: Calico's allocator reads each of them for each pod."""

Admission = tuple[str, str, datetime]
"""One admitted deletion: address, pod uid, and when by the webhook server's clock."""
Identity = tuple[str, str]
"""What the copies of a record have in common."""
Reserved = Mapping[Identity, Record]
Limit = tuple[str, int]
"""Of what, and how many addresses of it stay."""
Place = tuple[int, datetime, str]
"""In the order of segments."""


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
    FINISHED = "finished"
    COUNT = "count"
    GIVEN_BACK = "given-back"
    RETURNED = "returned"
    BY_HAND = "by-hand"
    FORGED = "forged"


EARLY = (Cause.NAMESPACE, Cause.POOL, Cause.FINISHED, Cause.COUNT)
"""Because too many are reserved, in the order in which this is decided."""


@dataclass(frozen=True)
class Pods:
    """What is known of the records' pods.

    *lives* by pod uid, where absent means gone; *waits* are the seconds since the leader first saw each admission of
    a pod that runs; *ends*, by record key, are when pods were seen gone. Keys of records are

    - *unconfirmed*: their pods may not have existed, and *forged* those of them that are to be dropped;
    - *waiting* for the pod that takes the place of theirs, and *kept* by it, which has the address;
    - *relied_on*: the deletion of their living pods is not reviewed. They stay in a segment of *owner*, a uid, with
      which the reliance ends;
    - *left*: their pods live without that address, which Calico has released, or with another one.

    *excused* are uids of pods whose addresses need not stay reserved, *finished* those of pods that ended by
    themselves, and are not excused.
    """

    lives: Mapping[str, Life]
    waits: Mapping[Admission, float] = field(default_factory=dict)
    ends: Mapping[str, datetime] = field(default_factory=dict)
    unconfirmed: Keys = NO_KEYS
    forged: Keys = NO_KEYS
    waiting: Keys = NO_KEYS
    kept: Keys = NO_KEYS
    relied_on: Keys = NO_KEYS
    owner: str = ""
    left: Keys = NO_KEYS
    excused: Keys = NO_KEYS
    finished: Keys = NO_KEYS

    def life_of(self, record: Record) -> Life:
        """GONE also when it lives on without this address."""
        return Life.GONE if record.key in self.left else self.lives.get(record.uid, Life.GONE)

    def is_needed(self, record: Record) -> bool:
        """Whether it stays reserved whatever else holds."""
        return record.key in self.waiting or record.key in self.relied_on

    def goes(self, record: Record) -> bool:
        """Whether it is certain that its pod does not stay."""
        return self.life_of(record) is not Life.RUNNING and record.key not in self.unconfirmed


@dataclass(frozen=True)
class Change:
    """Write *kept* to *segment*, or delete it when that is nothing."""

    segment: IPReservation
    kept: tuple[Record, ...]
    released: tuple[tuple[Record, Cause], ...]


@dataclass(frozen=True)
class Compaction:
    """Create a segment of *level* with *records*, all that is known of those of *sources*, many small segments.

    The records are in the new segment before the copies in its sources are dropped, by the rules for copies, and the
    sources deleted. A crash between these steps leaves copies, which the next leader drops.
    """

    level: int
    records: tuple[Record, ...]
    sources: frozenset[str]


@dataclass(frozen=True)
class Plan:
    """*changes* leave the greatest copy of each record for last."""

    changes: Sequence[Change]
    compactions: Sequence[Compaction]


def plan(
    segments: Sequence[IPReservation],
    pods: Pods,
    settings: IPReservationSettings,
    now: datetime,
    *,
    enough: int | None = MANY,
    pools: Sequence[Pool] = (),
) -> Plan:
    """The segments to rewrite or to delete, and to create: *enough* small ones are compacted.

    While it is None, none is created: what is known is stored where the records are. While pools are not known, there
    are no *pools*, and nothing is released for them.
    """
    copies = by_identity(segments)
    noted = {identity: note_end(merged(found), pods, now) for identity, found in copies.items()}
    causes = {
        identity: cause
        for identity, record in noted.items()
        if (cause := _cause(record, copies[identity], pods, settings, now))
    }
    needed = {identity for identity, record in noted.items() if pods.is_needed(record)}
    causes |= _too_many(noted, causes.keys() | needed, settings, pools)
    dropped = set(_dropped(copies, causes, pods))

    ordered = sorted(segments, key=place_of)
    changes = [_change(segment, noted, causes, dropped) for segment in ordered]
    due = {change.segment.metadata.name: change for change in changes if _is_due(change, pods, settings, now)}
    if enough is None:
        return Plan([*due.values()], ())
    small = [change.segment for change in changes if _may_be_compacted(change, pods)]
    compactions = _compact(small, noted) if len(small) >= enough else ()
    sources = {name for compaction in compactions for name in compaction.sources}
    moved = {
        name: records
        for change in changes
        if (name := change.segment.metadata.name) not in sources
        and (records := _outlasting(change, copies, pods.relied_on, is_due=name in due))
    }
    postponed = sources | moved.keys()
    return Plan(
        [change for name, change in due.items() if name not in postponed],
        (*compactions, *_moves(segments, moved)),
    )


def _may_be_compacted(change: Change, pods: Pods) -> bool:
    """What is relied on only in a segment of the owner, which may not be known yet: no copy of others replaces it."""
    segment = change.segment
    stays_whole = is_small(segment) and len(change.kept) == len(segment.records)
    return stays_whole and (segment.is_owned_by(pods.owner) or segment.keys.isdisjoint(pods.relied_on))


def _outlasting(
    change: Change, copies: Mapping[Identity, Sequence[Copy]], relied_on: Keys, *, is_due: bool
) -> Sequence[Record]:
    """What is to outlast the owner of its segment, which keeps all: records whose ends are due, or stored.

    They are stored in it while nothing can be created, and with what is dropped from it. A record of no pod stays: it
    is no other one's copy, so it would be moved again and again.
    """
    segment = change.segment
    if not segment.metadata.owner_references or len(change.kept) < len(segment.records):
        return ()
    found = zip(segment.records, change.kept, strict=True)
    ended = [kept for held, kept in found if kept.ended and (is_due or held.ended)]
    return [
        record
        for record in ended
        if record.uid
        and record.key not in relied_on
        and all(copy.segment.metadata.owner_references for copy in copies[identity_of(segment, record)])
    ]


def _moves(segments: Iterable[IPReservation], moved: Mapping[str, Sequence[Record]]) -> Iterator[Compaction]:
    """To a segment without an owner."""
    levels = [each.level for each in segments if each.metadata.name in moved]
    for page in pages(record for records in moved.values() for record in records):
        yield Compaction(1 + max(levels), page, frozenset())


def _change(
    segment: IPReservation,
    noted: Reserved,
    causes: Mapping[Identity, Cause],
    dropped: Container[tuple[str, str]],
) -> Change:
    kept, released = [], []
    for record in segment.records:
        identity = identity_of(segment, record)
        if (segment.metadata.name, record.key) in dropped:
            continue
        if cause := causes.get(identity):
            released.append((noted[identity], cause))
        else:
            is_finished = noted[identity].reason == FINISHED
            reason = FINISHED if is_finished else record.reason  # of each copy, but for that
            kept.append(_with_end(record, noted[identity].ended, reason))
    return Change(segment, tuple(kept), tuple(released))


def _is_due(change: Change, pods: Pods, settings: IPReservationSettings, now: datetime) -> bool:
    """Whether it is worth a write, which stores all ends that are known."""
    before = change.segment.records
    if change.segment.metadata.deletion_timestamp and not change.segment.spec.reserved_cidrs:
        return False  # only its finalizers are left
    # A write also repairs a malformed entry, for which Calico would give no pod an address.
    if not change.kept or len(change.kept) < len(before) or change.segment.malformed:
        return True
    recent = timedelta(seconds=min(END_WAITS, SHARE_OF_TIME * settings.duration))
    return any(
        held.ended or not (ended := pods.ends.get(held.key)) or now - ended >= recent
        for held, kept in zip(before, change.kept, strict=True)
        if held is not kept
    )


def note_end(record: Record, pods: Pods, now: datetime) -> Record:
    """*record* with the time at which its pod was seen ended; without while it has its address or is unconfirmed."""
    if pods.life_of(record) is not Life.GONE or record.key in pods.unconfirmed:
        return _with_end(record, None, record.reason)
    reason = FINISHED if record.uid in pods.finished else record.reason
    return _with_end(record, min(record.ended or pods.ends.get(record.key, now), now), reason)


def _with_end(record: Record, ended: datetime | None, reason: str) -> Record:
    is_same = (record.ended, record.reason) == (ended, reason)
    return record if is_same else replace(record, ended=ended, reason=reason)


def _cause(
    record: Record, copies: Sequence[Copy], pods: Pods, settings: IPReservationSettings, now: datetime
) -> Cause | None:
    """By age only when its end is stored, so that it shows when its time began."""
    if record.key in pods.forged:
        return Cause.FORGED
    if record.ended and record.key in pods.kept:
        return Cause.RETURNED
    if pods.is_needed(record):
        return None
    if record.ended and record.uid in pods.excused and record.reason != FINISHED:
        return Cause.GIVEN_BACK
    if record.ended and any(record.cidr in copy.segment.to_be_released.values() for copy in copies):
        return Cause.BY_HAND
    if is_over(record, settings, now) and any(copy.record.ended for copy in copies):
        return Cause.AGE
    return Cause.GIVEN_BACK if may_be_given_back(record, pods, settings) else None


def is_over(record: Record, settings: IPReservationSettings, now: datetime) -> bool:
    """Whether its time has passed since its pod ended."""
    return record.ended is not None and now - record.ended >= timedelta(seconds=settings.duration)


def may_be_given_back(record: Record, pods: Pods, settings: IPReservationSettings) -> bool:
    """Whether the pod has run so long since its deletion was admitted that it must have been refused elsewhere.

    One that was reserved ahead, and is relied on no more, needs no such patience.
    """
    if record.key in pods.unconfirmed or pods.is_needed(record):
        return False
    patience = settings.give_back_after if was_asked(record) else min(WITHDRAWN, settings.give_back_after)
    waited = pods.waits.get(admission_of(record), 0.0)
    return pods.life_of(record) is Life.RUNNING and waited >= patience


def was_asked(record: Record) -> bool:
    """Whether a client asked for the deletion of its pod; else it was only reserved ahead."""
    return record.reason != STANDING or record.asked is not None


def admission_of(record: Record) -> Admission:
    return record.cidr, record.uid, record.last_asked


def life_of(pod: Pod | None) -> Life:
    if pod is None or pod.finished:
        return Life.GONE
    return Life.TERMINATING if pod.terminating else Life.RUNNING


def has_left(record: Record, pod: Pod) -> bool:
    """Whether *pod*, which it is of, lives on with others, as in a new sandbox, or waits for that without any."""
    if record.cidr in (now := cidrs_of(pod)):
        return False
    return bool(now) or not pod.terminating


def _too_many(
    noted: Reserved, settled: Container[Identity], settings: IPReservationSettings, pools: Sequence[Pool]
) -> Mapping[Identity, Cause]:
    """The oldest reservations that are too many: for their namespace, what their pool has left, or the cluster.

    Each limit counts what the one before it leaves, and nothing that is *settled*; those of pods that finished count
    apart from all others. Only reservations whose time has begun count, so neither addresses that pods still have nor
    unconfirmed ones displace any. Without pools, none is too many for them.
    """
    most_of = settings.max_per_namespace
    pool_of = {cidr: pool for pool in pools for cidr in pool.ours}

    def of_pool(record: Record) -> Limit | None:
        if (pool := pool_of.get(record.cidr)) is None:
            return None
        return pool.name, pool.room * settings.max_pool_share // 100

    limits: Mapping[Cause, Callable[[Record], Limit | None]] = {
        # Without a namespace, it is of no pod.
        Cause.NAMESPACE: lambda record: (
            (record.namespace, most_of) if record.namespace and most_of is not None else None
        ),
        Cause.POOL: of_pool,
        Cause.FINISHED: lambda record: ("", settings.max_finished) if record.reason == FINISHED else None,
        Cause.COUNT: lambda record: ("", settings.max_count) if record.reason != FINISHED else None,
    }
    early: dict[Identity, Cause] = {}
    for cause in EARLY:
        limited: dict[Limit, dict[Identity, Record]] = {}
        counted = ((identity, record) for identity, record in noted.items() if record.ended)
        for identity, record in counted:
            limit = None if identity in settled or identity in early else limits[cause](record)
            if limit:
                limited.setdefault(limit, {})[identity] = record
        for (_, most), reserved in limited.items():
            early |= dict.fromkeys(_oldest_beyond(reserved, most), cause)
    return early


def _oldest_beyond(reserved: Reserved, count: int) -> Sequence[Identity]:
    """The records whose time began first, so that *count* addresses stay."""
    latest = {record.cidr: _began(record) for record in sorted(reserved.values(), key=_began)}
    oldest_first = sorted(latest, key=lambda cidr: latest[cidr])
    surplus = set(oldest_first[: max(0, len(oldest_first) - count)])
    return [identity for identity, record in reserved.items() if record.cidr in surplus]


def _began(record: Record) -> tuple[datetime, datetime]:
    return record.ended or record.at, record.at


@dataclass(frozen=True)
class Copy:
    """*record* as *segment* has it."""

    segment: IPReservation
    record: Record

    @property
    def rank(self) -> tuple[bool, Place]:
        return not self.record.late, place_of(self.segment)

    def is_covered_by(self, other: Copy, *, goes: bool) -> bool:
        """Whether *other* is greater and says as much. Once a pod *goes*, its last request is of no matter."""
        if other.rank <= self.rank:
            return False
        ended, others = self.record.ended, other.record.ended
        asked_as_late = goes or other.record.last_asked >= self.record.last_asked
        return asked_as_late and (ended is None or (others is not None and others <= ended))


def identity_of(segment: IPReservation, record: Record) -> Identity:
    """A record of no pod is no other one's copy."""
    return record.key, "" if record.uid else segment.metadata.name


def place_of(segment: IPReservation) -> Place:
    created = segment.metadata.creation_timestamp or datetime.min.replace(tzinfo=UTC)
    return segment.level, created, segment.metadata.name


def by_identity(segments: Sequence[IPReservation]) -> Mapping[Identity, Sequence[Copy]]:
    """All copies, the greatest one last."""
    found: dict[Identity, list[Copy]] = {}
    for segment in segments:
        for record in segment.records:
            found.setdefault(identity_of(segment, record), []).append(Copy(segment, record))
    for copies in found.values():
        if len(copies) > 1:
            copies.sort(key=lambda copy: copy.rank)
    return found


def merged(copies: Sequence[Copy]) -> Record:
    """The first reservation, the last request and the first end; late only if all are."""
    greatest = copies[-1].record
    if len(copies) == 1:
        return greatest
    records = [copy.record for copy in copies]
    is_finished = any(record.reason == FINISHED for record in records)
    at, asked = min(record.at for record in records), max(record.last_asked for record in records)
    return replace(
        greatest,
        at=at,
        asked=asked if asked > at else None,
        ended=min((record.ended for record in records if record.ended), default=None),
        reason=FINISHED if is_finished else greatest.reason,
    )


def _dropped(
    copies: Mapping[Identity, Sequence[Copy]], causes: Container[Identity], pods: Pods
) -> Iterator[tuple[str, str]]:
    """Segment and key of each copy that a greater one makes needless.

    One that a user wants released stays until that is done: the order to do so would go with its segment.
    """
    for identity, found in copies.items():
        if len(found) == 1:
            continue
        if found[0].record.key in pods.relied_on:
            yield from _dropped_of_relied_on(found, pods.owner)
            continue
        *lesser, greatest = found
        goes = pods.goes(greatest.record)
        for number, copy in enumerate(lesser, 1):
            needless = any(copy.is_covered_by(other, goes=goes) for other in found[number:])
            if identity in causes or (needless and not copy.segment.to_be_released):
                yield copy.segment.metadata.name, copy.record.key


def _dropped_of_relied_on(copies: Sequence[Copy], owner: str) -> Iterator[tuple[str, str]]:
    """All but the greatest one in a segment of *owner*, if there is one."""
    owned = [copy for copy in copies if copy.segment.is_owned_by(owner)]
    for copy in copies if owned else ():
        if copy is not owned[-1] and not copy.segment.to_be_released:
            yield copy.segment.metadata.name, copy.record.key


def _compact(small: Sequence[IPReservation], noted: Reserved) -> Sequence[Compaction]:
    """What is known of the records of *small* segments. What was made ahead stays apart."""
    level = 1 + max(segment.level for segment in small)
    sources = frozenset(segment.metadata.name for segment in small)
    found = ((segment, record) for segment in small for record in segment.records)
    records = {record.key: noted[identity_of(segment, record)] for segment, record in found}.values()
    parts = [[record for record in records if is_ahead(record) is ahead] for ahead in (True, False)]
    return [Compaction(level, page, sources) for part in parts for page in pages(part)]


def is_ahead(record: Record) -> bool:
    """Whether it is of a pod that lives, as far as it says, and so goes with what makes the API server rely on it."""
    return record.reason == STANDING and not record.ended


def is_small(segment: IPReservation) -> bool:
    """Whether it is half full at most, and nothing has to be done or decided by users in it first."""
    return (
        segment.ours
        and 0 < len(segment.records) <= ENTRIES // 2
        and segment.size <= SIZE // 2
        and all(record.uid for record in segment.records)
        and not (segment.malformed or segment.to_be_released)
    )
