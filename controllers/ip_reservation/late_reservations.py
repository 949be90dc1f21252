"""Reserve what no record reserves: addresses of pods that go without admission, and those that other clients take out.

The kubelet evicted such a pod, or it finished where the addresses of such pods stay reserved, or it terminates or is
gone without a record because the webhook failed open or was not installed yet. Its record is marked late: the address
may have been free for a moment.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from api.ip_reservation import (
    FINISHED,
    GONE,
    TERMINATING,
    choice_of,
    ended_by_itself,
    evicted_at,
    kubelet_evicted,
    records_of,
    records_of_evicted,
    reserves_finished,
    unselected,
)
from api.standing import STANDING, keys_of
from calico.segment import NO_KEYS, IPReservation, Record, pages
from controllers.controller import Clock, Controller, Watch
from controllers.ip_reservation.caches import Caches
from controllers.ip_reservation.calls import LOOK_UPS, PAUSES, LiveReader, RoundRobin
from controllers.ip_reservation.release_planner import Life, has_left, is_ahead, is_over, life_of
from controllers.ip_reservation.reporter import Reporter
from controllers.workqueue import WorkQueue
from kube.errors import KubeError
from kube.types import Pod
from runtime import threading
from settings import IPReservationSettings

LATE_WORKERS, RESTORE_WORKERS = 8, 4
"""They wait for the ledger together, so that their reservations share its writes."""
CATCH_UP = 1.0
"""Seconds in which the watch of the reservations may lag behind the watch of the pods."""
TOGETHER, GATHER = "pods that are reserved ahead", 0.1
"""The key of all pods that go while they are claimed, and the seconds in which they gather: a run for each would cost
more than it. Not long: an owner that went before them is gone by then, and one that goes after them may soon be."""
REMEMBERED = 300.0
"""Seconds within which the watch delivers what the leader has released."""

Reserve = Callable[[Sequence[Record]], IPReservation]
"""Make records durable; returns the segment that has them. KubeError."""


@dataclass(frozen=True)
class Departure:
    """A pod as it was first seen going, and when it *ended*: None while it is there.

    *seen* is when, for the record; *since* the same on the monotonic clock, for waiting. *is_known* is whether this
    leader saw it before: else its owner may have gone long after it began to go.
    """

    pod: Pod
    ended: datetime | None
    seen: datetime
    since: float = 0.0
    is_known: bool = True

    @property
    def passes_admission(self) -> bool:
        """Whether the pod may be on its way through admission, and its record on its way to us."""
        return bool(self.ended) or self.pod.terminating


def ends_without_request(pod: Pod) -> bool:
    return kubelet_evicted(pod) or ended_by_itself(pod)


def is_departure(pod: Pod, *, gone: bool) -> bool:
    return bool(pod.status.addresses) and (gone or pod.terminating or ends_without_request(pod))


def with_addresses(pod: Pod, before: Pod | None) -> Pod:
    """*pod* with the addresses that it had *before*: a kubelet that rejects a running pod removes them."""
    if before is None or pod.status.addresses:
        return pod
    return replace(
        pod, status=replace(pod.status, pod_ips=before.status.pod_ips, pod_ip=before.status.pod_ip)
    )


def decide(
    departure: Departure, namespace_annotations: Mapping[str, str], settings: IPReservationSettings
) -> Sequence[Record]:
    """What to reserve late for a pod that has no record.

    With its end: when the record is written, its pod may be forgotten.
    """
    pod, seen, ended = departure.pod, departure.seen, departure.ended
    if unselected(pod, namespace_annotations, settings):
        return ()
    if kubelet_evicted(pod):
        records, ended = records_of_evicted(pod, settings, seen), seen
        if isinstance(records, str):
            return ()
    # A kubelet marks a pod that it ends as finished just before it is gone: that excuses none that was deleted.
    elif ended_by_itself(pod):
        if not reserves_finished(namespace_annotations):
            return ()
        records, ended = records_of(pod, settings, reason=FINISHED, at=seen, late=True), seen
    else:
        records = records_of(pod, settings, reason=GONE if ended else TERMINATING, at=seen, late=True)
    return [replace(record, ended=ended) for record in records]


@dataclass
class LateReconciler:
    """Reserve the addresses of a pod, by its uid, that goes without a record.

    Those that are reserved ahead are looked at together, also whether they go with their owner.
    Remembers each as it was first seen going. *followed* is a pod with the annotation of its workload: it may be going
    before it was annotated.
    """

    caches: Caches
    live: LiveReader
    reserve: Reserve
    settings: Callable[[], IPReservationSettings]
    reporter: Reporter
    followed: Callable[[Pod], Pod] = lambda pod: pod

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._departures: dict[str, Departure] = {}
        self._decided: set[str] = set()
        """Uids of pods that are not gone yet, but decided about, once."""
        self._claimed: set[str] = set()
        self._turns = RoundRobin(self.live.clock, LOOK_UPS, lambda: False)
        self._queue = WorkQueue("ip_reservation_late", pauses=PAUSES)

    def controller(self) -> Controller:
        watch = Watch(self.caches.pods, self.observe)
        return Controller(self._queue, self.reconcile, watch, workers=LATE_WORKERS)

    def observe(self, old: Pod | None, new: Pod | None) -> Iterable[str]:
        pod, gone = new or old, new is None
        if pod is None:
            return ()
        uid, namespace = pod.metadata.uid, self.caches.namespaces.get(pod.metadata.namespace)
        annotations = namespace.metadata.annotations if namespace else {}
        # Of one that was not seen to finish, another pod may have the address for long.
        has_just_ended = old is not None and not old.finished and reserves_finished(annotations)
        with self._lock:
            if old and new and not new.finished and _choices(old) != _choices(new):
                # One that was opted out when it began to go may be selected now.
                self._decided.discard(uid)
                self.caches.claims.reconsider(uid)
            if new is not None and ended_by_itself(new) and not (has_just_ended or uid in self._departures):
                self._decided.add(uid)
            if namespace and uid not in self._decided:
                return self._note(with_addresses(pod, old), gone, is_known=old is not None)
            if gone:
                self._decided.discard(uid)
        return ()

    def _note(self, pod: Pod, gone: bool, *, is_known: bool) -> Iterable[str]:
        """Keep the first state, but for what selects it: at its end a pod may have finished, and have no address."""
        uid = pod.metadata.uid
        first, now = self._departures.get(uid), self.live.clock.now()
        if first is None and is_departure(pod, gone=gone):
            first = Departure(pod, None, now, self.live.clock.monotonic(), is_known)
            if keys_of(pod) <= self.caches.claims.of(uid):
                self._claimed.add(uid)
                self._queue.add_after(TOGETHER, GATHER)
        if first is None:
            return ()
        kept = first.pod
        if _choices(kept) != _choices(pod):
            at = pod.metadata
            chosen = replace(kept.metadata, labels=at.labels, annotations=at.annotations)
            kept = replace(kept, metadata=chosen)
        self._departures[uid] = dataclasses.replace(first, pod=kept, ended=now if gone else None)
        return () if uid in self._claimed else (uid,)

    def reconcile(self, key: str) -> float | None:
        return self._reconcile_claimed() if key == TOGETHER else self._reconcile(key)

    def _reconcile_claimed(self) -> float | None:
        """Their records are durable: one that is missing by now was released, not forgotten. What fails stays."""
        with self._lock:
            claimed = {uid: uid for uid in self._claimed}
        for uid, _ in self._turns.of(claimed):
            with suppress(KubeError):
                self._reconcile(uid, is_claimed=True)
        with self._lock:
            self._claimed &= self._departures.keys()
        return CATCH_UP if self._claimed else None

    def _reconcile(self, uid: str, *, is_claimed: bool = False) -> float | None:
        departure = self._departures.get(uid)
        if departure is None:
            return None
        records = self._wanted(departure)
        missing = [] if is_claimed else [each for each in records if not self.caches.is_reserved(each)]
        is_standing = not missing and self._is_standing(departure.pod)
        if not is_claimed and (missing or (is_standing and records)):
            waited = self.live.clock.monotonic() - departure.since
            if departure.passes_admission and waited < CATCH_UP:
                return CATCH_UP - waited
        is_excused = is_standing and (
            not records or (departure.is_known and self._goes_with_owner(departure))
        )
        if missing:
            self._reserve_late(departure, missing)
        self._settle(departure, is_excused=is_excused)
        return None

    def _wanted(self, departure: Departure) -> Sequence[Record]:
        """By the caches."""
        settings = self.settings()
        if settings.workload_opt_in:
            departure = dataclasses.replace(departure, pod=self.followed(departure.pod))
        namespace = self.caches.namespaces.get(departure.pod.metadata.namespace)
        return decide(departure, namespace.metadata.annotations if namespace else {}, settings)

    def _is_standing(self, pod: Pod) -> bool:
        """Whether no review of its deletion decided about its addresses."""
        segments = self.caches.segments
        found = [each.by_key[key] for key in keys_of(pod) for each in segments.by_index("keys", key)]
        return bool(found) and all(record.reason == STANDING for record in found)

    def _reserve_late(self, departure: Departure, records: Sequence[Record]) -> None:
        missing = records
        if departure.passes_admission:  # else no record of it is on its way
            reserved = self.live.reserved_since(departure.since)
            missing = [record for record in records if record.key not in reserved]
        if _ended_at_any_time(departure):
            missing = [record for record in missing if not self._is_anothers(record)]
        if missing and not self._goes_with_owner(departure):
            self.reporter.reserved_late(departure.pod, missing[0].reason, self.reserve(missing))

    def _is_anothers(self, record: Record) -> bool:
        """Whether another pod has its address by now, as far as is known."""
        return any(pod.metadata.uid != record.uid for pod in self.caches.pods_at(record.cidr))

    def _goes_with_owner(self, departure: Departure) -> bool:
        pod, owner = departure.pod, departure.pod.metadata.controller
        if owner is None or ends_without_request(pod) or not self.settings().skip_when_owner_is_deleted:
            return False
        return self.live.is_owner_deleted(pod.metadata.namespace, owner, departure.since)

    def _settle(self, departure: Departure, *, is_excused: bool) -> None:
        """Unless it was selected or opted out meanwhile, and is looked at again for that."""
        uid = departure.pod.metadata.uid
        with self._lock:
            latest = self._departures.get(uid)
            if latest is None or _choices(latest.pod) != _choices(departure.pod):
                return
            del self._departures[uid]
            if is_excused:
                self.caches.claims.decide(uid, stays=False)
            if not latest.ended:
                self._decided.add(uid)


def _ended_at_any_time(departure: Departure) -> bool:
    """Whether it may have ended so long ago that Calico has given its address to another pod since."""
    pod = departure.pod
    was_not_seen = not departure.is_known and kubelet_evicted(pod) and evicted_at(pod) is None
    return ended_by_itself(pod) or was_not_seen


def _choices(pod: Pod) -> tuple[Mapping[str, str], str]:
    """By which it is selected, or opted out."""
    return pod.metadata.labels, choice_of(pod.metadata.annotations)


def taken_out(old: IPReservation, new: IPReservation | None) -> Sequence[Record]:
    """The records of *old*, each of a pod, that *new* does not have."""
    kept = new.keys if new else NO_KEYS
    return [record for record in old.records if record.uid and record.key not in kept]


@dataclass
class RestoreReconciler:
    """Reserve again what another client has taken out of a segment, by its name, or deleted with it.

    Released addresses stay out, and so do those that a later reservation of their pod has replaced, that another
    segment has, and that would be released by age anyway. Those of pods that live are reserved ahead again.
    """

    caches: Caches
    reserve: Reserve
    settings: Callable[[], IPReservationSettings]
    reporter: Reporter
    clock: Clock

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._own: dict[tuple[str, str], float] = {}
        self._released: dict[str, float] = {}
        self._taken: dict[str, dict[str, Record]] = {}

    def controller(self) -> Controller:
        watch = Watch(self.caches.segments, self.observe)
        return Controller(
            "ip_reservation_restore", self.reconcile, watch, workers=RESTORE_WORKERS, rate=PAUSES
        )

    def note_own(self, name: str, released: Iterable[Record], copies: Iterable[Record] = ()) -> None:
        """Expect that the leader takes records out of segment *name*: what is *released*, and needless *copies*."""
        now, keys = self.clock.monotonic(), [record.key for record in released]
        own = (*keys, *(record.key for record in copies))
        with self._lock:
            fresh = {key: at for key, at in self._own.items() if now - at < REMEMBERED}
            self._own = fresh | {(name, key): now for key in own}
            recent = {key: at for key, at in self._released.items() if now - at < REMEMBERED}
            self._released = recent | dict.fromkeys(keys, now)

    def observe(self, old: IPReservation | None, new: IPReservation | None) -> Iterable[str]:
        """The name of a segment to reconcile after this change."""
        if old is None or not old.ours:
            return ()
        name = old.metadata.name
        with self._lock:
            taken = {record.key: record for record in taken_out(old, new) if not self._is_own(name, record)}
            if taken:
                self._taken.setdefault(name, {}).update(taken)
        return (name,) if taken else ()

    def _is_own(self, name: str, record: Record) -> bool:
        """Not of a copy for which another one was to stay that another client took out meanwhile."""
        stays = record.key in self._released or self.caches.is_reserved(record)
        return (name, record.key) in self._own and stays

    def taken(self, name: str) -> Mapping[str, Record]:
        """What other clients took out, by key."""
        with self._lock:
            return dict(self._taken.get(name, {}))

    def reconcile(self, name: str) -> None:
        taken, settings, now = self.taken(name), self.settings(), self.clock.now()
        missing = [
            record
            for record in taken.values()
            if not (
                self.caches.is_reserved(record) or is_over(record, settings, now) or self._is_ahead(record)
            )
        ]
        for page in pages(missing):
            self.reporter.restored(name, page, self.reserve(page))
        with self._lock:  # what came meanwhile has queued the segment again
            left = {key: record for key, record in self._taken.pop(name, {}).items() if key not in taken}
            if left:
                self._taken[name] = left

    def _is_ahead(self, record: Record) -> bool:
        pod = self.caches.pod(record.uid)
        lives = pod is not None and life_of(pod) is Life.RUNNING and not has_left(record, pod)
        return lives and is_ahead(record)
