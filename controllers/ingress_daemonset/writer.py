"""Run the steps of a plan concurrently, and know of each object whether a write to it may still arrive.

A change applies only to the version that it was decided on. So a write of unknown outcome is settled by repeating it:
after any answer, the first one cannot arrive any more. Until then its object is uncertain and left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import structlog

from controllers.controller import Clock
from controllers.executor import Submit
from controllers.ingress_daemonset.children import Action, Change, Create, Delete, Seen, Target, Writes
from controllers.ingress_daemonset.drift import Answers
from controllers.ingress_daemonset.object_cache import RESOURCES, ObjectCache
from controllers.ingress_daemonset.reporter import Reporter
from controllers.manager import Context
from kube.errors import (
    AlreadyExists,
    ApiError,
    Backoff,
    Conflict,
    KubeError,
    NotFound,
    ServerError,
    TooManyRequests,
)
from kube.leader_election import LeadershipLost
from kube.types import ObjectMeta, key_of
from runtime import SimpleQueue, threading

PAUSES = Backoff(base=0.2, cap=30.0)
BEGIN = 5.0
"""Seconds in which a reconcile begins writes, so that none holds up those of other IngressDaemonSets."""
LONGEST_REFUSAL = 300
"""Characters of it in a status; the Event has all."""
PATIENCE = 3
"""Refusals of the kind that may pass by itself, before an Event."""
FAILURES = {
    "unknown": "write has unknown outcome",
    "refused": "write refused",
    "unchanged": "write had no effect",
}

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True)
class Write:
    """An action for an IngressDaemonSet, its *owner*."""

    owner: ObjectMeta
    action: Action


@dataclass(frozen=True)
class Failures:
    """Of the writes to a target for *owner*, a key; the next try is *due* on the clock.

    *doubtful* is a write whose outcome is unknown, *refused* the last one, if it was refused, and *refusal* says why.
    """

    owner: str = ""
    doubtful: Write | None = None
    refused: Write | None = None
    refusal: str | None = None
    in_a_row: int = 0
    due: float = 0.0


class RetryState:
    """Safe to use from any thread."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._failures: dict[Target, Failures] = {}
        self._lock = threading.Lock()

    def may_begin(self, action: Action) -> bool:
        failures = self._failures.get(action.target)
        if failures is None or failures.due <= self.clock.monotonic():
            return True
        # What would write another spec than the one that was refused does not wait.
        refused = failures.refused
        is_other = refused is not None and _spec_of(refused.action) != _spec_of(action)
        return not failures.doubtful and is_other

    def doubtful(self, owner: str) -> Sequence[Write]:
        """Those near *owner* that are to be repeated now, in the order in which they are due."""
        doubts = [each.doubtful for each in sorted(self._near(owner).values(), key=lambda each: each.due)]
        return [write for write in doubts if write and self.may_begin(write.action)]

    def retry_after(self, owner: str, wanted: Collection[Target]) -> float | None:
        """Seconds until the next retry of what *owner* wants now, or of what is in doubt near it; None without one.

        What was refused to *owner* and is no longer wanted is forgotten: it would never be retried.
        """
        with self._lock:
            for target, it in [*self._failures.items()]:
                if it.owner == owner and not it.doubtful and target not in wanted:
                    del self._failures[target]
        dues = [it.due for target, it in self._near(owner).items() if it.doubtful or target in wanted]
        return max(0.0, min(dues) - self.clock.monotonic()) if dues else None

    def forget(self, owner: str) -> None:
        with self._lock:
            self._failures = {target: it for target, it in self._failures.items() if it.owner != owner}

    def writes(self, owner: str, seen: Seen) -> Writes:
        """Those near *owner*; what is refused to others is not refused to it."""
        near = self._near(owner)
        uncertain = frozenset(target for target, it in near.items() if it.doubtful)
        refused = {target: it.refusal for target, it in near.items() if it.refusal and it.owner == owner}
        return Writes(uncertain, refused, seen)

    def _near(self, owner: str) -> dict[Target, Failures]:
        """Of writes to the objects in the namespace of *owner*, and to Nodes."""
        places = ("", owner.partition("/")[0])
        with self._lock:
            return {target: it for target, it in self._failures.items() if target.namespace in places}

    def settled(self, write: Write) -> None:
        """The state of its target is known."""
        with self._lock:
            self._failures.pop(write.action.target, None)

    def failed(
        self, write: Write, *, doubtful: bool, retry_after: float = 0.0, refusal: str | None = None
    ) -> int:
        target = write.action.target
        with self._lock:
            old = self._failures.get(target, Failures())
            in_a_row = old.in_a_row + 1
            pause = max(PAUSES.delay(in_a_row), retry_after)
            # A repetition that is refused does not tell the outcome of the first write.
            doubt, due = write if doubtful else old.doubtful, self.clock.monotonic() + pause
            refused = write if refusal else None
            self._failures[target] = Failures(key_of(write.owner), doubt, refused, refusal, in_a_row, due)
        return in_a_row


class Writer:
    """*submit* hands work to another thread."""

    def __init__(
        self, context: Context, cache: ObjectCache, retries: RetryState, reporter: Reporter, submit: Submit
    ) -> None:
        self._context, self._cache, self._submit = context, cache, submit
        self.retries, self._reporter = retries, reporter
        self._answers = Answers()

    def run(self, owner: ObjectMeta, steps: Iterable[Sequence[Action]]) -> bool:
        """Whether something was written, learned or left, so that a new reconcile is due. LeadershipLost."""
        writes = [[Write(owner, action) for action in step] for step in steps]
        return any(self._concurrently([partial(self._run_step, each) for each in writes]))

    def settle(self, owner: str) -> None:
        """Repeat the writes of unknown outcome near *owner*, a key, that are due. LeadershipLost."""
        self._concurrently([partial(self._try, write) for write in self.retries.doubtful(owner)])

    def write_status(self, owner: ObjectMeta, status: dict[str, Any], *, guarded: bool) -> None:
        """With *guarded*, only if *owner* is the current version. KubeError, LeadershipLost.

        The fields for drains are not part of *status*: the webhook writes them, too.
        """
        version = {"resourceVersion": owner.resource_version} if guarded else {}
        body = {"metadata": {"uid": owner.uid} | version, "status": status}
        target = Target("IngressDaemonSet", owner.namespace, owner.name)
        if written := self._send(Change(target, body, "status")):
            self._cache.take_in(target, written)

    def _concurrently(self, works: Sequence[Callable[[], bool]]) -> list[bool]:
        """What has not begun in time is left to the next reconcile."""
        results, end = SimpleQueue[bool | Exception](), self.retries.clock.monotonic() + BEGIN

        def begin(work: Callable[[], bool]) -> None:
            try:
                results.put(self.retries.clock.monotonic() > end or work())
            except Exception as error:
                results.put(error)

        for work in works:
            self._submit(partial(begin, work))
        ended = [results.get() for _ in works]
        for each in ended:
            if isinstance(each, Exception):
                raise each
        return [each is True for each in ended]

    def _run_step(self, step: Iterable[Write]) -> bool:
        """Whether something is known now that was not before."""
        learned = False
        for write in step:
            if not self.retries.may_begin(write.action):
                break
            learned = True
            if not self._try(write):
                break
        return learned

    def _try(self, write: Write) -> bool:
        if self._context.stop.is_set():
            return False
        try:
            return self._attempt(write)
        except LeadershipLost:
            raise
        except Exception as error:
            # It must not be retried without a pause.
            log.exception("write failed", **_keys(write))
            self._failed(write, "unknown", error)
            return False

    def _attempt(self, write: Write) -> bool:
        try:
            written = self._send(self._answers.expected(write.action))
        except (Conflict, NotFound, AlreadyExists) as error:
            self._outdated(write, error)
        except ServerError as error:
            self._failed(write, "unknown", error)
        except ApiError as error:
            self._refused(write, error)
        except KubeError as error:
            self._failed(write, "unknown", error)
        else:
            return self._done(write, written)
        return False

    def _send(self, action: Action) -> msgspec.Raw | None:
        kind, namespace, name = action.target
        resource, place, client = RESOURCES[kind], namespace or None, self._context.client
        match action:
            case Create(body=body):
                return client.create(resource, body, place, type=msgspec.Raw)
            case Change(body=body, subresource=part):
                return client.patch(resource.sub(part), name, body, place, type=msgspec.Raw)
            case Delete(uid=uid):
                client.delete(resource, name, place, preconditions={"uid": uid})
                self._cache.read(action.target)  # a finalizer may hold it
                return None

    def _done(self, write: Write, written: msgspec.Raw | None) -> bool:
        """Whether it changed something: otherwise it would be decided on again at once."""
        action = write.action
        if written is not None:
            stored = self._cache.take_in(action.target, written)
            if isinstance(action, Change) and _is_undone(action, stored):
                if self._failed(write, "unchanged") > PATIENCE:
                    self._reporter.unchanged(write.owner, action)
                return False
        if action.target.kind == "Deployment" and (held := self._cache.get(action.target)):
            self._answers.learn(held)
        self.retries.settled(write)
        self._reporter.wrote(action, "ok")
        return True

    def _outdated(self, write: Write, error: ApiError) -> None:
        """Another writer was first, or our own write of unknown outcome: read the object."""
        if isinstance(error, NotFound) and isinstance(write.action, Create):
            self._refused(write, error, patience=PATIENCE)
            return
        self._reporter.wrote(write.action, "conflict")
        try:
            self._cache.read(write.action.target)
        except KubeError as failure:
            self._failed(write, "unknown", failure)
        else:
            self.retries.settled(write)

    def _refused(self, write: Write, error: ApiError, patience: int = 0) -> None:
        if self._failed(write, "refused", error, error.retry_after) > patience:
            self._reporter.refused(write.owner, write.action, error)

    def _failed(
        self, write: Write, result: str, error: Exception | None = None, retry_after: float = 0.0
    ) -> int:
        said = {"error": str(error)} if error else {}
        log.warning(FAILURES[result], **_keys(write), **said)
        self._reporter.wrote(write.action, result)
        refusal, doubtful = None, result == "unknown"
        if not doubtful and not isinstance(error, TooManyRequests):  # those may pass by themselves
            text = str(error) if error else "it stores the change unchanged, as an admission policy undoes it"
            refusal = text[:LONGEST_REFUSAL]
        return self.retries.failed(write, doubtful=doubtful, retry_after=retry_after, refusal=refusal)


def _is_undone(action: Change, stored: ObjectMeta) -> bool:
    """Whether an admission policy has undone all of it, or what it asks of labels and annotations."""
    asked = action.body["metadata"]
    found = {"labels": stored.labels, "annotations": stored.annotations}
    return asked["resourceVersion"] == stored.resource_version or any(
        held.get(key) != value for part, held in found.items() for key, value in asked.get(part, {}).items()
    )


def _spec_of(action: Action) -> object:
    return None if isinstance(action, Delete) else action.body.get("spec")


def _keys(write: Write) -> dict[str, str]:
    kind, namespace, name = write.action.target
    return {"kind": kind, "namespace": namespace, "name": name}
