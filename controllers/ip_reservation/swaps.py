"""Watch the promise: report pods that come up with an address that is kept for the clients of another pod."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from api.ip_reservation import cidrs_of
from calico.segment import IPReservation, Record
from controllers.clock import Clock
from controllers.ip_reservation.confirmations import PodAddresses
from controllers.ip_reservation.observers import taken_out
from controllers.ip_reservation.release_planner import is_over
from controllers.ip_reservation.snapshot import Caches, LiveReader
from controllers.ip_reservation.swap_planner import Hold, gained, in_force, is_anothers, with_end
from controllers.ip_reservation.swap_reporter import SwapReporter
from kube.types import Pod
from runtime import threading
from settings import IPReservationSettings

Settings = Callable[[], IPReservationSettings]

REMEMBERED = 10_000
"""Addresses that were taken out of segments, the latest ones."""


@dataclass(frozen=True)
class Arrival:
    """A pod that came up with *cidrs* that are not its alone; *since* is on the monotonic clock."""

    pod: Pod
    cidrs: frozenset[str]
    seen: datetime
    since: float


class Arrivals:
    """Pods to look at, by uid. The methods that observe are change handlers, and cost a look-up for each address."""

    def __init__(
        self,
        enqueue: Callable[[str], None],
        caches: Caches,
        addresses: PodAddresses,
        settings: Settings,
        clock: Clock,
    ) -> None:
        self._enqueue, self._caches, self._addresses = enqueue, caches, addresses
        self._settings, self._clock = settings, clock
        self._lock = threading.Lock()
        self._arrivals: dict[str, Arrival] = {}
        self._taken_out: dict[str, Record] = {}

    def observe_pod(self, old: Pod | None, new: Pod | None) -> None:
        if new is not None and (fresh := gained(old, new)):
            self._look_at(new, fresh)

    def observe_segment(self, old: IPReservation | None, new: IPReservation | None) -> None:
        """Remember what is taken out, unless an operator wants it; late reservations may come after the swap."""
        if old is not None and old.ours:
            by_hand = old.to_be_released.values()
            self._remember(each for each in taken_out(old, new) if each.cidr not in by_hand)
        if new is not None and new.ours:
            before = {*old.keys} if old is not None else set()
            late = {each.cidr for each in new.records if each.late and each.key not in before}
            if late:
                self._look_at_pods_with(late)

    def of(self, uid: str) -> Arrival | None:
        return self._arrivals.get(uid)

    def forget(self, arrival: Arrival) -> None:
        uid = arrival.pod.metadata.uid
        with self._lock:
            if self._arrivals.get(uid) is arrival:
                del self._arrivals[uid]

    def reserved(self, cidr: str) -> Sequence[Record]:
        """As the cache has them; only of pods that are known to have had the address, so that no forged one counts."""
        segments = self._caches.segments.by_index("cidrs", cidr)
        return self._confirmed(each for segment in segments for each in segment.records if each.cidr == cidr)

    def taken_out(self, cidr: str) -> Sequence[Record]:
        """What was in a segment, and was not over when it was taken out."""
        record = self._taken_out.get(cidr)
        return [record] if record else []

    def _confirmed(self, records: Iterable[Record]) -> Sequence[Record]:
        return [
            with_end(each, self._addresses.ended(each))
            for each in records
            if each.ended or self._addresses.has_or_had(each)
        ]

    def _look_at(self, pod: Pod, fresh: frozenset[str]) -> None:
        suspect = frozenset(each for each in fresh if self._is_anothers(each, pod))
        if suspect:
            uid = pod.metadata.uid
            with self._lock:
                self._arrivals[uid] = Arrival(pod, suspect, self._clock.now(), self._clock.monotonic())
            self._enqueue(uid)

    def _is_anothers(self, cidr: str, pod: Pod) -> bool:
        return any(is_anothers(each, pod) for each in (*self.reserved(cidr), *self.taken_out(cidr)))

    def _look_at_pods_with(self, cidrs: set[str]) -> None:
        """The way around: of all pods, since addresses of pods are not indexed, and late reservations are rare."""
        for pod in self._caches.pods.list():
            if not cidrs.isdisjoint(cidrs_of(pod)):
                self._look_at(pod, gained(None, pod) & cidrs)

    def _remember(self, records: Iterable[Record]) -> None:
        """Only what had ended: a record without an end was given back to its pod."""
        settings, now = self._settings(), self._clock.now()
        for record in self._confirmed(records):
            self._taken_out.pop(record.cidr, None)
            if record.ended and not is_over(record, settings, now):
                self._taken_out[record.cidr] = record
        while len(self._taken_out) > REMEMBERED:
            del self._taken_out[next(iter(self._taken_out))]


@dataclass(frozen=True)
class SwapReconciler:
    """Report the swaps of one pod, by its uid."""

    arrivals: Arrivals
    live: LiveReader
    settings: Settings
    reporter: SwapReporter

    def reconcile(self, uid: str) -> None:
        arrival = self.arrivals.of(uid)
        if arrival is None:
            return
        for cidr in sorted(arrival.cidrs):
            self._check(arrival, cidr)
        self.arrivals.forget(arrival)

    def _check(self, arrival: Arrival, cidr: str) -> None:
        """A reservation that is there after the pod came up was there before: the cache may have one that is not."""
        pod, settings = arrival.pod, self.settings()
        reserved = in_force(self.arrivals.reserved(cidr), pod, settings, arrival.seen)
        early = in_force(self.arrivals.taken_out(cidr), pod, settings, arrival.seen)
        if reserved and reserved.key in self.live.reserved_since(arrival.since):
            self.reporter.swapped(pod, reserved, Hold.RESERVED)
        elif early:
            self.reporter.swapped(pod, early, Hold.RELEASED_EARLY)
