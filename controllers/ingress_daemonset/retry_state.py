"""Which writes failed, which of them may yet arrive, and when each may be tried again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from controllers.ingress_daemonset.actions import Action, Create, Kind, Writes
from kube.backoff import Backoff
from kube.types import ObjectMeta, key_of

PAUSES = Backoff(base=0.2, cap=30.0)
AT_ONCE = 1.0
"""Seconds after which a write that was decided on is late, so that graces count from its answer."""


@dataclass(frozen=True)
class Target:
    """What an action is for."""

    kind: Kind
    namespace: str
    name: str

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def is_in(self, namespace: str) -> bool:
        """As a Node is in each."""
        return self.namespace in ("", namespace)


@dataclass(frozen=True)
class Write:
    """An action that its *owner*, an IngressDaemonSet, wants done since *decided* on the clock."""

    owner: ObjectMeta
    action: Action
    decided: float

    @property
    def target(self) -> Target:
        return target_of(self.owner, self.action)


@dataclass(frozen=True)
class Trouble:
    """Of a target: *doubtful* is what was written, and nothing heard of; the next try is *due* on the clock.

    *owner* is the key of the IngressDaemonSet that wanted it last.
    """

    owner: str = ""
    doubtful: Write | None = None
    failures: int = 0
    due: float = 0.0


@dataclass
class Troubles:
    """Safe to use from any thread."""

    clock: Callable[[], float]
    now: Callable[[], datetime]
    _troubles: dict[Target, Trouble] = field(default_factory=dict)
    _late: dict[Target, datetime] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def may_begin(self, target: Target) -> bool:
        with self._lock:
            trouble = self._troubles.get(target)
        return trouble is None or trouble.due <= self.clock()

    def doubtful(self) -> Sequence[Write]:
        """Those that are to be repeated now."""
        with self._lock:
            doubts = [trouble.doubtful for trouble in self._troubles.values()]
        return [write for write in doubts if write and self.may_begin(write.target)]

    def retry_after(self, owner: str, wanted: Collection[Target]) -> float | None:
        """Seconds until something may be tried again, of what *owner* wants now or what is in doubt; None without it.

        What was refused to *owner* and is wanted no more is forgotten: nothing would ever try it again.
        """
        with self._lock:
            self._drop(lambda target, it: it.owner == owner and not it.doubtful and target not in wanted)
            dues = [it.due for target, it in self._troubles.items() if it.doubtful or target in wanted]
        return max(0.0, min(dues) - self.clock()) if dues else None

    def forget(self, owner: str) -> None:
        """It is gone, and all that was wanted for it with it."""
        with self._lock:
            self._drop(lambda _, it: it.owner == owner)

    def _drop(self, which: Callable[[Target, Trouble], bool]) -> None:
        self._troubles = {target: it for target, it in self._troubles.items() if not which(target, it)}

    def writes(self, namespace: str, is_there: Callable[[Target], bool]) -> Writes:
        """What the objects of *namespace*, and Nodes, do not say themselves."""
        with self._lock:
            doubtful = {target for target, trouble in self._troubles.items() if trouble.doubtful}
            self._late = {target: at for target, at in self._late.items() if is_there(target)}
            late = {target: at for target, at in self._late.items() if target.is_in(namespace)}
        return Writes(
            frozenset((target.kind, target.name) for target in doubtful if target.is_in(namespace)),
            {(target.kind, target.name): at for target, at in late.items()},
        )

    def settled(self, write: Write) -> None:
        """The state of its target is known."""
        with self._lock:
            if self._troubles.pop(write.target, None) or self.clock() - write.decided > AT_ONCE:
                self._late[write.target] = self.now()

    def failed(self, write: Write, *, doubtful: bool, retry_after: float = 0.0) -> int:
        """How often by now, in a row."""
        with self._lock:
            old = self._troubles.get(write.target, Trouble())
            failures = old.failures + 1
            pause = max(PAUSES.delay(failures), min(retry_after, PAUSES.cap))
            # A repetition that was refused says nothing of the one before.
            doubt, due = write if doubtful else old.doubtful, self.clock() + pause
            self._troubles[write.target] = Trouble(key_of(write.owner), doubt, failures, due)
        return failures


def target_of(owner: ObjectMeta, action: Action) -> Target:
    namespace = "" if action.kind == "Node" else owner.namespace
    return Target(action.kind, namespace, name_of(action))


def name_of(action: Action) -> str:
    return str(action.body["metadata"]["name"]) if isinstance(action, Create) else action.name
