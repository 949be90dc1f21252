"""A controller, as controller-runtime has it: what it watches, and the one function that reconciles a key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controllers.workqueue import RETRY_PAUSES, Reconcile, WorkQueue
from kube.errors import Backoff
from kube.informer import Informer
from runtime import time, utc_now


@dataclass(frozen=True)
class Clock:
    """*now* is the time of day, for what is written; *monotonic* are seconds that no one sets, for waiting."""

    now: Callable[[], datetime] = utc_now
    monotonic: Callable[[], float] = time.monotonic


CLOCK = Clock()


@dataclass(frozen=True)
class Watch:
    """*keys* are to be reconciled when an object of *informer* changes: from the old one, and the new one.

    Either is None for an object that came or went. Each object that is known when the controller starts has come.
    """

    informer: Informer[Any]
    keys: Callable[[Any, Any], Iterable[str]]


class Controller:
    """*workers* reconcile as many keys at a time, each key once, by the protocol of the work queue.

    Side work has one key, *first*, which is queued at the start, and its ``reconcile`` returns the seconds until the
    next run. *rate* is the pause after a failure. A reconciler that uses its queue itself makes it, and gives it here.
    """

    def __init__(
        self,
        queue: str | WorkQueue,
        reconcile: Reconcile,
        *watches: Watch,
        workers: int = 1,
        first: Sequence[str] = (),
        rate: Backoff = RETRY_PAUSES,
    ) -> None:
        self.queue = WorkQueue(queue, pauses=rate) if isinstance(queue, str) else queue
        self.reconcile, self.workers = reconcile, workers
        self._watches, self._first = watches, first

    def start(self) -> None:
        """Queue what is known, and from now on what changes."""
        for watch in self._watches:
            watch.informer.on_change(self._enqueue(watch))
        for key in self._first:
            self.queue.add(key)

    def _enqueue(self, watch: Watch) -> Callable[[Any, Any], None]:
        def on_change(old: Any, new: Any) -> None:
            for key in watch.keys(old, new):
                self.queue.add(key)

        return on_change
