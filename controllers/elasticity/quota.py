"""No more pods go to super nodes than is configured: in a namespace, under a budget by number or cost, and in all."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from typing import NamedTuple

from controllers.elasticity.billing import cost
from controllers.elasticity.pods import Pod
from kube.types import rfc3339
from runtime import threading
from settings.elasticity import Budget, MaxSuperPods, Prices
from webhook.elasticity import REASON, is_daemon_pod

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


NO_PRICES = Prices()


class Usage(NamedTuple):
    """*cost* is per hour."""

    pods: int = 0
    cost: Decimal = Decimal()

    def plus(self, other: Usage) -> Usage:
        return Usage(self.pods + other.pods, self.cost + other.cost)

    def minus(self, other: Usage) -> Usage:
        return Usage(self.pods - other.pods, self.cost - other.cost)


NONE = Usage()


@dataclass
class _Used:
    budget: Budget
    taken: Usage
    now: datetime

    @cached_property
    def holds(self) -> bool:
        return self.budget.holds_at(self.now)

    @cached_property
    def ends_at(self) -> datetime | None:
        return self.budget.ends_at(self.now)

    def over(self, own: Usage) -> str:
        """Why a pod that uses *own* is too much; nothing when it is not."""
        return (found := _over(self.budget, self.taken, own)) and f"{found}{self._until}"

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
        under: Sequence[Usage] = (),
        prices: Prices = NO_PRICES,
        *,
        now: datetime,
    ) -> None:
        self._limits, self._taken, self._prices = limits, Tally(taken), prices
        self._now = now
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
        own = Usage(1, cost(pod, self._prices))
        if reached := self._reached(pod.metadata.namespace, concerned, own):
            self.was_short = True
            return reached
        self._taken[pod.metadata.namespace] += 1
        for each in concerned:
            each.taken = each.taken.plus(own)
        return ""

    def knows(self, pod: Pod) -> bool:
        """Whether it is known what *pod* takes: not its cost, before pods are read again for the first price."""
        limited = (each.budget for each in self._budgets if each.budget.max_cost_per_hour is not None)
        return pod.specification is not None or not any(_is_under(each, pod) for each in limited)

    def _reached(self, namespace: str, concerned: Iterable[_Used], own: Usage) -> str:
        """The same words for as long as it is reached: they are written to the pods that wait."""
        total, each = self._limits.total, self._limits.per_namespace
        if total and self._taken.total() >= total:
            return f"{SETTING}total is {total}, and as many pods are on super nodes"
        if each and self._taken[namespace] >= each:
            return f"{SETTING}perNamespace is {each}, and as many pods of {namespace} are on super nodes"
        for used in concerned:
            if over := used.over(own):
                self._ends += filter(None, [used.ends_at])
                return over
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
        self._prices = NO_PRICES
        self._under: list[Usage] = []
        self._waiting: dict[str, None] = {}
        self._given_back = 0
        self._deciding, self._lock = threading.Lock(), threading.RLock()

    @contextmanager
    def acquire(self, key: str, limits: MaxSuperPods, prices: Prices = NO_PRICES) -> Iterator[Room]:
        """The room for the pods of *key*; one decision at a time, which ends when what it took is assumed."""
        with self._deciding:
            with self._lock:
                # most clusters have no limit, and need no count
                taken = self._taken if limits.is_limited else {}
                self._count_under(limits.budgets, prices)
                room, before = Room(limits, taken, self._under, prices, now=self._now()), self._given_back
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

    def under(self, budgets: Sequence[Budget], prices: Prices) -> Sequence[Usage]:
        """What is used of each of *budgets* now."""
        with self._lock:
            self._count_under(budgets, prices)
            return list(self._under)

    def _count_under(self, budgets: Sequence[Budget], prices: Prices) -> None:
        """Once for each change of the settings; from then on, changes are added."""
        if (tuple(budgets), prices) != (self._budgets, self._prices):
            self._budgets, self._prices = tuple(budgets), prices
            self._under = count_under(budgets, (self._assumed | self._seen).values(), prices)

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
        # A pod that stays may have other labels now, or another size.
        changes = [self._usage(each, after).minus(self._usage(each, before)) for each in self._budgets]
        self._under = [used.plus(each) for used, each in zip(self._under, changes, strict=True)]
        if change < 0 or any(each.pods < 0 or each.cost < 0 for each in changes):
            self._given_back += 1
            self._wake()

    def _usage(self, budget: Budget, pod: Pod | None) -> Usage:
        return _usage(budget, pod, self._prices) if pod is not None else NONE

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


def count_under(budgets: Iterable[Budget], there: Iterable[Pod], prices: Prices) -> list[Usage]:
    """What the pods that are *there* use of each of *budgets*."""
    there = list(there)
    return [_sum(_usage(each, pod, prices) for pod in there) for each in budgets]


def _sum(usages: Iterable[Usage]) -> Usage:
    total = NONE
    for each in usages:
        total = total.plus(each)
    return total


def _usage(budget: Budget, pod: Pod, prices: Prices) -> Usage:
    return Usage(1, cost(pod, prices)) if _is_under(budget, pod) else NONE


def _is_under(budget: Budget, pod: Pod) -> bool:
    return budget.concerns(pod.metadata.namespace, pod.metadata.labels)


def _over(budget: Budget, taken: Usage, own: Usage) -> str:
    """Why a pod that uses *own* is too much; nothing when it is not."""
    pods, most = budget.max_pods, budget.max_cost_per_hour
    if pods is not None and taken.pods >= pods:
        return f"{SETTING}budgets allows {pods} {budget} on super nodes"
    if most is not None and taken.cost + own.cost > Decimal(str(most)):
        each = f"{own.cost.normalize():f}"
        return f"{SETTING}budgets allows {most:g} per hour for {budget} on super nodes, and this one costs {each}"
    return ""
