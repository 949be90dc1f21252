"""Writes the steps of a plan side by side, and knows of each object whether a write to it may yet arrive.

A change is for the version it was decided on, so a write of which nothing was heard is settled by repeating it:
whatever the answer, the first one cannot arrive afterwards. Until then its object is uncertain, and let be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from typing import Protocol

import msgspec
import structlog

from controllers.executor import Work
from controllers.ingress_daemonset.actions import Action, Change, Create, Delete, Kind, Writes
from controllers.ingress_daemonset.copies import RESOURCES, Books
from controllers.ingress_daemonset.drift import Answers
from controllers.ingress_daemonset.planner import Step
from controllers.ingress_daemonset.retry_state import Target, Troubles, Write, target_of
from kube.client import Client
from kube.errors import AlreadyExists, ApiError, Conflict, KubeError, NotFound, ServerError
from kube.types import ObjectMeta, Value, complete, key_of

CALL_TIMEOUT = 4.0
"""Seconds; less than lies between the end of our leadership and the beginning of another's."""
PATIENCE = 3
"""Times that something may be missing before that is told: the API server hears of a new Role late itself."""

log = structlog.stdlib.get_logger(__name__)


class Outcome(Protocol):
    """Whom each outcome is told."""

    def wrote(self, action: Action, result: str) -> None: ...
    def refused(self, owner: ObjectMeta, action: Action, error: Exception) -> None: ...
    def unchanged(self, owner: ObjectMeta, action: Action) -> None: ...


class Written(Value, frozen=True):
    """All that is read of an answer here."""

    metadata: ObjectMeta = ObjectMeta()


complete(Written)


@dataclass
class Writer:
    """*hand_out* takes work for another thread; *check* runs before each write; once *stopped*, none begins."""

    client: Client
    books: Books
    outcome: Outcome
    check: Callable[[], None]
    stopped: Callable[[], bool]
    hand_out: Callable[[Work], None]
    troubles: Troubles
    answers: Answers = field(default_factory=Answers)

    def carry_out(self, owner: ObjectMeta, steps: Iterable[Step], decided: float) -> bool:
        """Whether anything was written, or learned, so that another look is worth it; raises LeadershipLost.

        *decided* is when it was, on the clock.
        """
        writes = [[Write(owner, action, decided) for action in step] for step in steps]
        return any(self._together([partial(self._take, each) for each in writes]))

    def settle(self) -> None:
        """Repeat what is in doubt, and due; raises LeadershipLost."""
        self._together([partial(self._try, write) for write in self.troubles.doubtful()])

    def retry_after(self, owner: ObjectMeta, actions: Iterable[Action]) -> float | None:
        """Seconds until one of *actions*, which are all that is wanted now, may be tried again, or a doubt settled."""
        return self.troubles.retry_after(key_of(owner), {target_of(owner, each) for each in actions})

    def look(self, kind: Kind, namespace: str, name: str) -> None:
        """Read an object that is not followed; what is known of it stays while the API server does not say."""
        target = Target(kind, namespace, name)
        try:
            self._learn(target)
        except KubeError as error:
            log.warning("an object cannot be read", target=target, error=str(error))
            self.books.of(kind).looked_at(target.key)

    def writes(self, namespace: str) -> Writes:
        """What the objects of *namespace*, and Nodes, do not say themselves."""
        return self.troubles.writes(namespace, self._is_there)

    def _is_there(self, target: Target) -> bool:
        return self.books.of(target.kind).get(target.key) is not None

    def _together(self, works: Sequence[Callable[[], bool]]) -> list[bool]:
        """Their results, when all have ended."""
        results: SimpleQueue[bool | Exception] = SimpleQueue()
        for work in works:
            self.hand_out(partial(_report, work, results))
        ended = [results.get() for _ in works]
        for each in ended:
            if isinstance(each, Exception):
                raise each
        return [each is True for each in ended]

    def _take(self, step: Iterable[Write]) -> bool:
        """Whether anything is known now that was not before."""
        learned = False
        for write in step:
            if not self.troubles.may_begin(write.target):
                break
            learned = True
            if not self._try(write):
                break
        return learned

    def _try(self, write: Write) -> bool:
        """Whether it was done as decided."""
        if self.stopped():
            return False
        self.check()
        try:
            return self._attempt(write)
        except Exception as error:
            # Whatever it was, it must not be tried again and again without a pause.
            log.exception("a write failed", target=write.target)
            self._doubt(write, error)
            return False

    def _attempt(self, write: Write) -> bool:
        try:
            written = self._send(write, self.answers.expected(write.action))
        except (Conflict, NotFound, AlreadyExists) as error:
            self._lost(write, error)
        except ServerError as error:
            self._doubt(write, error)
        except ApiError as error:
            self._refused(write, error)
        except KubeError as error:
            self._doubt(write, error)
        else:
            return self._arrived(write, written)
        return False

    def _arrived(self, write: Write, written: msgspec.Raw | None) -> bool:
        """Whether it has changed anything: else it would be decided on again at once, and for ever."""
        self._take_in(write.target, written)
        if written is not None and _changed_nothing(write.action, written):
            self._unchanged(write)
            return False
        self._learn_answer(write.target)
        self.troubles.settled(write)
        self.outcome.wrote(write.action, "ok")
        return True

    def _learn_answer(self, target: Target) -> None:
        if target.kind == "Deployment" and (held := self.books.deployments.get(target.key)):
            self.answers.learn(held)

    def _send(self, write: Write, action: Action) -> msgspec.Raw | None:
        """The object as it is afterwards; None of one that is gone."""
        resource, name, place = (
            RESOURCES[write.action.kind],
            write.target.name,
            write.target.namespace or None,
        )
        match action:
            case Create(body=body):
                return self.client.create(resource, body, place, type=msgspec.Raw, timeout=CALL_TIMEOUT)
            case Change(body=body, subresource=part):
                part_of = resource.sub(part)
                return self.client.patch(part_of, name, body, place, type=msgspec.Raw, timeout=CALL_TIMEOUT)
            case Delete(uid=uid):
                self.client.delete(resource, name, place, preconditions={"uid": uid}, timeout=CALL_TIMEOUT)
                return None

    def _lost(self, write: Write, error: ApiError) -> None:
        """Somebody else has written, or we have, without hearing of it: see what is there."""
        if isinstance(error, NotFound) and isinstance(write.action, Create):
            self._refused(write, error, patience=PATIENCE)
            return
        self.outcome.wrote(write.action, "conflict")
        try:
            self._learn(write.target)
        except KubeError as trouble:
            self._doubt(write, trouble)
        else:
            self.troubles.settled(write)

    def _learn(self, target: Target) -> None:
        try:
            found = self.client.get(
                RESOURCES[target.kind],
                target.name,
                target.namespace or None,
                type=msgspec.Raw,
                timeout=CALL_TIMEOUT,
            )
        except NotFound:
            self._take_in(target, None)
        else:
            self._take_in(target, found)

    def _take_in(self, target: Target, raw: msgspec.Raw | None) -> None:
        book = self.books.of(target.kind)
        if raw is None:
            book.forget(target.key)
        else:
            book.wrote(raw)

    def _doubt(self, write: Write, error: Exception) -> None:
        log.warning("a write is of unknown outcome", target=write.target, error=str(error))
        self.troubles.failed(write, doubtful=True)
        self.outcome.wrote(write.action, "unknown")

    def _refused(self, write: Write, error: ApiError, patience: int = 0) -> None:
        log.warning("a write was refused", target=write.target, error=str(error))
        times = self.troubles.failed(write, doubtful=False, retry_after=error.retry_after or 0.0)
        self.outcome.wrote(write.action, "refused")
        if times > patience:
            self.outcome.refused(write.owner, write.action, error)

    def _unchanged(self, write: Write) -> None:
        log.warning("a write changed nothing", target=write.target)
        times = self.troubles.failed(write, doubtful=False)
        self.outcome.wrote(write.action, "unchanged")
        if times > PATIENCE:
            self.outcome.unchanged(write.owner, write.action)


def _changed_nothing(action: Action, written: msgspec.Raw) -> bool:
    before = action.body["metadata"].get("resourceVersion") if isinstance(action, Change) else None
    return (
        before is not None and before == msgspec.json.decode(written, type=Written).metadata.resource_version
    )


def _report(work: Callable[[], bool], results: SimpleQueue[bool | Exception]) -> None:
    try:
        results.put(work())
    except Exception as error:
        results.put(error)
