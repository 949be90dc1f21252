"""What one pass decides on: its caches, and reads from the API server where a lagging cache could lose an address."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from api.same_address import is_kept, is_waited_for
from calico.pools import Pool
from calico.segment import NO_KEYS, IPReservation, Keys, Record
from controllers.ip_reservation.caches import Caches
from controllers.ip_reservation.calls import LiveReader, LookUps
from controllers.ip_reservation.confirmations import Confirmations, PodAddresses
from controllers.ip_reservation.pools import STALE
from controllers.ip_reservation.release_planner import (
    Admission,
    Life,
    Pods,
    admission_of,
    by_identity,
    has_left,
    is_small,
    life_of,
    may_be_given_back,
    merged,
)
from kube.types import Pod
from settings import IPReservationSettings

QUIET = 5.0
"""Seconds without a new segment in which small ones are worth compacting: no storm goes on."""

ReadPools = Callable[[Sequence[IPReservation]], Sequence[Pool] | None]
"""Of all reservations."""


@dataclass(frozen=True)
class Snapshot:
    """All segments, *ours* to decide about, and what is known of their pods; *quiet*: none is new.

    Of *settled* ones nothing is to be decided. There are no *pools* while they limit nothing, or are not known.
    """

    everything: Sequence[IPReservation]
    ours: Sequence[IPReservation]
    pods: Pods
    quiet: bool
    pools: Sequence[Pool]
    settled: Sequence[IPReservation]


class SnapshotReader:
    """Remembers since when a pod runs on although its deletion was admitted, or without being relied on, when it was
    first seen ended, and when a segment was new."""

    def __init__(
        self,
        caches: Caches,
        live: LiveReader,
        addresses: PodAddresses,
        pools: ReadPools = lambda _: None,
    ) -> None:
        self.caches, self.live, self._addresses, self._clock = caches, live, addresses, live.clock
        self._pools_of = pools
        self._confirmations = Confirmations(caches.pods, addresses, live)
        self._running = LookUps(live, self._runs)
        self._unpromised = LookUps(live, lambda record, pod: not (pod and is_waited_for(record, pod)))
        self._first_seen: dict[Admission, float] = {}
        self._ends: Mapping[str, datetime] = {}
        self._names: set[str] = set()
        self._grew_at = -math.inf

    def read(self, settings: IPReservationSettings) -> Snapshot:
        caches, claims = self.caches, self.caches.claims
        everything = caches.segments.list()
        pools, relied_on = self._pools_of(everything) or (), claims.relied_on()
        owner = claims.owner.uid if claims.owner else ""
        all_ours = [segment for segment in everything if segment.ours]
        unassigned = NO_KEYS.union(*(pool.ours for pool in pools))
        settled = settled_of(all_ours, owner, relied_on, unassigned)
        names = {segment.metadata.name for segment in settled}
        ours = [segment for segment in all_ours if segment.metadata.name not in names]
        unconfirmed, forged = self._confirmations.read(ours)
        records = [merged(copies) for copies in by_identity(ours).values()]
        lives = {record.uid: life_of(caches.pod(record.uid)) for record in records}
        promised = records if settings.same_address.enabled else ()
        successors = [(record, pod) for record in promised for pod in caches.successors_of(record)]
        pods = Pods(
            lives,
            unconfirmed=unconfirmed,
            forged=forged,
            waiting=frozenset(record.key for record, pod in successors if is_waited_for(record, pod)),
            kept=frozenset(record.key for record, pod in successors if is_kept(record, pod)),
            relied_on=relied_on,
            owner=owner,
            left=self._left(records, lives, unassigned),
            excused=claims.decided(stays=False),
            finished=claims.decided(stays=True),
        )
        pods = replace(pods, waits=self._waits(records, pods), ends=self._noted_ends(records, pods))
        pods = replace(pods, lives={**lives, **self._doubted(records, pods, settings)})
        limits = pools if settings.pools.enabled else ()
        return Snapshot(everything, ours, pods, self._is_quiet(all_ours), limits, settled)

    def waited_for(self, records: Iterable[Record]) -> Keys:
        """The keys of *records* that pods wait for, by the API server, and of those not asked about in time."""
        asked = {record.key: record for record in records}
        return frozenset(asked) - self._unpromised.certain(asked.values())

    def _runs(self, record: Record, pod: Pod | None) -> bool:
        """Whether *pod*, which has its name now, is the one of its uid, and stays, and its deletion is reviewed."""
        stays = pod and pod.metadata.uid == record.uid and life_of(pod) is Life.RUNNING
        return bool(pod and stays and not self.caches.claims.has_mark_in_force(pod))

    def _is_quiet(self, ours: Sequence[IPReservation]) -> bool:
        names, now = {segment.metadata.name for segment in ours}, self._clock.monotonic()
        if names - self._names:
            self._grew_at = now
        self._names = names
        return now - self._grew_at >= QUIET

    def _doubted(
        self, records: Sequence[Record], pods: Pods, settings: IPReservationSettings
    ) -> Mapping[str, Life]:
        """Giving back is the one decision for which the cache is not good enough: by uid, the lives of those pods."""
        doubted = [record for record in records if may_be_given_back(record, pods, settings)]
        running = self._running.certain(doubted)
        return {record.uid: Life.RUNNING if record.key in running else Life.TERMINATING for record in doubted}

    def _left(self, records: Sequence[Record], lives: Mapping[str, Life], unassigned: Keys) -> Keys:
        """A new address may not be in the copy of Calico's blocks yet, so it is not looked for there.

        What was released once is not relied on again, also when its reservation is over. What a pod has left needs no
        blocks to be known.
        """
        claims, known_since = self.caches.claims, self._clock.now() - timedelta(seconds=STALE)
        claims.released = frozenset(key for key in claims.released if self.caches.lives_with(key)).union(
            record.key
            for record in records
            if record.cidr in unassigned and lives[record.uid] is Life.RUNNING and record.at < known_since
        )
        return claims.released.union(
            record.key for record in records if (pod := self.caches.pod(record.uid)) and has_left(record, pod)
        )

    def _noted_ends(self, records: Sequence[Record], pods: Pods) -> Mapping[str, datetime]:
        """When pods were first seen ended, by the informer or by an earlier run, whatever became of the write."""
        now, ended = self._clock.now(), [record for record in records if pods.life_of(record) is Life.GONE]
        seen = {record.key: self._ends.get(record.key) or self._addresses.ended(record) for record in ended}
        self._ends = {key: at or now for key, at in seen.items()}
        return {key: at for key, at in seen.items() if at}

    def _waits(self, records: Sequence[Record], pods: Pods) -> Mapping[Admission, float]:
        now = self._clock.monotonic()
        admissions = {
            admission_of(record)
            for record in records
            if pods.life_of(record) is Life.RUNNING and record.key not in pods.relied_on
        }
        self._first_seen = {admission: self._first_seen.get(admission, now) for admission in admissions}
        return {admission: now - since for admission, since in self._first_seen.items()}


def settled_of(
    ours: Sequence[IPReservation], owner: str, relied_on: Keys, unassigned: Keys
) -> Sequence[IPReservation]:
    """The large segments of pods that live: what they have is relied on, assigned, and in no other segment.

    So a pass costs what has changed, not what stands.
    """
    found = [
        segment
        for segment in ours
        if segment.is_owned_by(owner)
        and segment.keys <= relied_on
        and segment.cidrs.isdisjoint(unassigned)
        and not (is_small(segment) or segment.malformed or segment.to_be_released)
        and not any(record.ended for record in segment.records)
    ]
    times = Counter(key for segment in ours for key in segment.keys) if found else {}
    return [segment for segment in found if all(times[key] == 1 for key in segment.keys)]
