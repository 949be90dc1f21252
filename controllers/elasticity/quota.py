"""No more pods go to super nodes than is configured: in a namespace, under a budget, and in all."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from api.elasticity import REASON, is_daemon_pod
from controllers.elasticity.pods import Pod
from kube.types import rfc3339
from runtime import threading
from settings.elasticity import Budget, MaxSuperPods

SETTING = "maxSuperPods."
"""How what is reached is called: in the reason of each pod that waits for it."""


def waits(pod: Pod) -> bool:
    """Whether it has no node, and said at its last decision that a limit is reached."""
    return not pod.node_name and SETTING in pod.metadata.annotations.get(REASON, "")


def counts(pod: Pod, super_nodes: Container[str]) -> bool:
    """Whether it is on a super node, where it is billed until it is gone, or may come there."""
    if pod.finished or is_daemon_pod(pod.metadata):
        return False
    return pod.node_name in super_nodes or pod.may_come_to_super_nodes


@dataclass
class _Used:
    budget: Budget
    taken: int
    now: datetime

    @cached_property
    def holds(self) -> bool:
        return self.budget.holds_at(self.now)

    @cached_property
    def ends_at(self) -> datetime | None:
        return self.budget.ends_at(self.now)

    @property
    def full(self) -> str:
        """Why one more pod is too much; nothing when it is not."""
        if self.taken < self.budget.max_pods:
            return ""
        allowed = f"{self.budget.max_pods} {self.budget}"
        return f"{SETTING}budgets allows {allowed} on super nodes{self._until}"

    @property
    def _until(self) -> str:
        """The same words for as long as its hours last."""
        if not self.budget.hours:
            return ""
        end = f"end at {rfc3339(self.ends_at)}" if self.ends_at else "do not end soon"
        return f"; its hours, {self.budget.times}, {end}"


class Room:
    """What *limits* leave for one decision, by how many pods of each namespace there are, and *under* each budget.

    Budgets are those that hold *now*.
    """

    def __init__(
        self,
        limits: MaxSuperPods,
        taken: Mapping[str, int],
        under: Sequence[int] = (),
        *,
        now: datetime,
    ) -> None:
        self._limits, self._taken, self._now = limits, Tally(taken), now
        self._budgets = [_Used(*each, now) for each in zip(limits.budgets, under, strict=True)]
        self.was_short = False
        self._ends: list[datetime] = []

    @property
    def opens_in(self) -> float | None:
        """Seconds until the first budget that had no room holds no more; None where no hours end."""
        return (min(self._ends) - self._now).total_seconds() if self._ends else None

    def take(self, pod: Pod) -> str:
        """Nothing when there was room, and it is *pod*'s now; else which limit is reached."""
        concerned = [each for each in self._budgets if _is_under(each.budget, pod) and each.holds]
        if reached := self._reached(pod.metadata.namespace, concerned):
            self.was_short = True
            return reached
        self._taken[pod.metadata.namespace] += 1
        for each in concerned:
            each.taken += 1
        return ""

    def _reached(self, namespace: str, concerned: Iterable[_Used]) -> str:
        """The same words for as long as it is reached: they are written to the pods that wait."""
        total, each = self._limits.total, self._limits.per_namespace
        if total and self._taken.total() >= total:
            return f"{SETTING}total is {total}, and as many pods are on super nodes"
        if each and self._taken[namespace] >= each:
            return f"{SETTING}perNamespace is {each}, and as many pods of {namespace} are on super nodes"
        for used in concerned:
            if full := used.full:
                self._ends += filter(None, [used.ends_at])
                return full
        return ""


class Quota:
    """Counts pods that are on super nodes or may come there: seen in the cluster, or assumed after a decision.

    *enqueue* is called for each key that found no room, when some is given back. *now* is the time of day.
    """

    def __init__(self, enqueue: Callable[[str], None], now: Callable[[], datetime]) -> None:
        self._enqueue, self._now = enqueue, now
        self._seen: dict[str, Pod] = {}
        self._assumed: dict[str, Pod] = {}
        self._taken: Tally[str] = Tally()
        self._budgets: tuple[Budget, ...] = ()
        self._under: list[int] = []
        self._waiting: dict[str, None] = {}
        self._given_back = 0
        self._deciding, self._lock = threading.Lock(), threading.RLock()

    @contextmanager
    def acquire(self, key: str, limits: MaxSuperPods) -> Iterator[Room]:
        """The room for the pods of *key*; one decision at a time, which ends when what it took is assumed."""
        with self._deciding:
            with self._lock:
                # most clusters have no limit, and need no count
                taken = self._taken if limits.is_limited else {}
                self._count_under(limits.budgets)
                room, before = Room(limits, taken, self._under, now=self._now()), self._given_back
            yield room
            if room.was_short:
                self._wait(key, before)

    def assume(self, pod: Pod) -> None:
        with self._lock:
            self._change(self._assumed, pod, counts=True)

    def forget(self, pod: Pod) -> None:
        """It was seen, or did not come about."""
        with self._lock:
            self._change(self._assumed, pod, counts=False)

    def see(self, pod: Pod, counts: Callable[[], bool]) -> None:
        """*counts* reads whether it is there or may come there: under the lock, so that the last reading holds."""
        with self._lock:
            self._change(self._seen, pod, counts=counts())

    def _count_under(self, budgets: tuple[Budget, ...]) -> None:
        """Once for each change of the settings; from then on, changes are added."""
        if budgets != self._budgets:
            self._budgets = budgets
            self._under = count_under(budgets, (self._assumed | self._seen).values())

    def _change(self, uids: dict[str, Pod], pod: Pod, *, counts: bool) -> None:
        uid, namespace = pod.metadata.uid, pod.metadata.namespace
        before = self._there(uid)
        if counts:
            uids[uid] = pod
        else:
            uids.pop(uid, None)
        after = self._there(uid)
        change = int(after is not None) - int(before is not None)
        self._taken[namespace] += change
        # A pod that stays may have other labels now.
        changes = [_is_under(each, after) - _is_under(each, before) for each in self._budgets]
        self._under = [used + each for used, each in zip(self._under, changes, strict=True)]
        if change < 0 or any(each < 0 for each in changes):
            self._given_back += 1
            self._wake()

    def _there(self, uid: str) -> Pod | None:
        return self._seen.get(uid) or self._assumed.get(uid)

    def _wait(self, key: str, before: int) -> None:
        with self._lock:
            self._waiting[key] = None
            if self._given_back != before:
                self._wake()

    def _wake(self) -> None:
        for key in self._waiting:
            self._enqueue(key)
        self._waiting.clear()


def count_under(budgets: Iterable[Budget], there: Iterable[Pod]) -> list[int]:
    """How many of the pods that are *there* are under each of *budgets*."""
    there = list(there)
    return [sum(_is_under(each, pod) for pod in there) for each in budgets]


def _is_under(budget: Budget, pod: Pod | None) -> bool:
    return pod is not None and budget.concerns(pod.metadata.namespace, pod.metadata.labels)
