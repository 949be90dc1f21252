"""Calls to the API server: reads where a lagging cache could lose an address, and loops of calls that may hang."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import TypeVar

import msgspec
import structlog

from api.ip_reservation import OWNERS
from calico.reservations import Reservations
from calico.segment import Record
from controllers.controller import Clock
from kube.client import Client
from kube.errors import Backoff, Conflict, Forbidden, KubeError, NotFound
from kube.resources import PODS, Resource
from kube.types import OwnerReference, Pod
from runtime import threading

OWNER_KINDS = {
    (api_version, kind): Resource(group, version, f"{kind.lower()}s")
    for api_version, kind in OWNERS
    for group, version in [api_version.split("/")]
}
REMEMBERED_OWNERS = 10_000
LOOK_UPS = 2.0
"""Seconds of one pass for reads of pods, for each question about them; a record that is not reached stays as it is."""
PAUSES = Backoff(base=0.1, cap=15.0)
"""Failures are retried soon: addresses wait for it."""

T = TypeVar("T")
IsOver = Callable[[], bool]
"""Whether the leader stops; LeadershipLost when another one may lead."""

log = structlog.get_logger(__name__)


class RoundRobin:
    """The calls of one loop, over all passes: *seconds* for each pass, and none once the leader's time is over.

    What a pass has no time for comes first in the next one.
    """

    def __init__(self, clock: Clock, seconds: float, is_over: IsOver) -> None:
        self._clock, self._seconds, self._is_over = clock, seconds, is_over
        self._number = count(1)
        self._reached: dict[str, int] = {}

    def of(self, items: Mapping[str, T]) -> Iterator[tuple[T, float]]:
        """The *items*, by name, with the seconds that are left: first what was not reached for longest."""
        self._reached = {name: number for name, number in self._reached.items() if name in items}
        end = self._clock.monotonic() + self._seconds
        for name in sorted(items, key=lambda name: self._reached.get(name, 0)):
            left = end - self._clock.monotonic()
            if left <= 0 or self._is_over():
                return
            self._reached[name] = next(self._number)
            yield items[name], left


class LiveReader:
    """Reads from the API server itself; remembers deleted owners, as none comes back under its uid.

    One look at an owner that is there serves all of its pods that began to go before it. Passes that read, or write, go
    by its *clock*, and end when *is_over*.
    """

    def __init__(
        self,
        client: Client,
        reservations: Reservations,
        clock: Clock,
        is_over: IsOver = lambda: False,
    ) -> None:
        self._client, self._reservations = client, reservations
        self.clock, self.is_over = clock, is_over
        self._owners: dict[tuple[str, OwnerReference], float] = {}
        """When each was last there; inf for one that is deleted. Any pod can name any uid, so by all that is asked."""
        self._listed: tuple[float, frozenset[str]] = (-math.inf, frozenset())
        self._listing = threading.Lock()

    def pod_of(self, record: Record, timeout: float) -> Pod | None:
        """The pod of its name. KubeError."""
        return self._client.find(PODS, record.pod, record.namespace, type=Pod, timeout=timeout)

    def reserved_since(self, moment: float) -> frozenset[str]:
        """The keys of all records, listed after *moment*; one LIST serves all who began to wait before it."""
        with self._listing:
            listed_at, keys = self._listed
            if listed_at <= moment:
                listed_at = self.clock.monotonic()
                keys = frozenset(key for segment in self._reservations.list() for key in segment.keys)
                self._listed = (listed_at, keys)
        return keys

    def is_owner_deleted(self, namespace: str, owner: OwnerReference, since: float) -> bool:
        """After *since*. False for kinds that are unknown or that we may not read: then nothing is skipped."""
        named = namespace, owner
        there_at = self._owners.get(named, -math.inf)
        if there_at < since:
            there_at = self.clock.monotonic()
            if self._is_deleted(*named):
                there_at = math.inf
            self._owners.pop(named, None)
            self._owners[named] = there_at
            if len(self._owners) > REMEMBERED_OWNERS:
                self._owners.pop(next(iter(self._owners)), None)  # another worker may be faster
        return there_at == math.inf

    def _is_deleted(self, namespace: str, owner: OwnerReference) -> bool:
        resource = OWNER_KINDS.get((owner.api_version, owner.kind))
        if resource is None:
            return False
        try:
            # Any object decodes as the metadata of a pod; nothing else is looked at.
            found = self._client.find(resource, owner.name, namespace, type=Pod)
        except Forbidden:
            return False
        return found is None or found.metadata.uid != owner.uid or found.terminating


class LookUps:
    """One question about the pods of records, by the API server's word: *is_so* gets the pod of the name, if any."""

    def __init__(self, live: LiveReader, is_so: Callable[[Record, Pod | None], bool]) -> None:
        self._live, self._is_so = live, is_so
        self._turns = RoundRobin(live.clock, LOOK_UPS, live.is_over)

    def certain(self, records: Iterable[Record]) -> frozenset[str]:
        """The keys of those of which it is so: of none that cannot be read, or is not reached in this pass."""
        asked = {record.key: record for record in records}
        return frozenset(
            record.key for record, left in self._turns.of(asked) if self._is_certain(record, left)
        )

    def _is_certain(self, record: Record, timeout: float) -> bool:
        try:
            return self._is_so(record, self._live.pod_of(record, timeout))
        except KubeError as error:
            log.warning("pod not read", namespace=record.namespace, name=record.pod, error=str(error))
            return False


def annotate(client: Client, pod: Pod, changes: Mapping[str, str | None]) -> bool:
    """Whether *pod* was as it was read: else what has changed is on its way here, and enqueues the pod again."""
    at = pod.metadata
    # This version is of no other pod: a uid needs no check, and would be answered as an invalid change of it.
    patch = {"metadata": {"resourceVersion": at.resource_version, "annotations": changes}}
    try:
        client.patch(PODS, at.name, patch, at.namespace, type=msgspec.Raw)
    except (Conflict, NotFound):
        return False
    return True
