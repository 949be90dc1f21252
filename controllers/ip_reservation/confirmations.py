"""Confirm that the pods of records exist or existed: any client that reaches a webhook server can ask for a record.

A true record is durable before the deletion of its pod is admitted, so its pod exists when it is written. The leader's
informer has or had that pod as soon as its version is the one of the segment in which the record was first seen,
unless the pod was gone before the informer's last LIST. Records that were there at that LIST are therefore presumed
true. Of all others, one whose pod the informer never had is unconfirmed, and forged once the informer's version has
passed it. No clock plays a part.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from api.ip_reservation import cidrs_of
from calico.segment import IPReservation, Record, key_of
from controllers.controller import Clock
from controllers.ip_reservation.calls import LiveReader, LookUps
from kube.informer import Informer
from kube.types import Pod, version_of

REMEMBERED = 600.0
"""Seconds for which addresses that a pod had are remembered: longer than the leader works with silent informers."""
MOST_REMEMBERED = 50_000
TAKEN_OUT = 60.0
"""Seconds in which a record that another client took out is restored."""


@dataclass(frozen=True)
class FormerAddress:
    """An address that a pod had until *since*, by the monotonic clock; *ended* is when the pod was seen gone."""

    since: float
    ended: datetime | None


class PodAddresses:
    """The addresses that pods have, by uid, and had, by the key of their record.

    :meth:`observe` is the change handler of pods. An informer's version rises after its handlers have run, so what it
    covers is known here, which the informer's copy alone would not warrant.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._present: dict[str, Sequence[str]] = {}
        self._former: dict[str, FormerAddress] = {}
        self.forgotten = 0

    def observe(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        if pod is None:
            return
        uid, after = pod.metadata.uid, cidrs_of(new) if new else ()
        before = {*self._present.get(uid, ()), *(cidrs_of(old) if old else ())}
        left = [key_of(cidr, uid) for cidr in before.difference(after)]
        self._remember(left, self._clock.now() if new is None else None)
        if after:
            self._present[uid] = after
        else:
            self._present.pop(uid, None)

    def has_or_had(self, record: Record) -> bool:
        # In this order: an address is remembered before it is removed.
        return record.cidr in self._present.get(record.uid, ()) or record.key in self._former

    def ended(self, record: Record) -> datetime | None:
        """When its pod was seen gone, as far as that is remembered."""
        former = self._former.get(record.key)
        return former.ended if former else None

    def _remember(self, keys: Iterable[str], ended: datetime | None) -> None:
        now = self._clock.monotonic()
        self._former |= dict.fromkeys(keys, FormerAddress(now, ended))
        while (oldest := next(iter(self._former), None)) is not None:
            is_old = now - self._former[oldest].since > REMEMBERED
            if not is_old and len(self._former) <= MOST_REMEMBERED:
                break
            self.forgotten += not is_old
            del self._former[oldest]


class Confirmations:
    """Remembers which records are confirmed; what is noted as ended has been confirmed by a leader."""

    def __init__(self, pods: Informer[Pod], addresses: PodAddresses, live: LiveReader) -> None:
        self._pods, self._addresses, self._live, self._clock = pods, addresses, live, live.clock
        self._forged = LookUps(live, is_forged)
        self._known: dict[str, float] = {}
        self._written: dict[str, int] = {}
        self._continuity, self._read_at = (-1, -1), -math.inf

    def read(self, segments: Sequence[IPReservation]) -> tuple[frozenset[str], frozenset[str]]:
        """The keys of the unconfirmed records, and of those of them that are forged."""
        version = self._pods.version  # first: all that it covers is known below
        held = not_ended(segments)
        self._presume(record.key for _, record in held)
        unconfirmed: dict[str, Record] = {}
        for _, record in held:
            is_known = record.key in self._known or self._addresses.has_or_had(record)
            if record.uid and not is_known:
                unconfirmed.setdefault(record.key, record)
        self._keep_known({record.key for _, record in held} - unconfirmed.keys())
        self._keep_written((written, record.key) for written, record in held if record.key in unconfirmed)
        passed = [record for key, record in unconfirmed.items() if 0 < self._written[key] <= version]
        return frozenset(unconfirmed), self._forged.certain(passed)

    def _keep_written(self, held: Iterable[tuple[int, str]]) -> None:
        """The version at which each was first seen: it has a higher one when its segment is written or compacted."""
        before, self._written = self._written, {}
        for written, key in held:
            self._written.setdefault(key, before.get(key, written))

    def _presume(self, keys: Iterable[str]) -> None:
        """After a gap in what is known of pods, all records that are there are presumed true."""
        now, continuity = self._clock.monotonic(), (self._pods.lists, self._addresses.forgotten)
        if continuity != self._continuity or now - self._read_at > REMEMBERED / 2:
            self._known |= dict.fromkeys({*self._live.reserved_since(now), *keys}, now)
        self._continuity, self._read_at = continuity, now

    def _keep_known(self, confirmed: Iterable[str]) -> None:
        """What has ended is confirmed by that: it is not known longer than its address is remembered."""
        now = self._clock.monotonic()
        kept = {key: at for key, at in self._known.items() if now - at < TAKEN_OUT}
        self._known = kept | dict.fromkeys(confirmed, now)


def is_forged(record: Record, pod: Pod | None) -> bool:
    """Whether *pod*, which has its name now, is not the one of its uid, or does not have its address."""
    return pod is None or pod.metadata.uid != record.uid or record.cidr not in cidrs_of(pod)


def not_ended(segments: Iterable[IPReservation]) -> Sequence[tuple[int, Record]]:
    """Records that no segment shows as ended, with the versions of their segments, the lowest ones first."""
    held = [(version_of(segment.metadata), record) for segment in segments for record in segment.records]
    ended = {record.key for _, record in held if record.ended}
    left = [(version, record) for version, record in held if not record.ended and record.key not in ended]
    return sorted(left, key=lambda found: found[0])
