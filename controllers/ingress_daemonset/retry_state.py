"""Which writes failed, which of them may still arrive, and when each may be retried."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from controllers.clock import Clock
from controllers.ingress_daemonset.actions import Action, Target, Writes
from kube.errors import Backoff
from kube.types import ObjectMeta, key_of

PAUSES = Backoff(base=0.2, cap=30.0)
AT_ONCE = 1.0
"""Seconds after which a write that was decided on is late, so that graces count from its answer."""


@dataclass(frozen=True)
class Write:
    """An action for an IngressDaemonSet, its *owner*, that was decided on at a time on the clock."""

    owner: ObjectMeta
    action: Action
    decided: float


@dataclass(frozen=True)
class Failures:
    """Of the writes to a target for *owner*, a key; the next try is *due* on the clock.

    *doubtful* is a write whose outcome is unknown.
    """

    owner: str = ""
    doubtful: Write | None = None
    in_a_row: int = 0
    due: float = 0.0


class RetryState:
    """Safe to use from any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: dict[Target, Failures] = {}
        self._late: dict[Target, datetime] = {}
        self._lock = threading.Lock()

    def may_begin(self, target: Target) -> bool:
        failures = self._failures.get(target)
        return failures is None or failures.due <= self._clock.monotonic()

    def doubtful(self) -> Sequence[Write]:
        """Those that are to be repeated now."""
        with self._lock:
            doubts = [each.doubtful for each in self._failures.values()]
        return [write for write in doubts if write and self.may_begin(write.action.target)]

    def retry_after(self, owner: str, wanted: Collection[Target]) -> float | None:
        """Seconds until the next retry of what *owner* wants now, or of what is in doubt; None without one.

        What was refused to *owner* and is no longer wanted is forgotten: it would never be retried.
        """
        with self._lock:
            self._drop(lambda target, it: it.owner == owner and not it.doubtful and target not in wanted)
            dues = [it.due for target, it in self._failures.items() if it.doubtful or target in wanted]
        return max(0.0, min(dues) - self._clock.monotonic()) if dues else None

    def forget(self, owner: str) -> None:
        """It is gone."""
        with self._lock:
            self._drop(lambda _, it: it.owner == owner)

    def _drop(self, which: Callable[[Target, Failures], bool]) -> None:
        self._failures = {target: it for target, it in self._failures.items() if not which(target, it)}

    def writes(self, namespace: str, exists: Callable[[Target], bool]) -> Writes:
        """To the objects of *namespace*, and to Nodes."""
        with self._lock:
            self._late = {target: at for target, at in self._late.items() if exists(target)}
            uncertain = [target for target, it in self._failures.items() if it.doubtful]
            late = dict(self._late)
        here = ("", namespace)
        return Writes(
            frozenset(each for each in uncertain if each.namespace in here),
            {each: at for each, at in late.items() if each.namespace in here},
        )

    def settled(self, write: Write) -> None:
        """The state of its target is known."""
        target = write.action.target
        with self._lock:
            failed = self._failures.pop(target, None)
            if failed or self._clock.monotonic() - write.decided > AT_ONCE:
                self._late[target] = self._clock.now()

    def failed(self, write: Write, *, doubtful: bool, retry_after: float = 0.0) -> int:
        """The number of failures in a row."""
        target = write.action.target
        with self._lock:
            old = self._failures.get(target, Failures())
            in_a_row = old.in_a_row + 1
            pause = max(PAUSES.delay(in_a_row), min(retry_after, PAUSES.cap))
            # A repetition that is refused does not tell the outcome of the first write.
            doubt, due = write if doubtful else old.doubtful, self._clock.monotonic() + pause
            self._failures[target] = Failures(key_of(write.owner), doubt, in_a_row, due)
        return in_a_row
