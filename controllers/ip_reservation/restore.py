"""Reserve again what another hand has taken out of a segment, or deleted with it, while it is still to be held.

The leader knows what each segment held. What it took out itself stays out, and so does what its pod's later
reservation has replaced, what is held in another segment, and what would be released by age anyway. An operator
releases an address by the annotation ``drawbridge.io/release`` on its segment.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime

import structlog
from prometheus_client import Counter

from calico.ledger import Ledger
from calico.reservations import Reservations
from calico.segment import IPReservation, Record
from controllers.ip_reservation.held import Held, held_by
from controllers.ip_reservation.release import is_over
from controllers.workqueue import WorkQueue
from kube.event_recorder import EventRecorder, Regarding
from kube.informer import Informer
from settings import IPReservationSettings

RESTORED = Counter(
    "drawbridge_restored_reservations",
    "Addresses reserved again that another hand had taken out of a segment.",
)
DEADLINE = 8.0
"""Seconds for one write; what it leaves undone is tried again."""
LATEST_SIGHT = 300.0
"""Seconds within which the watch shows what the leader has released."""

log = structlog.get_logger(__name__)


def taken_out(old: IPReservation, new: IPReservation | None) -> Sequence[Record]:
    """The records of *old*, each of a pod, whose addresses *new* does not hold for any pod."""
    kept = {record.cidr for record in new.records if record.uid} if new else set()
    return [record for record in old.records if record.uid and record.cidr not in kept]


class OwnReleases:
    """What the leader takes out of segments itself, remembered until the watch must have shown it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._noted: dict[tuple[str, Held], float] = {}

    def note(self, segment: IPReservation, records: Iterable[Record]) -> None:
        """Called before the write: the watch may show it before its answer is here."""
        name, now = segment.metadata.name, self._clock()
        with self._lock:
            fresh = {key: at for key, at in self._noted.items() if now - at < LATEST_SIGHT}
            self._noted = fresh | {(name, held_by(record)): now for record in records}

    def __contains__(self, key: tuple[str, Held]) -> bool:
        with self._lock:
            return key in self._noted


class Restore:
    """Keyed by a segment's name; :meth:`observe` is the segments' change handler."""

    def __init__(
        self,
        queue: WorkQueue,
        *,
        segments: Informer[IPReservation],
        reservations: Reservations,
        ledger: Ledger,
        own: OwnReleases,
        settings: Callable[[], IPReservationSettings],
        recorder: EventRecorder,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queue, self._segments, self._reservations = queue, segments, reservations
        self._ledger, self._own, self._settings = ledger, own, settings
        self._recorder, self._now, self._clock = recorder, now, clock
        self._changing = threading.Lock()
        self._taken: dict[str, dict[Held, Record]] = {}

    def observe(self, old: IPReservation | None, new: IPReservation | None) -> None:
        if old is None or not old.ours:
            return
        name = old.metadata.name
        taken = {held_by(record): record for record in taken_out(old, new)}
        by_others = {held: record for held, record in taken.items() if (name, held) not in self._own}
        if by_others:
            with self._changing:
                self._taken.setdefault(name, {}).update(by_others)
            self._queue.add(name)

    def reconcile(self, name: str) -> None:
        with self._changing:
            taken = dict(self._taken.get(name, {}))
        missing = self._missing(taken)
        if missing:
            held_in = self._ledger.reserve(missing, self._clock() + DEADLINE)
            RESTORED.inc(len(missing))
            self._report(name, missing, held_in)
        self._forget(name, taken)

    def _missing(self, taken: Mapping[Held, Record]) -> Sequence[Record]:
        settings, now = self._settings(), self._now()
        return [
            record
            for held, record in taken.items()
            if not self._segments.by_index("held", held) and not is_over(record, settings, now)
        ]

    def _forget(self, name: str, done: Mapping[Held, Record]) -> None:
        with self._changing:
            left = {held: each for held, each in self._taken.get(name, {}).items() if held not in done}
            if left:
                self._taken[name] = left
                self._queue.add(name)
            else:
                self._taken.pop(name, None)

    def _report(self, name: str, restored: Sequence[Record], segment: IPReservation) -> None:
        log.warning("addresses reserved again", segment=name, addresses=len(restored))
        self._recorder.event(
            Regarding.of(segment, self._reservations.resource(), "IPReservation"),
            "IPReservationRestored",
            f"Addresses were taken out of IPReservation {name} by another hand, and are reserved again: their pods"
            " terminate, or their time is not over. To release one, annotate its IPReservation"
            " drawbridge.io/release=ADDRESS",
            type="Warning",
        )
