"""Each decision is written for the version it was made for; one of unknown outcome is repeated, never replaced."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

import msgspec
import structlog

from controllers.elasticity.pending_writes import Do, Intent, Intents
from controllers.elasticity.pod_cache import Book
from controllers.elasticity.pods import Pod, decode
from kube.backoff import Backoff
from kube.client import Client, Resource
from kube.errors import ApiError, Conflict, KubeError, NotFound, ServerError
from kube.leader_election import LeadershipLost

PODS = Resource("", "v1", "pods")
CALL_TIMEOUT = 4.0
"""Seconds; less than lies between the end of our leadership and the beginning of another's."""
PAUSES = Backoff(base=0.2, cap=30.0)

log = structlog.stdlib.get_logger(__name__)


class Outcome(Protocol):
    """Whom the outcome is told."""

    def done(self, intent: Intent) -> None: ...
    def refused(self, intent: Intent, error: ApiError) -> None: ...


class Writer:
    """*hand_out* takes work for another thread, *wake* is called when it did not go as decided; *check* runs before
    each write.

    What has not begun when it has *stopped* is left to the next leader.
    """

    def __init__(
        self,
        client: Client,
        book: Book,
        outcome: Outcome,
        *,
        check: Callable[[], None],
        stopped: Callable[[], bool],
        hand_out: Callable[[Callable[[], None]], None],
        wake: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._client, self._book, self._outcome = client, book, outcome
        self._check, self._stopped = check, stopped
        self._hand_out, self._wake, self._clock = hand_out, wake, clock
        self._intents = Intents()
        self._lock = threading.Lock()
        self._doubtful: dict[str, float] = {}
        self._refusals: dict[str, tuple[int, float]] = {}
        self.lost: LeadershipLost | None = None

    def under_way(self) -> Mapping[str, Intent]:
        """To be asked before the book is read."""
        return self._intents.snapshot()

    def may_begin(self, uid: str) -> bool:
        """Whether enough time has passed since a write was refused."""
        return self._refusals.get(uid, (0, 0.0))[1] <= self._clock()

    def start(self, intents: Iterable[Intent]) -> None:
        """Those of one call are handed out after all of them count."""
        begun = list(intents)
        for intent in begun:
            self._intents.put(intent)
        for intent in begun:
            self._hand_out(lambda intent=intent: self._run(intent))  # type: ignore[misc]

    def repeat(self) -> None:
        """What may or may not have arrived, and is due again."""
        with self._lock:
            due = [uid for uid, at in self._doubtful.items() if at <= self._clock()]
            for uid in due:
                del self._doubtful[uid]
        held = self.under_way()
        self.start(held[uid] for uid in due if uid in held)

    def forget(self, gone: Callable[[str], bool]) -> None:
        """Refusals of pods that are no more."""
        with self._lock:
            for uid in [uid for uid in self._refusals if gone(uid)]:
                del self._refusals[uid]

    def _run(self, intent: Intent) -> None:
        try:
            if self.lost or self._stopped() or self._write(intent):
                return
        except LeadershipLost as error:
            self.lost = error
        except KubeError as error:
            self._doubt(intent, error)
        except Exception as error:
            log.exception("a write failed", do=intent.do, uid=intent.uid)
            self._doubt(intent, error)
        self._wake()

    def _write(self, intent: Intent) -> bool:
        """Whether it went as decided."""
        try:
            self._check()
            written = self._send(intent)
        except Conflict:
            self._settle(intent, self._now(intent))
        except NotFound:
            self._settle(intent, None)
        except ServerError:
            raise
        except ApiError as error:
            if intent.doubts:  # this one was refused, but the one before may yet arrive
                raise
            self._refuse(intent, error)
        else:
            self._settle(intent, written)
            self._outcome.done(intent)
            return True
        return False

    def _send(self, intent: Intent) -> Pod | None:
        """As it is afterwards."""
        at = intent.pod.metadata
        if intent.do is Do.GIVE_UP:
            seen = {"uid": at.uid, "resourceVersion": at.resource_version}
            self._client.delete(PODS, at.name, at.namespace, preconditions=seen, timeout=CALL_TIMEOUT)
            return None
        raw = self._client.patch(
            PODS, at.name, intent.patch, at.namespace, type=msgspec.Raw, timeout=CALL_TIMEOUT
        )
        return decode(raw)

    def _now(self, intent: Intent) -> Pod | None:
        """By the API server's own word: somebody else has written, or we have, without hearing of it."""
        at = intent.pod.metadata
        try:
            found = decode(
                self._client.get(PODS, at.name, at.namespace, type=msgspec.Raw, timeout=CALL_TIMEOUT)
            )
        except NotFound:
            return None
        return found if found.metadata.uid == at.uid else None

    def _settle(self, intent: Intent, pod: Pod | None) -> None:
        if pod is None:
            self._book.forget(intent.uid)
        else:
            self._book.wrote(pod)
        with self._lock:
            self._refusals.pop(intent.uid, None)
        self._intents.drop(intent.uid)

    def _refuse(self, intent: Intent, error: ApiError) -> None:
        with self._lock:
            count = self._refusals.get(intent.uid, (0, 0.0))[0] + 1
            pause = max(PAUSES.delay(count), min(error.retry_after or 0.0, PAUSES.cap))
            self._refusals[intent.uid] = (count, self._clock() + pause)
        self._book.look_again(intent.uid)
        self._intents.drop(intent.uid)
        self._outcome.refused(intent, error)

    def _doubt(self, intent: Intent, error: Exception) -> None:
        doubtful = replace(intent, doubts=intent.doubts + 1)
        log.warning("a write is of unknown outcome", do=intent.do, uid=intent.uid, error=str(error))
        self._intents.put(doubtful)
        with self._lock:
            self._doubtful[intent.uid] = self._clock() + PAUSES.delay(doubtful.doubts)
