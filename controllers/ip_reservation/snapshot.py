"""What the leader decides on: its caches, and reads from the API server where a lagging cache could lose an address."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

import msgspec
import structlog

from api.ip_reservation import (
    NAMESPACE_LABEL,
    NAMESPACE_LABEL_VALUES,
    OWNERS,
    cidrs_of,
)
from api.same_address import predecessor_of
from calico.reservations import Reservations
from calico.segment import IPReservation, Record
from controllers.clock import Clock
from controllers.informers import Informers
from controllers.ip_reservation.confirmations import LOOK_UPS, Confirmations, Doubts, PodAddresses
from controllers.ip_reservation.copies import by_identity, merged
from controllers.ip_reservation.opt_in_planner import followed
from controllers.ip_reservation.pool_usage import Pool
from controllers.ip_reservation.promises import Promises, is_waited_for, promises_of
from controllers.ip_reservation.release_planner import (
    Asking,
    Life,
    Pods,
    asking_of,
    life_of,
    may_be_given_back,
)
from controllers.ip_reservation.trimmed_pods import decode
from controllers.ip_reservation.turns import IsOver, Turns, never
from controllers.ip_reservation.workloads import Workloads, workloads_of
from kube.client import Client
from kube.errors import Forbidden, KubeError, NotFound
from kube.informer import Informer
from kube.resources import NAMESPACES, PODS, Resource, Selection
from kube.types import Namespace, OwnerReference, Pod
from settings import IPReservationSettings

OWNER_KINDS = {
    (api_version, kind): Resource(group, version, f"{kind.lower()}s")
    for api_version, kind in OWNERS
    for group, version in [api_version.split("/")]
}
REMEMBERED_OWNERS = 10_000
QUIET = 5.0
"""Seconds without a new segment in which small ones are worth compacting: no storm goes on."""

T = TypeVar("T")
log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Caches:
    """Segments are indexed by the "keys" and the "cidrs" of their records, pods by "uid" and "predecessor"."""

    segments: Informer[IPReservation]
    namespaces: Informer[Namespace]
    pods: Informer[Pod]
    workloads: Workloads | None = None
    """Where pods follow them."""

    @property
    def informers(self) -> Sequence[Informer[Any]]:
        """All but those of workloads."""
        return self.segments, self.namespaces, self.pods

    def is_reserved(self, record: Record) -> bool:
        return bool(self.segments.by_index("keys", record.key))

    def pod_of(self, record: Record) -> Pod | None:
        return next(iter(self.pods.by_index("uid", record.uid)), None)

    def successors_of(self, record: Record) -> Sequence[Pod]:
        """Pods to which the addresses of its pod were promised."""
        return self.pods.by_index("predecessor", record.uid) if record.uid else ()

    def followed(self, pod: Pod) -> Pod:
        """With the annotation of its workload, which is copied to it a moment later."""
        return followed(pod, self.workloads.choice_for(pod.metadata)) if self.workloads else pod


def caches_of(informers: Informers, reservations: Resource, *, opt_in: bool = False) -> Caches:
    caches = Caches(
        informers.of(reservations, IPReservation, optional=True),
        informers.of(NAMESPACES, Namespace, Selection(label_selector=selected_namespaces())),
        informers.of(PODS, Pod, decode=decode),
        workloads_of(informers) if opt_in else None,
    )
    caches.segments.add_index("keys", lambda segment: segment.keys)
    caches.segments.add_index(
        "cidrs", lambda segment: {each.cidr for each in segment.records if segment.ours}
    )
    caches.pods.add_index("uid", lambda pod: (pod.metadata.uid,))
    caches.pods.add_index("predecessor", lambda pod: {predecessor_of(pod.metadata.annotations)} - {""})
    return caches


def selected_namespaces() -> str:
    """The namespaces that the webhook configuration selects; Drawbridge's own is not one of them."""
    enabled = f"{NAMESPACE_LABEL} in ({','.join(NAMESPACE_LABEL_VALUES)})"
    own = os.environ.get("POD_NAMESPACE")
    return f"{enabled},kubernetes.io/metadata.name notin ({own})" if own else enabled


class LiveReader:
    """Reads from the API server itself; remembers deleted owners, as none comes back under its uid."""

    def __init__(self, client: Client, reservations: Reservations, clock: Clock) -> None:
        self._client, self._reservations, self._clock = client, reservations, clock
        self._deleted_owners: dict[str, None] = {}
        self._listed: tuple[float, frozenset[str]] = (-math.inf, frozenset())

    def life_of(self, record: Record, timeout: float) -> Life:
        """The life of the record's pod; TERMINATING, so that its address stays reserved, when it cannot be read."""

        def life(pod: Pod) -> Life:
            return life_of(pod) if pod.metadata.uid == record.uid else Life.GONE

        return self._judged(record, life, timeout, gone=Life.GONE, unread=Life.TERMINATING)

    def has_pod_of(self, record: Record, timeout: float) -> bool:
        """Whether there is a pod of its uid that has its address; True, so that it stays, when it cannot be read."""

        def has(pod: Pod) -> bool:
            return pod.metadata.uid == record.uid and record.cidr in cidrs_of(pod)

        return self._judged(record, has, timeout, gone=False, unread=True)

    def is_waited_for(self, record: Record, timeout: float) -> bool:
        """Whether a pod without an address was promised its address; True, so that it stays, when that is not known."""

        def is_it(pod: Pod) -> bool:
            return is_waited_for(record, pod)

        return self._judged(record, is_it, timeout, gone=False, unread=True)

    def _judged(self, record: Record, judge: Callable[[Pod], T], timeout: float, *, gone: T, unread: T) -> T:
        """What *judge* says of the pod of its name."""
        try:
            pod = self._client.get(PODS, record.pod, record.namespace, type=Pod, timeout=timeout)
        except NotFound:
            return gone
        except KubeError as error:
            log.warning("pod not read", namespace=record.namespace, name=record.pod, error=str(error))
            return unread
        return judge(pod)

    def reserved_since(self, moment: float) -> frozenset[str]:
        """The keys of all records, listed after *moment*; one LIST serves all who began to wait before it."""
        listed_at, keys = self._listed
        if listed_at <= moment:
            listed_at = self._clock.monotonic()
            keys = frozenset(key for segment in self._reservations.list() for key in segment.keys)
            self._listed = (listed_at, keys)
        return keys

    def is_owner_deleted(self, namespace: str, owner: OwnerReference) -> bool:
        """False for kinds that are unknown or that we may not read: then nothing is skipped."""
        if owner.uid not in self._deleted_owners:
            if not self._is_deleted(namespace, owner):
                return False
            self._deleted_owners[owner.uid] = None
            if len(self._deleted_owners) > REMEMBERED_OWNERS:
                self._deleted_owners.pop(
                    next(iter(self._deleted_owners)), None
                )  # another worker may be faster
        return True

    def _is_deleted(self, namespace: str, owner: OwnerReference) -> bool:
        resource = OWNER_KINDS.get((owner.api_version, owner.kind))
        if resource is None:
            return False
        try:
            # Any object decodes as the metadata of a pod; nothing else is looked at.
            found = self._client.get(resource, owner.name, namespace, type=Pod)
        except NotFound:
            return True
        except Forbidden:
            return False
        return found.metadata.uid != owner.uid or found.terminating


@dataclass(frozen=True)
class Snapshot:
    """All segments, *ours* among them, and what is known of their pods; *quiet*: none is new.

    *pools* is None while they are not known.
    """

    everything: Sequence[IPReservation]
    ours: Sequence[IPReservation]
    pods: Pods
    quiet: bool
    pools: Sequence[Pool] | None = None


ReadPools = Callable[[Sequence[IPReservation]], Sequence[Pool] | None]
"""Of all reservations."""


class SnapshotReader:
    """Remembers since when a pod runs on although its deletion was admitted, when it was first seen ended, and when a
    segment was new."""

    def __init__(
        self,
        caches: Caches,
        live: LiveReader,
        addresses: PodAddresses,
        clock: Clock,
        pools: ReadPools = lambda _: None,
        is_over: IsOver = never,
    ) -> None:
        self._caches, self._live, self._addresses, self._clock = caches, live, addresses, clock
        self._pools_of = pools
        self._confirmations = Confirmations(caches.pods, addresses, live, clock, is_over)
        self._doubted, self._promised = (Turns(clock, LOOK_UPS, is_over) for _ in range(2))
        self._first_seen: dict[Asking, float] = {}
        self._ends: Mapping[str, datetime] = {}
        self._names: set[str] = set()
        self._grew_at = -math.inf

    @property
    def silence(self) -> float:
        """How old the cache of pods may be, in seconds."""
        return self._caches.pods.silence

    def read(self, settings: IPReservationSettings) -> Snapshot:
        everything = self._caches.segments.list()
        ours = [segment for segment in everything if segment.ours]
        doubts = self._confirmations.read(ours)
        records = [merged(copies) for copies in by_identity(ours).values()]
        pods, quiet = self._pods(records, doubts, settings), self._is_quiet(ours)
        return Snapshot(everything, ours, pods, quiet, self._pools_of(everything))

    def waited_for(self, records: Iterable[Record]) -> frozenset[str]:
        """The keys of *records* that pods wait for, by the API server, and of those not asked about in time."""
        asked = {each.key: each for each in records}
        is_waited_for = {
            record.key: self._live.is_waited_for(record, left) for record, left in self._promised.of(asked)
        }
        return frozenset(key for key in asked if is_waited_for.get(key, True))

    def wrote(self, segment: IPReservation) -> None:
        """Decide on *segment* from now on, whenever the watch delivers it."""
        self._caches.segments.wrote(msgspec.Raw(msgspec.json.encode(segment)))

    def _is_quiet(self, ours: Sequence[IPReservation]) -> bool:
        names, now = {segment.metadata.name for segment in ours}, self._clock.monotonic()
        if names - self._names:
            self._grew_at = now
        self._names = names
        return now - self._grew_at >= QUIET

    def _pods(self, records: Sequence[Record], doubts: Doubts, settings: IPReservationSettings) -> Pods:
        lives = {record.uid: life_of(self._caches.pod_of(record)) for record in records}
        ends = self._noted_ends(records, lives)
        pods = Pods(lives, self._waits(records, lives), ends, doubts, self._promises(records, settings))
        # Giving back is the one decision for which the cache is not good enough.
        doubted = {record.uid: record for record in records if may_be_given_back(record, pods, settings)}
        read = {each.uid: self._live.life_of(each, left) for each, left in self._doubted.of(doubted)}
        return replace(pods, lives=lives | dict.fromkeys(doubted, Life.TERMINATING) | read)

    def _promises(self, records: Sequence[Record], settings: IPReservationSettings) -> Promises:
        return promises_of(records if settings.same_address.enabled else (), self._caches.successors_of)

    def _noted_ends(self, records: Sequence[Record], lives: Mapping[str, Life]) -> Mapping[str, datetime]:
        """When pods were first seen ended, by the informer or by an earlier run, whatever became of the write."""
        now, ended = self._clock.now(), [each for each in records if lives[each.uid] is Life.GONE]
        seen = {each.key: self._ends.get(each.key) or self._addresses.ended(each) for each in ended}
        self._ends = {key: at or now for key, at in seen.items()}
        return {key: at for key, at in seen.items() if at}

    def _waits(self, records: Sequence[Record], lives: Mapping[str, Life]) -> dict[Asking, float]:
        now = self._clock.monotonic()
        askings = {asking_of(record) for record in records if lives[record.uid] is Life.RUNNING}
        self._first_seen = {asking: self._first_seen.get(asking, now) for asking in askings}
        return {asking: now - since for asking, since in self._first_seen.items()}
