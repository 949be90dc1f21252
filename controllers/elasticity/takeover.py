"""Before a new leader decides on a pod, nothing that a former one decided can still take effect.

A former leader may have been stopped in the middle of a write that it had every right to make, and go on at any
time. Its write is for the version of the pod that it knew. So each pod that it may have decided on gets a new
version: either its write came before and is seen in the answer, or it comes too late and is refused.

That takes a write for each, and an API server may be slow. So it goes key by key: once all pods of an owner and
revision are fenced, they are placed. Where the number on super nodes is limited, which concerns all pods together,
nothing is decided before all of them are fenced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import structlog

from controllers.elasticity.patches import fenced
from controllers.elasticity.pods import Observed, Pod, oldest_first
from controllers.elasticity.sources import PodCache
from kube.errors import ApiError, Conflict, KubeError, NotFound, ServerError, TooManyRequests
from runtime import threading

LONGEST = 90.0
"""Seconds for one pod: longer than the API server itself goes on with a request. Then it counts as fenced."""

log = structlog.stdlib.get_logger(__name__)


class Takeover:
    """Of the pods known when it is made; *enqueue* is called for each key that may be decided on from then on."""

    def __init__(
        self,
        pods: PodCache,
        identity: str,
        enqueue: Callable[[str], None],
        *,
        is_limited: bool,
        clock: Callable[[], float],
    ) -> None:
        self._pods, self._identity, self._enqueue = pods, identity, enqueue
        self._is_limited = is_limited
        self._lock = threading.Lock()
        due = oldest_first(filter(self._concerns, pods.all()))
        self._open = Counter(pod.key for pod in due)
        order = {key: number for number, key in enumerate(self._open)}
        self._due = {pod.metadata.uid: pod for pod in sorted(due, key=lambda pod: order[pod.key])}
        self._failing = Observed(clock)
        if self._due:
            log.info("takeover started", pods=len(self._due))

    @property
    def due(self) -> Sequence[str]:
        """The uids of pods to fence, all of a key behind its first one."""
        return list(self._due)

    def is_over(self, key: str) -> bool:
        """Whether its pods may be decided on. Ask before they are read: one that was read before may be outdated."""
        with self._lock:
            return not self._open or (not self._is_limited and key not in self._open)

    def reconcile(self, uid: str) -> float | None:
        """Fence a pod. KubeError when it must be tried again."""
        pod = self._pods.current(self._due[uid])
        if pod is not None and self._concerns(pod):
            try:
                self._pods.patch(pod, fenced(pod, self._identity))
            except Conflict:
                self._pods.refresh(pod)
                # What another client changes all the time, no write of a former leader is for any more.
                if self._failing.age(uid) < LONGEST:
                    return 0.0
            except NotFound:
                pass
            except KubeError as error:
                # What refuses this write refuses that of a former leader, too.
                is_refusal = isinstance(error, ApiError) and not isinstance(
                    error, ServerError | TooManyRequests
                )
                if not is_refusal and self._failing.age(uid) < LONGEST:
                    raise
                log.warning("pod not fenced", **pod.metadata.about, error=str(error))
        self._finish(uid)
        return None

    def _concerns(self, pod: Pod) -> bool:
        """Whether a placement may be on its way to it, or the permission to burst where their number is limited."""
        may_burst = self._is_limited and pod.active and not (pod.node_name or pod.tolerates)
        return not pod.held and (pod.gated or may_burst)

    def _finish(self, uid: str) -> None:
        key, current = self._due[uid].key, self._pods.named_as(self._due[uid])
        if current and current.key != key:
            self._enqueue(current.key)  # that was read, for which no handler is called
        with self._lock:
            del self._due[uid]
            self._open[key] -= 1
            if self._open[key]:
                return
            del self._open[key]
            is_over = not self._open
        if is_over:
            log.info("takeover finished")
        for waiting in {pod.key for pod in self._pods.all()} if is_over and self._is_limited else (key,):
            self._enqueue(waiting)
