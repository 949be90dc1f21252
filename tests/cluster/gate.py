"""In which order nodes opened and pods came to them, by the revisions of the one history that they share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby

from api.anycast_ip import is_tainted
from dev.lab.nodes import NODES
from dev.lab.session import Lab
from dev.lab.watching import Observations, observed_by_now, watching
from kube.types import Node, Pod
from tests.cluster.workloads import PODS


class Gate:
    """Follows all nodes and pods; each look takes in what has been observed by then."""

    def __init__(self, observations: Observations) -> None:
        self._observations = observations
        self._states: defaultdict[str, list[tuple[int, bool]]] = defaultdict(list)
        """By the name of the node: from which revision on it was open, or not."""
        self._placed: dict[str, tuple[Pod, int]] = {}

    def course(self, node: str) -> list[bool]:
        """Whether it was open, from its beginning: each change."""
        self._listen()
        return [state for state, _ in groupby(was_open for _, was_open in self._states[node])]

    def placed(self, namespace: str) -> set[str]:
        """The nodes to which its pods have come."""
        return {pod.spec.node_name for pod, _ in self._pods(namespace)}

    def too_early(self, namespace: str) -> list[str]:
        """Its pods that came to a node while that was not open."""
        return [
            f"{pod.metadata.name} came to {pod.spec.node_name} at {revision}"
            for pod, revision in self._pods(namespace)
            if not self._was_open(pod.spec.node_name, revision)
        ]

    def _pods(self, namespace: str) -> list[tuple[Pod, int]]:
        self._listen()
        return [each for each in self._placed.values() if each[0].metadata.namespace == namespace]

    def _was_open(self, node: str, revision: int) -> bool:
        return [was_open for since, was_open in self._states[node] if since < revision][-1:] == [True]

    def _listen(self) -> None:
        for each in observed_by_now(self._observations):
            if isinstance(each.object, Node):
                self._states[each.object.metadata.name].append((each.revision, not is_tainted(each.object)))
            elif isinstance(each.object, Pod) and each.object.spec.node_name:
                self._placed.setdefault(each.object.metadata.uid, (each.object, each.revision))


@contextmanager
def watched(lab: Lab) -> Iterator[Gate]:
    """All nodes and pods, from now until the end of the block."""
    with watching(lab.client, {NODES: Node, PODS: Pod}) as observations:
        yield Gate(observations)
