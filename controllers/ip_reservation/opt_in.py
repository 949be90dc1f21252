"""Copy the annotation of a Deployment or StatefulSet to its running pods, where deletions are decided by it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from controllers.ip_reservation.opt_in_planner import plan, workload_of
from controllers.ip_reservation.pod_writer import PodWriter
from controllers.ip_reservation.reporter import Reporter
from controllers.ip_reservation.snapshot import Caches
from controllers.ip_reservation.workloads import FOLLOWERS, Followers, Workloads, follows
from controllers.manager import Context
from controllers.workqueue import PENDING, WorkQueue
from kube.errors import Backoff, Conflict, KubeError, NotFound
from kube.types import Pod, key_of
from settings import IPReservationSettings

WORKERS = 8
"""Each of them waits for one write."""
PAUSES = Backoff(base=0.2, cap=30.0)


@dataclass(frozen=True)
class OptInReconciler:
    """Have one pod, by its key, follow its workload. What is switched off, or goes, is left as it is."""

    caches: Caches
    workloads: Workloads
    settings: Callable[[], IPReservationSettings]
    writer: PodWriter
    reporter: Reporter
    queue: WorkQueue

    def reconcile(self, key: str) -> float | None:
        pod = self.caches.pods.get(key)
        if pod is None or not self._is_concerned(pod):
            return None
        changes = plan(pod.metadata.annotations, self.workloads.choice_for(pod.metadata))
        return self._apply(pod, changes) if changes else None

    def _is_concerned(self, pod: Pod) -> bool:
        is_selected = self.caches.namespaces.get(pod.metadata.namespace) is not None
        stays = not (pod.terminating or pod.finished or pod.spec.host_network)
        return is_selected and stays and self.settings().workload_opt_in

    def _apply(self, pod: Pod, changes: Mapping[str, str | None]) -> float | None:
        try:
            self.writer.annotate(pod, changes)
        except (Conflict, NotFound):
            return None  # what has changed is on its way here, and enqueues the pod
        except KubeError as error:
            self.reporter.not_followed(pod, str(workload_of(pod.metadata)), error)
            self.queue.retry(key_of(pod.metadata))
            return PENDING
        self.reporter.followed(pod, str(workload_of(pod.metadata)), changes)
        return None


@contextmanager
def opting_in(
    context: Context,
    caches: Caches,
    settings: Callable[[], IPReservationSettings],
    reporter: Reporter,
) -> Iterator[None]:
    """Within the block, pods follow their workloads, if that was switched on when the caches were made."""
    if (workloads := caches.workloads) is None:
        yield
        return
    queue = WorkQueue("ip_reservation_opt_in", pauses=PAUSES)
    writer = PodWriter(context.client)
    reconciler = OptInReconciler(caches, workloads, settings, writer, reporter, queue)
    followers = Followers(caches.pods, workloads, queue.add)
    caches.pods.add_index(FOLLOWERS, follows)
    with context.working(queue, reconciler.reconcile, WORKERS):
        caches.namespaces.on_change(followers.namespace_changed)
        caches.pods.on_change(followers.pod_changed)
        for kind, informer in workloads.by_kind.items():
            informer.on_change(followers.workload_changed(kind))
        yield
