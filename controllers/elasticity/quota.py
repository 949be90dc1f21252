"""No more pods go to super nodes than is configured, in a namespace and in all."""

from __future__ import annotations

import threading
from collections import Counter as Tally
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager

from controllers.elasticity.pods import Pod
from settings.elasticity import MaxSuperPods
from webhook.elasticity import is_daemon_pod


def counts(pod: Pod, super_nodes: Container[str]) -> bool:
    """Whether it is on a super node, or may come there."""
    if not pod.active or is_daemon_pod(pod.metadata):
        return False
    return pod.node_name in super_nodes or pod.may_come_to_super_nodes


class Room:
    """What *limits* leave for one decision, by how many pods of each namespace there are."""

    def __init__(self, limits: MaxSuperPods, taken: Mapping[str, int]) -> None:
        self._limits, self._taken = limits, Tally(taken)
        self.was_short = False

    def take(self, pod: Pod) -> str:
        """Nothing when there was room, and it is *pod*'s now; else which limit is reached."""
        namespace = pod.metadata.namespace
        if reached := self._reached(namespace):
            self.was_short = True
            return reached
        self._taken[namespace] += 1
        return ""

    def _reached(self, namespace: str) -> str:
        total, each = self._limits.total, self._limits.per_namespace
        if total and (taken := self._taken.total()) >= total:
            return f"maxSuperPods.total is {total} and {taken} pods are on super nodes"
        if each and self._taken[namespace] >= each:
            return f"maxSuperPods.perNamespace is {each} and {self._taken[namespace]} pods of {namespace} are there"
        return ""


class Quota:
    """Counts pods that are on super nodes or may come there: seen in the cluster, or assumed after a decision.

    *enqueue* is called for each key that found no room, when some is given back.
    """

    def __init__(self, enqueue: Callable[[str], None]) -> None:
        self._enqueue = enqueue
        self._seen: dict[str, str] = {}
        self._assumed: dict[str, str] = {}
        self._taken: Tally[str] = Tally()
        self._waiting: dict[str, None] = {}
        self._given_back = 0
        self._deciding, self._lock = threading.Lock(), threading.RLock()

    @contextmanager
    def acquire(self, key: str, limits: MaxSuperPods) -> Iterator[Room]:
        """The room for the pods of *key*; one decision at a time, which ends when what it took is assumed."""
        with self._deciding:
            with self._lock:
                # most clusters have no limit, and need no count
                taken = self._taken if limits.total or limits.per_namespace else {}
                room, before = Room(limits, taken), self._given_back
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

    def _change(self, uids: dict[str, str], pod: Pod, *, counts: bool) -> None:
        uid, namespace = pod.metadata.uid, pod.metadata.namespace
        before = self._counts(uid)
        if counts:
            uids[uid] = namespace
        else:
            uids.pop(uid, None)
        change = self._counts(uid) - before
        self._taken[namespace] += change
        if change < 0:
            self._given_back += 1
            self._wake()

    def _counts(self, uid: str) -> int:
        return int(uid in self._seen or uid in self._assumed)

    def _wait(self, key: str, before: int) -> None:
        with self._lock:
            self._waiting[key] = None
            if self._given_back != before:
                self._wake()

    def _wake(self) -> None:
        for key in self._waiting:
            self._enqueue(key)
        self._waiting.clear()
