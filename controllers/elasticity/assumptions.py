"""What was decided counts until the cluster shows it: the one account of actions, and of pods on super nodes.

A pod counts there when it was seen on a super node, or may come to one, or is assumed to after a decision. It is
counted once, in a namespace, under a budget, and in all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime

from controllers.elasticity.patches import TO_SUPER_NODES, Action
from controllers.elasticity.pods import Pod
from controllers.elasticity.room import Usage, count_under, is_under
from runtime import threading
from settings.elasticity import Budget, MaxSuperPods


class Assumptions:
    """One action for each pod at most; safe to share between threads.

    *enqueue* is called for each key that found no room, when some is given back. *now* is the time of day.
    """

    def __init__(self, enqueue: Callable[[str], None], now: Callable[[], datetime]) -> None:
        self._enqueue, self._now = enqueue, now
        self._actions: dict[str, Action] = {}
        self._by_key: dict[str, dict[str, Action]] = {}
        self._seen: dict[str, Pod] = {}
        self._taken: Counter[str] = Counter()
        self._budgets: tuple[Budget, ...] = ()
        self._under: list[int] = []
        self._waiting: dict[str, None] = {}
        self._given_back = False
        """Whether room was, since the last decision began."""
        self._deciding, self._lock = threading.Lock(), threading.RLock()

    def get(self, uid: str) -> Action | None:
        return self._actions.get(uid)

    def of(self, key: str) -> Mapping[str, Action]:
        """By uid, those of the pods of *key*. Read them before the pods: they go after their outcome is known."""
        with self._lock:
            return dict(self._by_key.get(key, {}))

    def to_super_nodes(self) -> Sequence[Action]:
        with self._lock:
            return [action for action in self._actions.values() if action.kind in TO_SUPER_NODES]

    def assume(self, action: Action) -> None:
        with self._lock:
            before = self._counted(action.uid)
            self._actions[action.uid] = action
            self._by_key.setdefault(action.pod.key, {})[action.uid] = action
            self._recount(action.pod, before)

    def forget(self, action: Action) -> None:
        """It was seen, or did not come about."""
        key = action.pod.key
        with self._lock:
            before = self._counted(action.uid)
            self._actions.pop(action.uid, None)
            of_key = self._by_key.get(key, {})
            of_key.pop(action.uid, None)
            if not of_key:
                self._by_key.pop(key, None)
            self._recount(action.pod, before)

    def see(self, pod: Pod, counts: Callable[[], bool]) -> None:
        """*counts* reads whether it is there or may come there: under the lock, so that the last reading holds."""
        uid = pod.metadata.uid
        with self._lock:
            before = self._counted(uid)
            if counts():
                self._seen[uid] = pod
            else:
                self._seen.pop(uid, None)
            self._recount(pod, before)

    @contextmanager
    def deciding(self, limits: MaxSuperPods) -> Iterator[Usage]:
        """One decision at a time, by what is used of *limits*; it ends when its actions are assumed."""
        with self._deciding:
            with self._lock:
                # most clusters have no limit, and need no count
                taken = Counter(self._taken) if limits.is_limited else {}
                self._count_under(limits.budgets)
                self._given_back = False
                usage = Usage(limits, taken, self._under, self._now())
            yield usage

    def wait(self, key: str) -> None:
        """Decide on *key* again when room is given back, if none was since the decision began, which goes on."""
        with self._lock:
            self._waiting[key] = None
            if self._given_back:
                self._wake()

    def _count_under(self, budgets: tuple[Budget, ...]) -> None:
        """Once for each change of the settings; from then on, changes are added."""
        if budgets != self._budgets:
            self._budgets = budgets
            uids = self._seen.keys() | self._actions.keys()
            self._under = count_under(budgets, filter(None, map(self._counted, uids)))

    def _counted(self, uid: str) -> Pod | None:
        """The pod as it counts, if it does."""
        action = self._actions.get(uid)
        assumed = action.pod if action and action.kind in TO_SUPER_NODES else None
        return self._seen.get(uid) or assumed

    def _recount(self, pod: Pod, before: Pod | None) -> None:
        after = self._counted(pod.metadata.uid)
        change = int(after is not None) - int(before is not None)
        self._taken[pod.metadata.namespace] += change
        # A pod that stays may have other labels now.
        changes = [is_under(budget, after) - is_under(budget, before) for budget in self._budgets]
        self._under = [used + each for used, each in zip(self._under, changes, strict=True)]
        if change < 0 or any(each < 0 for each in changes):
            self._given_back = True
            self._wake()

    def _wake(self) -> None:
        for key in self._waiting:
            self._enqueue(key)
        self._waiting.clear()
