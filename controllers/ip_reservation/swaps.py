"""Watch the promise: report pods that come up with an address that is kept for the clients of another pod."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from api.ip_reservation import cidrs_of
from api.same_address import is_kept
from calico.segment import NO_KEYS, IPReservation, Record
from controllers.controller import Controller, Watch
from controllers.ip_reservation.caches import Caches, addresses_of
from controllers.ip_reservation.calls import PAUSES, LiveReader
from controllers.ip_reservation.confirmations import PodAddresses
from controllers.ip_reservation.late_reservations import taken_out
from controllers.ip_reservation.release_planner import is_over
from controllers.ip_reservation.reporter import Reporter
from kube.types import Pod
from runtime import threading
from settings import IPReservationSettings

REMEMBERED = 10_000
"""Addresses that were taken out of segments, the latest ones."""


def gained(old: Pod | None, new: Pod | None) -> frozenset[str]:
    """The addresses, as CIDRs, with which a pod comes up."""
    return (addresses_of(new) if new else frozenset()) - frozenset(cidrs_of(old) if old else ())


def is_anothers(record: Record, pod: Pod) -> bool:
    """Not of the pod itself, nor of one that it replaces under the same name: its clients mean it."""
    at = pod.metadata
    same_name = (record.namespace, record.pod) == (at.namespace, at.name)
    return bool(record.uid) and record.uid != at.uid and not same_name


def in_force(
    records: Iterable[Record], pod: Pod, settings: IPReservationSettings, now: datetime
) -> Record | None:
    """The first that is of another pod and not over."""
    others = (record for record in records if is_anothers(record, pod))
    return next((record for record in others if not is_over(record, settings, now)), None)


@dataclass(frozen=True)
class Arrival:
    """A pod that came up with *cidrs* that are not its alone; *since* is on the monotonic clock."""

    pod: Pod
    cidrs: frozenset[str]
    seen: datetime
    since: float


@dataclass
class SwapReconciler:
    """Report the swaps of one pod, by its uid.

    Remembers the pods to look at, and what was taken out of segments. A change costs a look-up for each address.
    """

    caches: Caches
    live: LiveReader
    addresses: PodAddresses
    settings: Callable[[], IPReservationSettings]
    reporter: Reporter

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._arrivals: dict[str, Arrival] = {}
        self._taken_out: dict[str, Record] = {}
        self._by_hand: set[str] = set()
        """Keys of records that an operator releases in one segment, while another one still has a copy."""

    def controller(self) -> Controller:
        pods, segments = self.caches.pods, self.caches.segments
        watches = Watch(segments, self.observe_segment), Watch(pods, self.observe_pod)
        return Controller("ip_reservation_swaps", self.reconcile, *watches, rate=PAUSES)

    def observe_pod(self, old: Pod | None, new: Pod | None) -> Iterable[str]:
        return self._look_at(new, gained(old, new)) if new else ()

    def observe_segment(self, old: IPReservation | None, new: IPReservation | None) -> Iterable[str]:
        """Remember what is taken out, unless an operator wants it; late reservations may come after the swap."""
        if old is not None and old.ours:
            named, taken = old.to_be_released.values(), taken_out(old, new)
            by_hand = {each.key for each in taken if each.cidr in named or each.key in self._by_hand}
            for record in taken:
                if record.key in by_hand:  # also of another segment, which it was moved from
                    self._taken_out.pop(record.cidr, None)
            self._by_hand |= by_hand
            self._by_hand -= {record.key for record in taken if not self.caches.is_reserved(record)}
            self._remember(record for record in taken if record.key not in by_hand)
        if new is None or not new.ours:
            return ()
        before = old.keys if old else NO_KEYS
        late = {record.cidr for record in new.records if record.late and record.key not in before}
        pods = {pod.metadata.uid: pod for cidr in late for pod in self.caches.pods_at(cidr)}
        return [uid for pod in pods.values() for uid in self._look_at(pod, addresses_of(pod) & late)]

    def reconcile(self, uid: str) -> None:
        if (arrival := self._arrivals.get(uid)) is None:
            return
        for cidr in sorted(arrival.cidrs):
            self._check(arrival, cidr)
        with self._lock:
            if self._arrivals.get(uid) is arrival:
                del self._arrivals[uid]

    def _check(self, arrival: Arrival, cidr: str) -> None:
        """A reservation that is there after the pod came up was there before: the cache may have one that is not."""
        pod, settings = arrival.pod, self.settings()
        reserved = in_force(self.reserved(cidr), pod, settings, arrival.seen)
        early = in_force(self.taken_out(cidr), pod, settings, arrival.seen)
        if reserved and reserved.key in self.live.reserved_since(arrival.since):
            self.reporter.swapped(pod, reserved, "reserved")
        elif early:
            self.reporter.swapped(pod, early, "released-early")

    def reserved(self, cidr: str) -> Sequence[Record]:
        """As the cache has them; only of pods that are known to have had the address, so that no forged one counts."""
        segments = self.caches.segments.by_index("cidrs", cidr)
        records = (record for segment in segments for record in segment.records)
        return self._confirmed(record for record in records if record.cidr == cidr)

    def taken_out(self, cidr: str) -> Sequence[Record]:
        """What was in a segment, and was not over when it was taken out."""
        record = self._taken_out.get(cidr)
        return [record] if record else []

    def _confirmed(self, records: Iterable[Record]) -> Sequence[Record]:
        return [
            record if record.ended else replace(record, ended=self.addresses.ended(record))
            for record in records
            if record.ended or self.addresses.has_or_had(record)
        ]

    def _is_kept(self, record: Record) -> bool:
        """By the pod to which it was promised."""
        return any(is_kept(record, pod) for pod in self.caches.successors_of(record))

    def _look_at(self, pod: Pod, fresh: frozenset[str]) -> Sequence[str]:
        known = {cidr: (*self.reserved(cidr), *self.taken_out(cidr)) for cidr in fresh}
        suspect = [cidr for cidr, held in known.items() if any(is_anothers(record, pod) for record in held)]
        if not suspect:
            return ()
        with self._lock:
            arrival = Arrival(pod, frozenset(suspect), self.live.clock.now(), self.live.clock.monotonic())
            self._arrivals[pod.metadata.uid] = arrival
        return (pod.metadata.uid,)

    def _remember(self, records: Iterable[Record]) -> None:
        """Only what had ended, and was to stay: a record without an end was given back to its pod."""
        settings, now = self.settings(), self.live.clock.now()
        for record in self._confirmed(records):
            self._taken_out.pop(record.cidr, None)
            is_needless = self.caches.claims.is_excused(record.uid) or self._is_kept(record)
            if record.ended and not (is_needless or is_over(record, settings, now)):
                self._taken_out[record.cidr] = record
        while len(self._taken_out) > REMEMBERED:
            del self._taken_out[next(iter(self._taken_out))]
