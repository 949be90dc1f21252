"""End the promises of admission: of pods that have the promised addresses, have others, or do not get any."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from api.same_address import IP_ADDRS, SAME_ADDRESS_FROM, Promise, promise_of
from controllers.clock import CLOCK, Clock
from controllers.ip_reservation.pod_writer import PodWriter
from controllers.ip_reservation.promises import Ending, plan
from controllers.ip_reservation.same_address_reporter import SameAddressReporter
from controllers.ip_reservation.snapshot import Caches
from controllers.manager import Context
from controllers.workqueue import PENDING, WorkQueue
from kube.errors import Backoff, Conflict, KubeError, NotFound
from kube.types import Pod, key_of
from settings import IPReservationSettings

WORKERS = 4
"""Each of them waits for one write."""
PAUSES = Backoff(base=0.2, cap=30.0)
WITHDRAWN = {IP_ADDRS: None, SAME_ADDRESS_FROM: None}
CHANGES: Mapping[Ending, Mapping[str, None]] = {
    # A pod whose sandbox is made once more gets any address: its former one may be another pod's by then.
    Ending.KEPT: {IP_ADDRS: None},
    Ending.OTHER_ADDRESS: WITHDRAWN,
    Ending.DROPPED: WITHDRAWN,
}


class Waits:
    """Since when each pod, by uid, has had its node, or has been without one, as far as this leader has seen."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[str, tuple[bool, float]] = {}

    def seconds(self, pod: Pod) -> float:
        uid, has_node, now = pod.metadata.uid, bool(pod.spec.node_name), self._clock.monotonic()
        had_node, since = self._since.get(uid, (has_node, now))
        if had_node != has_node:
            since = now
        self._since[uid] = has_node, since
        return now - since

    def forget(self, uid: str) -> None:
        self._since.pop(uid, None)


@dataclass(frozen=True)
class SameAddressReconciler:
    """End the promise of one pod, by its key, when that is due."""

    caches: Caches
    settings: Callable[[], IPReservationSettings]
    waits: Waits
    writer: PodWriter
    reporter: SameAddressReporter
    queue: WorkQueue

    def reconcile(self, key: str) -> float | None:
        pod = self.caches.pods.get(key)
        if pod is None or not self.settings().same_address.enabled:
            return None
        promise = promise_of(pod.metadata.annotations)
        if promise is None or pod.terminating or pod.finished:
            self.waits.forget(pod.metadata.uid)
            return None
        step = plan(pod, promise, self.waits.seconds(pod), self.settings())
        return self._end(pod, promise, step) if isinstance(step, Ending) else step

    def _end(self, pod: Pod, promise: Promise, ending: Ending) -> float | None:
        try:
            self.writer.annotate(pod, CHANGES[ending])
        except (Conflict, NotFound):
            return None  # what has changed is on its way here, and enqueues the pod
        except KubeError as error:
            self.reporter.not_ended(pod, promise, error)
            self.queue.retry(key_of(pod.metadata))
            return PENDING
        self.waits.forget(pod.metadata.uid)
        self.reporter.ended(pod, promise, ending)
        return None

    def observe(self, old: Pod | None, new: Pod | None) -> None:
        """The change handler of pods."""
        if new is None and old is not None:
            self.waits.forget(old.metadata.uid)
        if new is not None and promise_of(new.metadata.annotations):
            self.queue.add(key_of(new.metadata))


@contextmanager
def keeping_promises(
    context: Context, caches: Caches, settings: Callable[[], IPReservationSettings]
) -> Iterator[None]:
    """Within the block, promises end, if the feature was on at its begin."""
    if not settings().same_address.enabled:
        yield
        return
    queue = WorkQueue("ip_reservation_same_address", pauses=PAUSES)
    reconciler = SameAddressReconciler(
        caches,
        settings,
        Waits(CLOCK),
        PodWriter(context.client),
        SameAddressReporter(context.recorder),
        queue,
    )
    with context.working(queue, reconciler.reconcile, WORKERS):
        caches.pods.on_change(reconciler.observe)
        yield
