"""The webhooks of ip_reservation, and what their reviews read where many ask at once."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

from api.same_address import CalicoIPAM
from api.standing import epoch_in
from calico.ledger import Ledger
from calico.pools import POOLS, IPPool, ipam_configuration, located
from calico.reservations import Reservations, left_until
from kube.client import Client
from kube.errors import Unreachable
from kube.resources import NAMESPACES, PODS, VALIDATING_WEBHOOKS
from kube.types import Namespace, Pod
from kube.waiting import acquired
from runtime import threading, time
from settings import IPReservationSettings
from webhook.admission import Webhook
from webhook.ip_reservation.same_address_webhook import SameAddressWebhook
from webhook.ip_reservation.webhook import IPReservationWebhook
from webhook.replica import Replica

NAMESPACE_SECONDS = 5.0
"""For how long a namespace is cached: a storm costs one read of its namespace."""
READS = 64
"""Concurrent reads of pods: more would open connections beyond the pool and crowd out the writes."""
LEAST = 0.1
"""Seconds for a last attempt."""
MOST = 16
"""Addresses of pods that were not read, which one server reserves in WINDOW."""
WINDOW = 90.0
"""Seconds in which the leader drops a forged record: a bookmark of its watch may take one minute."""

CONFIG_SECONDS = 30.0
"""For how long Calico's configuration is cached: it hardly ever changes."""
EPOCH_SECONDS = 1.0
"""For how long the epoch is cached: about as long as API servers cache the match condition that has it."""

T = TypeVar("T")
Read = Callable[[float], T]
"""Takes the seconds that it may last; raises KubeError."""


class Shared(Generic[T]):
    """One read at a time; a value serves all who asked before its read began, or *max_age* seconds after that.

    When a read fails, the next caller reads.
    """

    def __init__(
        self,
        read: Read[T],
        *,
        max_age: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        late: str = "another read took too long",
    ) -> None:
        self._read, self._max_age, self._clock, self._late = read, max_age, clock, late
        self._turn = threading.Lock()
        self._known: list[T] = []
        self._began = -math.inf

    @property
    def is_old(self) -> bool:
        """Whether its value serves none any more."""
        return not self._turn.locked() and self._began + self._max_age <= self._clock()

    def value(self, deadline: float) -> T:
        """Unreachable, or what the read raises, when there is none by *deadline*."""
        asked = self._clock()
        if not acquired(self._turn, max(LEAST, deadline - asked)):
            raise Unreachable(self._late)
        try:
            if self._began + self._max_age <= asked:
                began, self._known, self._began = self._clock(), [], -math.inf
                self._known = [self._read(max(LEAST, deadline - began))]
                self._began = began
            return self._known[0]
        finally:
            self._turn.release()


class Cluster:
    """A pod that is being evicted, and the annotations of its namespace."""

    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._clock = client, clock
        self._namespaces: dict[str, Shared[Namespace]] = {}
        self._lock = threading.Lock()
        self._reads = threading.BoundedSemaphore(READS)

    def pod(self, namespace: str, name: str, *, deadline: float) -> Pod:
        if not acquired(self._reads, self._left(deadline)):
            raise Unreachable(f"pod {namespace}/{name} could not be read within the deadline")
        try:
            return self._client.get(PODS, name, namespace, type=Pod, timeout=self._left(deadline))
        finally:
            self._reads.release()

    def namespace(self, name: str, *, deadline: float) -> Namespace:
        def read(timeout: float) -> Namespace:
            return self._client.get(NAMESPACES, name, type=Namespace, timeout=timeout)

        with self._lock:
            if (shared := self._namespaces.get(name)) is None:
                late = f"namespace {name} could not be read within the deadline"
                shared = Shared(read, max_age=NAMESPACE_SECONDS, clock=self._clock, late=late)
                # Only namespaces of the last seconds are kept, which bounds their number.
                kept = {other: each for other, each in self._namespaces.items() if not each.is_old}
                self._namespaces = kept | {name: shared}
        return shared.value(deadline)

    def _left(self, deadline: float) -> float:
        return max(LEAST, deadline - self._clock())


def calico_ipam(client: Client, api_version: str, timeout: float) -> CalicoIPAM:
    """Without pools where Calico has none. *timeout*, in seconds, is for all calls together. KubeError."""
    end = time.monotonic() + timeout
    configuration = ipam_configuration(client, api_version, timeout=timeout)
    resource = located(client, POOLS, api_version, timeout=left_until(end))
    pools = client.list(resource, type=IPPool, timeout=left_until(end)).items if resource else ()
    return CalicoIPAM(configuration, pools)


def epoch_of_configuration(client: Client, name: str, timeout: float) -> str | None:
    """None without the configuration. KubeError."""
    found = client.find(VALIDATING_WEBHOOKS, name, timeout=timeout)
    return epoch_in(found) if found else None


class UnreadPods:
    """Bounds what a client that is not authenticated can reserve: its review names pods that may not exist.

    To read the pod of each deletion would make all of them slower. So a few addresses are reserved as the review has
    them; the leader drops those of pods that never existed, in about a minute.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._times: deque[float] = deque()

    def admits(self, addresses: int) -> bool:
        """Whether so many more may be reserved for pods that were not read; they count then."""
        now = self._clock()
        with self._lock:
            while self._times and now - self._times[0] >= WINDOW:
                self._times.popleft()
            if len(self._times) + addresses > MOST:
                return False
            self._times.extend([now] * addresses)
            return True


def webhooks(replica: Replica) -> Sequence[Webhook]:
    def settings() -> IPReservationSettings:
        return replica.settings().ip_reservation

    api_version = settings().calico_api_version
    reservations = Reservations(replica.client, api_version)
    unread = UnreadPods()

    def believes(addresses: int) -> bool:
        """Only API servers can send reviews, or it is one of a few."""
        return bool(replica.settings().webhook.client_ca) or unread.admits(addresses)

    name = replica.settings().certs.configuration_name
    condition = Shared(partial(epoch_of_configuration, replica.client, name), max_age=EPOCH_SECONDS)

    def epoch(deadline: float) -> str | None:
        return condition.value(deadline) if settings().standing.enabled else None

    ledger, cluster = Ledger(reservations, replica.name), Cluster(replica.client)
    segments = Shared(lambda timeout: reservations.list(timeout=timeout))
    of_calico = Shared(partial(calico_ipam, replica.client, api_version), max_age=CONFIG_SECONDS)
    return [
        IPReservationWebhook(cluster, ledger, settings, replica.now, believes, epoch),
        SameAddressWebhook(cluster, segments.value, of_calico.value, settings, replica.now),
    ]
