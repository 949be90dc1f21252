"""No more pods are let to super nodes than is configured, in a namespace and in all."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable

from controllers.elasticity.pods import Pod
from settings.elasticity import MaxSuperPods


class Room:
    """What is left beside the pods that are there, or on their way, in the *namespaces* given, one for each."""

    def __init__(self, limits: MaxSuperPods, namespaces: Iterable[str]) -> None:
        self._limits = limits
        self._taken = Tally(namespaces)
        self._total = self._taken.total()

    def take(self, pod: Pod) -> str:
        """Nothing when there was room, and it is *pod*'s now; else which limit is reached."""
        namespace = pod.metadata.namespace
        if reached := self._reached(namespace):
            return reached
        self._taken[namespace] += 1
        self._total += 1
        return ""

    def _reached(self, namespace: str) -> str:
        total, each = self._limits.total, self._limits.per_namespace
        if total and self._total >= total:
            return f"maxSuperPods.total is {total} and {self._total} pods are on super nodes"
        if each and self._taken[namespace] >= each:
            return f"maxSuperPods.perNamespace is {each} and {self._taken[namespace]} pods of {namespace} are there"
        return ""
