"""The leader's round over all segments: note which pods ended, release what is due, report what is held."""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

import structlog
from prometheus_client import Counter, Gauge

from calico.reservations import Reservations
from calico.segment import RELEASE, IPReservation, Record
from controllers.ip_reservation.held import held_by
from controllers.ip_reservation.release import (
    Asking,
    Cause,
    Change,
    Life,
    Pods,
    asking_of,
    life_of,
    may_be_given_back,
    plan,
)
from controllers.ip_reservation.restore import OwnReleases
from kube.errors import Conflict, KubeError, NotFound
from kube.event_recorder import EventRecorder, Regarding
from kube.informer import Informer
from kube.types import Pod
from settings import IPReservationSettings

HELD = Gauge("ip_reserve_count", "Addresses of gone pods that are held: what ipReserveMaxCount limits.")
HELD_MAX = Gauge("ip_reserve_count_max", "ipReserveMaxCount: how many addresses of gone pods may be held.")
# A gauge that only grows: the original's name has no _total, which a counter would get.
EVICTED = Gauge(
    "ip_reserve_evictions_count", "Addresses released early because more than ipReserveMaxCount were held."
)
RELEASED = Counter("drawbridge_reservations_released", "Addresses released, by cause.", ["cause"])
IN_USE = Gauge("drawbridge_reserved_addresses_in_use", "Addresses reserved that their pods still have.")
SEGMENTS = Gauge("drawbridge_reservation_segments", "IPReservation objects of ours.")
MALFORMED = Gauge("drawbridge_malformed_reservations", "Entries in IPReservations that Calico cannot parse.")

STALE = 150.0
"""Seconds of silence of the pods' watch: two bookmarks have been missed, and a reconnection, too."""

log = structlog.get_logger(__name__)


ReadPod = Callable[[str, str], Pod]
"""Reads a pod, by namespace and name, from the API server itself; raises NotFound."""


class Releaser:
    def __init__(
        self,
        segments: Informer[IPReservation],
        pods: Informer[Pod],
        reservations: Reservations,
        *,
        read_pod: ReadPod,
        settings: Callable[[], IPReservationSettings],
        recorder: EventRecorder,
        own: OwnReleases,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._segments, self._pods, self._reservations = segments, pods, reservations
        self._read_pod, self._settings, self._recorder, self._own = read_pod, settings, recorder, own
        self._now, self._clock = now, clock
        self._first_seen: dict[Asking, float] = {}

    def reconcile(self, _key: str) -> float:
        """One round; none while the copy of the pods may be older than their ends."""
        settings, now = self._settings(), self._now()
        if self._pods.silence > STALE:
            log.warning("nothing is released while the pods cannot be followed", silence=self._pods.silence)
            return settings.ip_release_period
        everything = self._segments.list()
        ours = [segment for segment in everything if segment.ours]
        pods = self._known([record for segment in ours for record in segment.records], settings)
        for change in plan(ours, pods, settings, now):
            self._apply(change)
        self._report(ours, settings)
        self._report_malformed(everything)
        self._report_unknown(ours)
        return settings.ip_release_period

    def _known(self, records: Sequence[Record], settings: IPReservationSettings) -> Pods:
        lives = {record.uid: self._life(record) for record in records}
        pods = Pods(lives, self._waits(records, lives))
        # Giving back is the one decision that a stale cache could turn into a lost address.
        doubted = [record for record in records if may_be_given_back(record, pods, settings)]
        return Pods(lives | {record.uid: self._life_now(record) for record in doubted}, pods.waits)

    def _life(self, record: Record) -> Life:
        return life_of(next(iter(self._pods.by_index("uid", record.uid)), None))

    def _waits(self, records: Sequence[Record], lives: Mapping[str, Life]) -> dict[Asking, float]:
        now = self._clock()
        askings = {asking_of(record) for record in records if lives[record.uid] is Life.RUNNING}
        self._first_seen = {asking: self._first_seen.get(asking, now) for asking in askings}
        return {asking: now - since for asking, since in self._first_seen.items()}

    def _life_now(self, record: Record) -> Life:
        try:
            pod = self._read_pod(record.namespace, record.pod)
        except NotFound:
            return Life.GONE
        except KubeError as error:
            log.warning("a pod was not read", pod=f"{record.namespace}/{record.pod}", error=str(error))
            return Life.TERMINATING  # for all we know: its address stays reserved
        return life_of(pod) if pod.metadata.uid == record.uid else Life.GONE

    def _apply(self, change: Change) -> None:
        kept = {held_by(record) for record in change.kept}
        self._own.note(change.segment, (each for each in change.segment.records if held_by(each) not in kept))
        try:
            if change.delete:
                self._reservations.delete(change.segment)
            else:
                self._reservations.write(change.segment, change.kept, timeout=5.0)
        except (Conflict, NotFound):
            return  # somebody wrote meanwhile: the next round sees it
        except KubeError as error:
            # One segment that cannot be written must not keep the others from being released.
            log.warning("a segment was not written", segment=change.segment.metadata.name, error=str(error))
            return
        self._tell(change.segment, change.released)

    def _tell(self, segment: IPReservation, released: Sequence[tuple[Record, Cause]]) -> None:
        for record, cause in released:
            RELEASED.labels(cause).inc()
            log.info(
                "address released", cidr=record.cidr, cause=cause, pod=f"{record.namespace}/{record.pod}"
            )
            if cause is Cause.GIVEN_BACK:
                self._recorder.event(
                    Regarding.pod(record.namespace, record.pod, record.uid),
                    "IPGivenBack",
                    "The pod lives on, its deletion was refused: its address is no longer reserved",
                )
        if early := Tally(cause for _, cause in released)[Cause.COUNT]:
            EVICTED.inc(early)
            self._recorder.event(
                Regarding.of(segment, self._reservations.resource(), "IPReservation"),
                "IPReleasedEarly",
                "Addresses are released before ipReserveTime because more than ipReserveMaxCount are held",
                type="Warning",
            )

    def _report(self, ours: Sequence[IPReservation], settings: IPReservationSettings) -> None:
        records = [record for segment in ours for record in segment.records]
        held = {record.cidr for record in records if record.ended}
        HELD.set(len(held))
        IN_USE.set(len({record.cidr for record in records} - held))
        HELD_MAX.set(settings.ip_reserve_max_count)
        SEGMENTS.set(len(ours))

    def _report_malformed(self, everything: Sequence[IPReservation]) -> None:
        MALFORMED.set(sum(len(each.malformed) for each in everything))
        for reservation in everything:
            for entry in reservation.malformed:
                self._recorder.event(
                    Regarding.of(reservation, self._reservations.resource(), "IPReservation"),
                    "MalformedReservation",
                    f"Entry {entry!r} is no CIDR: most Calico versions then give no pod an address; remove it",
                    type="Warning",
                )

    def _report_unknown(self, ours: Sequence[IPReservation]) -> None:
        for segment in ours:
            held = {record.cidr for record in segment.records}
            for entry, cidr in segment.to_be_released.items():
                if cidr not in held:
                    self._recorder.event(
                        Regarding.of(segment, self._reservations.resource(), "IPReservation"),
                        "ReleaseNotPossible",
                        f"Annotation {RELEASE} names {entry!r}, which is not in spec.reservedCIDRs of this object:"
                        " correct it, or annotate the object that has the address",
                        type="Warning",
                    )
