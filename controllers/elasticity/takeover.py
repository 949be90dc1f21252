"""Before a new leader decides on a pod, nothing that a former one decided can still take effect.

A former leader may have been stopped in the middle of a write that it had every right to make, and go on at any
time. Its write is for the version of the pod that it knew. So each pod that it may have decided on is given a new
version: either its write came before and is seen in the answer, or it comes too late and is refused.

That takes a write for each, and an API server may be slow. So it is done beside the decisions, and one owner and
revision after the other: as soon as all pods that are counted together have been fenced, they are placed, and a
next leader finds that much less to do. Only where the number on super nodes is limited, which concerns all pods
together, nothing is decided before all of them are fenced.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable

import msgspec
import structlog

from controllers.elasticity.patches import fenced
from controllers.elasticity.pod_cache import Book
from controllers.elasticity.pods import Pod, decode, oldest_first
from controllers.elasticity.writer import CALL_TIMEOUT, PODS
from kube.backoff import Backoff
from kube.client import Client
from kube.errors import ApiError, Conflict, KubeError, NotFound, ServerError, TooManyRequests
from kube.leader_election import LeadershipLost

PAUSES = Backoff(base=0.2, cap=5.0)
AT_ONCE = 16
"""Writes at a time: the rest of the threads is for placing what has been fenced."""
LONGEST = 90.0
"""Seconds for one pod: longer than the API server itself goes on with a request. Then it is let be."""

log = structlog.stdlib.get_logger(__name__)


class Fence:
    """Around the pods that are *wanted*; *pause* waits for some seconds and says whether it is time to stop.

    *wake* is called when there is more that may be decided, and when the leadership is lost; *at_once*: nothing
    may be decided before all of them are fenced.
    """

    def __init__(
        self,
        client: Client,
        book: Book,
        reconciler: str,
        *,
        wanted: Callable[[Pod], bool],
        check: Callable[[], None],
        pause: Callable[[float], bool],
        wake: Callable[[], None] = lambda: None,
        is_limited: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._book, self._accountant = client, book, reconciler
        self._wanted, self._check, self._pause, self._clock = wanted, check, pause, clock
        self._wake, self._is_limited = wake, is_limited
        self._lock = threading.Lock()
        self._due: deque[Pod] = deque()
        self._open: Counter[str] = Counter()
        self._lost: LeadershipLost | None = None

    def put_up(self, hand_out: Callable[[Callable[[], None]], None]) -> None:
        """Begin; the work is done by those that it is handed out to."""
        pods = _together(oldest_first(filter(self._wanted, self._book.all())))
        self._due, self._open = deque(pods), Counter(pod.key for pod in pods)
        if pods:
            log.info("takeover begun", pods=len(pods))
        for _ in range(min(AT_ONCE, len(pods))):
            hand_out(self._work)

    def decidable(self) -> Callable[[str], bool]:
        """By uid, whether all pods that count for a pod are fenced; to be asked before the book is read.

        A pod that was read before it was fenced may be another one by now.
        """
        with self._lock:
            left = frozenset(self._open)

        def may_decide(uid: str) -> bool:
            if not left:
                return True
            pod = self._book.get(uid)
            return not self._is_limited and (pod is None or pod.key not in left)

        return may_decide

    def raise_loss(self) -> None:
        if self._lost:
            raise self._lost

    def _work(self) -> None:
        while not self._lost and (pod := self._next()) is not None:
            try:
                if not self._around(pod):
                    return
            except LeadershipLost as error:
                self._lost = error
                self._wake()
                return
            except Exception:
                log.exception("a pod was not fenced", uid=pod.metadata.uid)
            self._done(pod)

    def _next(self) -> Pod | None:
        with self._lock:
            return self._due.popleft() if self._due else None

    def _done(self, pod: Pod) -> None:
        with self._lock:
            self._open[pod.key] -= 1
            is_last = not self._open[pod.key]
            if is_last:
                del self._open[pod.key]
        if is_last:
            self._wake()

    def _around(self, pod: Pod) -> bool:
        """Whether there is time for another one."""
        began, failures = self._clock(), 0
        while self._clock() - began < LONGEST:
            self._check()
            try:
                if self._try(pod.metadata.uid):
                    break
            except KubeError as error:
                failures += 1
                log.warning("a pod was not fenced", uid=pod.metadata.uid, error=str(error))
                if _is_refusal(error):
                    break
                if self._pause(PAUSES.delay(failures)):
                    return False
        return not self._pause(0)

    def _try(self, uid: str) -> bool:
        """Whether there is nothing more to do for it."""
        pod = self._book.get(uid)
        if pod is None or not self._wanted(pod):
            return True
        at = pod.metadata
        try:
            patch = fenced(pod, self._accountant)
            answer = self._client.patch(
                PODS, at.name, patch, at.namespace, type=msgspec.Raw, timeout=CALL_TIMEOUT
            )
        except Conflict:
            answer = self._client.get(PODS, at.name, at.namespace, type=msgspec.Raw, timeout=CALL_TIMEOUT)
            self._book.wrote(decode(answer))
            return False
        except NotFound:
            self._book.forget(uid)
            return True
        self._book.wrote(decode(answer))
        return True


def _together(pods: Iterable[Pod]) -> list[Pod]:
    """In their order, but all of a key behind its first one."""
    keys: dict[str, list[Pod]] = {}
    for pod in pods:
        keys.setdefault(pod.key, []).append(pod)
    return [pod for each in keys.values() for pod in each]


def may_have_been_decided_on(pod: Pod, *, is_limited: bool) -> bool:
    """Whether a placement may be on its way to it; or leave to go to super nodes, where their number *is_limited*."""
    return pod.gated or (is_limited and pod.active and pod.unbound is not None and not pod.unbound.tolerates)


def _is_refusal(error: KubeError) -> bool:
    """Who refuses this refuses the other write, too."""
    return isinstance(error, ApiError) and not isinstance(error, ServerError | TooManyRequests)
