"""Reads of one review: a pod that is being evicted, and the annotations of its namespace, cached for seconds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from kube.client import Client
from kube.errors import Unreachable
from kube.resources import NAMESPACES, PODS
from kube.types import Namespace, Pod
from kube.waiting import acquired
from runtime import threading, time

NAMESPACE_SECONDS = 5.0
"""For how long a namespace is cached: a storm costs one read of its namespace."""
READS = 64
"""Concurrent reads of pods: more would open connections beyond the pool and crowd out the writes."""


@dataclass
class _Known:
    """A namespace as it was at *read_at*; the holder of *turn* may read it again."""

    turn: threading.Lock = field(default_factory=threading.Lock)
    namespace: Namespace = field(default_factory=Namespace)
    read_at: float = -math.inf


class Cluster:
    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._clock = client, clock
        self._namespaces: dict[str, _Known] = {}
        self._lock = threading.Lock()
        self._reads = threading.BoundedSemaphore(READS)

    def pod(self, namespace: str, name: str, *, deadline: float) -> Pod:
        if not acquired(self._reads, self._left(deadline)):
            raise Unreachable(f"pod {namespace}/{name} could not be read within the deadline")
        try:
            return self._client.get(PODS, name, namespace, type=Pod, timeout=self._left(deadline))
        finally:
            self._reads.release()

    def namespace(self, name: str, *, deadline: float) -> Namespace:
        """Of many concurrent callers one reads and the others wait; when that fails, the next one reads."""
        known = self._known(name)
        if not acquired(known.turn, self._left(deadline)):
            raise Unreachable(f"namespace {name} could not be read within the deadline")
        try:
            if self._is_old(known):
                known.namespace = self._client.get(
                    NAMESPACES, name, type=Namespace, timeout=self._left(deadline)
                )
                known.read_at = self._clock()
            return known.namespace
        finally:
            known.turn.release()

    def _known(self, name: str) -> _Known:
        with self._lock:
            if name not in self._namespaces:
                # Only namespaces of the last seconds are kept, which bounds their number.
                kept = {
                    key: each
                    for key, each in self._namespaces.items()
                    if each.turn.locked() or not self._is_old(each)
                }
                self._namespaces = kept | {name: _Known()}
            return self._namespaces[name]

    def _is_old(self, known: _Known) -> bool:
        return self._clock() - known.read_at > NAMESPACE_SECONDS

    def _left(self, deadline: float) -> float:
        return max(0.1, deadline - self._clock())
