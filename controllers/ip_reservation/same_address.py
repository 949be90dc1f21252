"""End the promises of admission: of pods that have the promised addresses, have others, or do not get any."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from api.same_address import IP_ADDRS, SAME_ADDRESS_FROM, Ending, plan_ending, promise_of
from controllers.controller import CLOCK, Clock, Controller, Watch
from controllers.ip_reservation.caches import Caches
from controllers.ip_reservation.calls import annotate
from controllers.ip_reservation.reporter import Reporter
from kube.client import Client
from kube.errors import Backoff, KubeError
from kube.types import Pod, key_of
from settings import IPReservationSettings

WORKERS = 4
"""Each of them waits for one write."""
PAUSES = Backoff(base=0.2, cap=30.0)
# A pod whose sandbox is made once more gets any address: its former one may be another pod's by then.
KEPT, WITHDRAWN = {IP_ADDRS: None}, {IP_ADDRS: None, SAME_ADDRESS_FROM: None}


@dataclass
class SameAddressReconciler:
    """End the promise of one pod, by its key, when that is due.

    Remembers since when each pod, by uid, has had its node, or has been without one, as far as this leader has seen.
    """

    caches: Caches
    client: Client
    settings: Callable[[], IPReservationSettings]
    reporter: Reporter
    clock: Clock = CLOCK

    def __post_init__(self) -> None:
        self._since: dict[str, tuple[bool, float]] = {}

    def controller(self) -> Controller:
        watch, name = Watch(self.caches.pods, self.observe), "ip_reservation_same_address"
        return Controller(name, self.reconcile, watch, workers=WORKERS, rate=PAUSES)

    def observe(self, old: Pod | None, new: Pod | None) -> Iterable[str]:
        if new is None and old is not None:
            self._forget(old)
        return (key_of(new.metadata),) if new and promise_of(new.metadata.annotations) else ()

    def reconcile(self, key: str) -> float | None:
        """Raises KubeError when it is to be tried again."""
        pod, settings = self.caches.pods.get(key), self.settings()
        if pod is None or not settings.same_address.enabled:
            return None
        promise = promise_of(pod.metadata.annotations)
        if promise is None or pod.terminating or pod.finished:
            self._forget(pod)
            return None
        ending = plan_ending(pod, promise, self._waited(pod), settings)
        if not isinstance(ending, Ending):
            return ending
        try:
            if annotate(self.client, pod, KEPT if ending is Ending.KEPT else WITHDRAWN):
                self._forget(pod)
                self.reporter.promise_ended(pod, promise, ending)
        except KubeError as error:
            self.reporter.promise_not_ended(pod, promise, error)
            raise
        return None

    def _waited(self, pod: Pod) -> float:
        """Seconds."""
        uid, has_node, now = pod.metadata.uid, bool(pod.spec.node_name), self.clock.monotonic()
        had_node, since = self._since.get(uid, (has_node, now))
        if had_node != has_node:
            since = now
        self._since[uid] = has_node, since
        return now - since

    def _forget(self, pod: Pod) -> None:
        self._since.pop(pod.metadata.uid, None)
