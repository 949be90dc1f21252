"""What the informers' changes leave to reconcile: pods that go, and records that other clients take out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from api.ip_reservation import kubelet_evicted
from calico.segment import IPReservation, Record
from controllers.clock import Clock
from controllers.ip_reservation.late_planner import Departure, is_departure, with_addresses
from kube.types import Namespace, Pod
from runtime import threading

REMEMBERED = 300.0
"""Seconds within which the watch delivers what the leader has released."""

Enqueue = Callable[[str], None]


class Departures:
    """Pods that go, by uid, each as it was first seen going; :meth:`observe` is the change handler of pods."""

    def __init__(
        self, enqueue: Enqueue, namespace_of: Callable[[str], Namespace | None], clock: Clock
    ) -> None:
        self._enqueue, self._namespace_of, self._clock = enqueue, namespace_of, clock
        self._lock = threading.Lock()
        self._departures: dict[str, Departure] = {}
        self._evicted: set[str] = set()

    def observe(self, old: Pod | None, new: Pod | None) -> None:
        pod, gone = new or old, new is None
        if pod is None or self._namespace_of(pod.metadata.namespace) is None:
            return
        with self._lock:
            if pod.metadata.uid not in self._evicted:
                self._note(with_addresses(pod, old), gone)
            elif gone:
                self._evicted.discard(pod.metadata.uid)

    def of(self, uid: str) -> Departure | None:
        return self._departures.get(uid)

    def waited(self, departure: Departure) -> float:
        return self._clock.monotonic() - departure.since

    def forget(self, uid: str) -> None:
        with self._lock:
            departure = self._departures.pop(uid)
            if kubelet_evicted(departure.pod) and not departure.gone:
                self._evicted.add(uid)

    def _note(self, pod: Pod, gone: bool) -> None:
        """Keep the first state: at its end a pod may have finished, and have no address."""
        uid = pod.metadata.uid
        first = self._departures.get(uid)
        if first is None and is_departure(pod, gone=gone):
            first = Departure(pod, gone, self._clock.now(), self._clock.monotonic())
        if first is not None:
            self._departures[uid] = replace(first, gone=gone)
            self._enqueue(uid)


def taken_out(old: IPReservation, new: IPReservation | None) -> Sequence[Record]:
    """The records of *old*, each of a pod, that *new* does not have."""
    kept = set(new.keys) if new else set()
    return [record for record in old.records if record.uid and record.key not in kept]


class Removals:
    """What other clients took out, by segment; :meth:`observe` is the change handler of segments."""

    def __init__(self, enqueue: Enqueue, clock: Clock) -> None:
        self._enqueue, self._clock = enqueue, clock
        self._lock = threading.Lock()
        self._own: dict[tuple[str, str], float] = {}
        self._taken: dict[str, dict[str, Record]] = {}

    def note_own(self, name: str, records: Iterable[Record]) -> None:
        """Expect that the leader takes *records* out of segment *name*."""
        now = self._clock.monotonic()
        with self._lock:
            fresh = {key: at for key, at in self._own.items() if now - at < REMEMBERED}
            self._own = fresh | {(name, record.key): now for record in records}

    def observe(self, old: IPReservation | None, new: IPReservation | None) -> None:
        if old is None or not old.ours:
            return
        name = old.metadata.name
        with self._lock:
            taken = {each.key: each for each in taken_out(old, new) if (name, each.key) not in self._own}
            if taken:
                self._taken.setdefault(name, {}).update(taken)
        if taken:
            self._enqueue(name)

    def of(self, name: str) -> Mapping[str, Record]:
        with self._lock:
            return dict(self._taken.get(name, {}))

    def forget(self, name: str, done: Iterable[str]) -> None:
        """Forget the keys *done*; the segment is enqueued again for others that came meanwhile."""
        with self._lock:
            left = {key: each for key, each in self._taken.pop(name, {}).items() if key not in done}
            if left:
                self._taken[name] = left
        if left:
            self._enqueue(name)
