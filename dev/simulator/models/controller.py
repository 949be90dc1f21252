"""A controller of kube-controller-manager: keys, a queue, and delays after failures.

https://github.com/kubernetes/client-go/blob/master/util/workqueue/default_rate_limiters.go
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from dev.fake_api.storage import Change, Key
from dev.simulator.models.cluster import Cluster, Raw, controller_of
from kube.client import Resource
from kube.errors import KubeError, NotFound

MANAGER = "kube-controller-manager"
FIRST_DELAY, LONGEST_DELAY = 0.1, 1000.0
"""Seconds; the real ones begin with 5 ms, of which the simulation would show nothing but requests."""
POLL = timedelta(seconds=1)
Spawn = Callable[[Callable[[], None], str], object]
"""Start work that may wait for admission beside all other; its name is for tracebacks."""


def at_once(work: Callable[[], None], _name: str) -> None:
    work()


class Controller:
    """Reconciles each object of *kind* soon after it, or one of *dependents* that it controls, has changed."""

    def __init__(
        self, cluster: Cluster, kind: Resource, *dependents: Resource, spawn: Spawn = at_once
    ) -> None:
        self.cluster, self.kind, self._dependents, self._spawn = cluster, kind, frozenset(dependents), spawn
        self.client = cluster.api.client(MANAGER)
        self._seen = 0
        self._due: dict[Key, datetime] = {}
        self._failures: dict[Key, int] = {}
        self._running: set[Key] = set()

    def reconcile(self, raw: Raw, now: datetime) -> datetime | None:
        """When it is due again though nothing changes."""
        raise NotImplementedError

    def keys_of(self, change: Change) -> Iterator[Key]:
        """Of *kind*, for which a change matters."""
        if change.key[0] == self.kind:
            yield change.key
        elif change.key[0] in self._dependents:
            for each in (change.old, change.new):
                if each and (key := self.cluster.key_of(controller_of(each.raw))) and key[0] == self.kind:
                    yield key

    def step(self, now: datetime) -> datetime | None:
        self.cluster.look()
        for change in self.cluster.changes(self._seen):
            for key in self.keys_of(change):
                self._due[key] = now
        self._seen = self.cluster.api.version
        due = (key for key, at in self._due.items() if at <= now and key not in self._running)
        for key in sorted(due, key=lambda key: key[1:]):
            del self._due[key]
            self._running.add(key)
            self._spawn(functools.partial(self._work, key, now), f"{self.kind.plural} {key[2]}")
        waits = [now + POLL] if self._running else []
        return min([*waits, *(at for key, at in self._due.items() if key not in self._running)], default=None)

    def _work(self, key: Key, now: datetime) -> None:
        try:
            again = self._reconciled(key, now)
        finally:
            self._running.discard(key)
        if again is not None:
            self._due[key] = min(again, self._due.get(key, again))

    def _reconciled(self, key: Key, now: datetime) -> datetime | None:
        self.cluster.look()
        raw = self.cluster.get(key)
        if raw is None:
            self._failures.pop(key, None)
            return None
        try:
            again = self.reconcile(raw, now)
        except KubeError:
            self._failures[key] = failures = self._failures.get(key, 0) + 1
            return now + timedelta(seconds=min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(failures, 20)))
        self._failures.pop(key, None)
        return again

    # What controllers write.

    def set_status(self, raw: Raw, status: Raw) -> None:
        """All of it; fields with nothing to say are left out, as Go does."""
        new = {name: value for name, value in status.items() if value not in (0, "", None, [])}
        old = raw.get("status") or {}
        always = {name: 0 for name in old if name not in new and name in ALWAYS}
        if {**new, **always} != old:
            change = {**dict.fromkeys(old), **new, **always}
            self.edit(raw, {"status": change})

    def edit(self, raw: Raw, change: Raw) -> None:
        metadata = raw["metadata"]
        key = self.cluster.key_of(metadata["uid"])
        if key is None:
            return
        self.cluster.api.edit(key[0], key[2], change, key[1], manager=MANAGER)

    def delete(self, resource: Resource, raw: Raw) -> None:
        """One that is gone already is deleted."""
        metadata = raw["metadata"]
        try:
            self.client.delete(resource, metadata["name"], metadata.get("namespace"))
        except NotFound:
            return


ALWAYS = frozenset(
    {
        "currentNumberScheduled",
        "desiredNumberScheduled",
        "numberMisscheduled",
        "numberReady",
        "replicas",
        "availableReplicas",
    }
)
"""Counts that some kinds write even when they are 0."""
