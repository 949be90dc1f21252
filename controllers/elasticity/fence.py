"""Before a new leader decides anything, nothing that a former one decided can still take effect.

A former leader may have been stopped in the middle of a write that it had every right to make, and go on at any
time. Its write is for the version of the pod that it knew. So each pod that it may have decided on is given a new
version: either its write came before and is seen in the answer, or it comes too late and is refused.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from queue import SimpleQueue

import msgspec
import structlog

from controllers.elasticity.book import Book
from controllers.elasticity.edits import fenced
from controllers.elasticity.pods import Pod, decode
from controllers.elasticity.writer import CALL_TIMEOUT, PODS
from kube.backoff import Backoff
from kube.client import Client
from kube.errors import ApiError, Conflict, KubeError, NotFound, ServerError, TooManyRequests
from kube.lease import LeadershipLost

PAUSES = Backoff(base=0.2, cap=5.0)
LONGEST = 90.0
"""Seconds for one pod: longer than the API server itself goes on with a request. Then it is let be."""

log = structlog.stdlib.get_logger(__name__)


class Fence:
    """Around the pods that are *wanted*; *pause* waits for some seconds and says whether it is time to stop."""

    def __init__(
        self,
        client: Client,
        book: Book,
        accountant: str,
        *,
        wanted: Callable[[Pod], bool],
        check: Callable[[], None],
        pause: Callable[[float], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._book, self._accountant = client, book, accountant
        self._wanted, self._check, self._pause, self._clock = wanted, check, pause, clock

    def put_up(self, hand_out: Callable[[Callable[[], None]], None]) -> None:
        """Return when it is around all of them, or it is time to stop. LeadershipLost."""
        outcomes: SimpleQueue[LeadershipLost | None] = SimpleQueue()
        begun = 0
        for pod in filter(self._wanted, self._book.all()):
            hand_out(lambda pod=pod: outcomes.put(self._outcome(pod)))  # type: ignore[misc]
            begun += 1
        lost = [error for _ in range(begun) if (error := outcomes.get())]
        if lost:
            raise lost[0]

    def _outcome(self, pod: Pod) -> LeadershipLost | None:
        try:
            self._around(pod)
        except LeadershipLost as error:
            return error
        except Exception:
            log.exception("a pod was not fenced", uid=pod.metadata.uid)
        return None

    def _around(self, pod: Pod) -> None:
        began, failures = self._clock(), 0
        while self._clock() - began < LONGEST:
            self._check()
            try:
                if self._try(pod.metadata.uid):
                    return
            except KubeError as error:
                failures += 1
                log.warning("a pod was not fenced", uid=pod.metadata.uid, error=str(error))
                if _is_refusal(error) or self._pause(PAUSES.delay(failures)):
                    return

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


def may_have_been_decided_on(pod: Pod, *, is_limited: bool) -> bool:
    """Whether a placement may be on its way to it; or leave to go to super nodes, where their number *is_limited*."""
    return pod.gated or (is_limited and pod.active and pod.unbound is not None and not pod.unbound.tolerates)


def _is_refusal(error: KubeError) -> bool:
    """Who refuses this refuses the other write, too."""
    return isinstance(error, ApiError) and not isinstance(error, ServerError | TooManyRequests)
