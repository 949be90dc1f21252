"""What an admission reads of the cluster: a pod that is being evicted, and the annotations of a namespace."""

from __future__ import annotations

import time
from collections.abc import Callable

from kube.client import Client, Resource
from kube.objects import Namespace, Pod

PODS = Resource("", "v1", "pods")
NAMESPACES = Resource("", "v1", "namespaces", namespaced=False)

NAMESPACE_SECONDS = 5.0
"""How long a namespace's annotations are believed: what makes a storm cost one read of its namespace."""


class Cluster:
    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._clock = client, clock
        self._namespaces: dict[str, tuple[float, Namespace]] = {}

    def pod(self, namespace: str, name: str, *, deadline: float) -> Pod:
        return self._client.get(PODS, name, namespace, type=Pod, timeout=self._left(deadline))

    def namespace(self, name: str, *, deadline: float) -> Namespace:
        read_at, known = self._namespaces.get(name, (0.0, None))
        if known is None or self._clock() - read_at > NAMESPACE_SECONDS:
            known = self._client.get(NAMESPACES, name, type=Namespace, timeout=self._left(deadline))
            self._namespaces[name] = (self._clock(), known)
        return known

    def _left(self, deadline: float) -> float:
        return max(0.1, deadline - self._clock())
