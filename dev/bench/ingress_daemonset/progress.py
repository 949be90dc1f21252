"""When all Deployments of a namespace, and all nodes, had come to what is waited for, as a watch shows it."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Protocol

from api.ingress_daemonset import DETACHED_BY, TO_BE_UPDATED
from dev.lab.errors import LabError
from dev.lab.informing import Whole, informer_of
from kube.client import Client
from kube.resources import DEPLOYMENTS, NODES, Selection
from kube.types import Node

SYNC = 60.0


class Deployment(Whole, frozen=True):
    @property
    def available(self) -> bool:
        seen = self.status.get("observedGeneration", 0) >= self.metadata.generation
        return seen and self._has("availableReplicas")

    def runs(self, image: str) -> bool:
        """Whether it is rolled out to *image*, and nothing is to be updated any more."""
        complete = self._has("replicas") and self._has("updatedReplicas")
        wanted = all(each["image"] == image for each in self.spec["template"]["spec"]["containers"])
        return wanted and self.available and complete and TO_BE_UPDATED not in self.metadata.annotations

    def _has(self, count: str) -> bool:
        return bool(self.status.get(count, 0) == self.spec["replicas"])


Seen = Deployment | Node
Observed = SimpleQueue[tuple[Seen, float]]
"""What was seen, and when, by the monotonic clock."""


@dataclass(frozen=True)
class Made:
    """Seconds until the first Deployment existed, until all did, and until all their pods were available."""

    first: float
    existed: float
    available: float


class Course(Protocol):
    """What is waited for."""

    def hear(self, seen: Seen, at: float) -> None: ...

    @property
    def left(self) -> int:
        """How many are not there yet."""


class Creation:
    """*size* Deployments come to be, and become available."""

    def __init__(self, size: int) -> None:
        self.first_at = self.existed_at = self.available_at = 0.0
        self._size = size
        self._there, self._available = set[str](), set[str]()

    def since(self, begin: float) -> Made:
        return Made(self.first_at - begin, self.existed_at - begin, self.available_at - begin)

    def hear(self, seen: Seen, at: float) -> None:
        if not isinstance(seen, Deployment):
            return
        name = seen.metadata.name
        if name not in self._there:
            self._there.add(name)
            self.first_at, self.existed_at = self.first_at or at, at
        if seen.available and name not in self._available:
            self._available.add(name)
            self.available_at = at

    @property
    def left(self) -> int:
        return self._size - len(self._available)


class Rollout:
    """*deployments* come to run *image*; *nodes* are detached in the course of it, and given back."""

    def __init__(self, image: str, deployments: Collection[str], nodes: Collection[str] = ()) -> None:
        self.ended_at, self.most_off = 0.0, 0
        self._image = image
        self._old, self._waiting, self._off = set(deployments), set(nodes), set[str]()

    def hear(self, seen: Seen, at: float) -> None:
        self.ended_at = at
        if isinstance(seen, Node):
            self._hear_of(seen)
        elif seen.runs(self._image):
            self._old.discard(seen.metadata.name)

    def _hear_of(self, node: Node) -> None:
        name = node.metadata.name
        if DETACHED_BY in node.metadata.annotations:
            self._off.add(name)
            self.most_off = max(self.most_off, len(self._off))
        elif name in self._off:
            self._off.remove(name)
            self._waiting.discard(name)

    @property
    def left(self) -> int:
        return len(self._old) + len(self._waiting)


@contextmanager
def watching(client: Client, namespace: str) -> Iterator[Observed]:
    """All Deployments of *namespace* and all nodes, beginning with those that are there."""
    observed: Observed = SimpleQueue()
    followed = (
        informer_of(client, DEPLOYMENTS, Deployment, Selection(namespace)),
        informer_of(client, NODES, Node),
    )
    with ExitStack() as stack:
        for each in followed:
            each.on_change(_telling(observed))
            each.source.start()
            stack.callback(each.stop)
            if not each.wait_synced(SYNC):
                raise LabError(f"Deployments and nodes could not be read in {SYNC:.0f} s")
        yield observed


def _telling(observed: Observed) -> Callable[[Seen | None, Seen | None], None]:
    def report(_old: Seen | None, new: Seen | None) -> None:
        if new is not None:
            observed.put((new, time.monotonic()))

    return report


def follow(observed: Observed, course: Course, what: str, deadline: float) -> None:
    """Return when *course* is at its end; LabError when it is not by *deadline* on the monotonic clock."""
    while course.left:
        try:
            course.hear(*observed.get(timeout=max(0.0, deadline - time.monotonic())))
        except Empty:
            raise LabError(f"{what}: {course.left} are left, and the time is over") from None
