"""What one turn decides on: the pods as they are known, and what was decided before and is not yet known to be done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from controllers.elasticity.annotations import Wish, wish_of
from controllers.elasticity.nodes import SuperNodes
from controllers.elasticity.pending_writes import Do, Intent
from controllers.elasticity.placement import Siblings, Standing, standing
from controllers.elasticity.pod_cache import Book
from controllers.elasticity.pods import Pod
from settings import ElasticitySettings
from webhook.elasticity import is_daemon_pod


@dataclass(frozen=True)
class Scene:
    """*under_way* was taken before any pod is read; *switch* is the global one."""

    under_way: Mapping[str, Intent]
    book: Book
    nodes: SuperNodes
    settings: ElasticitySettings
    switch: bool | None
    may_begin: Callable[[str], bool]
    first_ordinal: Callable[[Pod], int | None]
    """The least ordinal of a pod's StatefulSet; None while that is not known."""

    def is_idle(self, uid: str) -> bool:
        return uid not in self.under_way and self.may_begin(uid)

    def idle(self, pods: Iterable[Pod]) -> Iterator[Pod]:
        return (pod for pod in pods if self.is_idle(pod.metadata.uid))

    def wish(self, pod: Pod) -> Wish:
        return wish_of(pod, self.switch, self.settings)

    def siblings(self, key: str) -> Siblings:
        """How many of the key are local, or will be, and how many are on super nodes, or on their way there."""
        pods = self.book.having(f"key {key}")
        return Siblings(sum(map(self._is_local, pods)), sum(map(self._is_sent, pods)))

    def sent(self) -> list[Pod]:
        """All that are on super nodes, or may come to be there.

        A pod that takes its next step while this is read is found twice rather than not at all.
        """
        found = [
            pod
            for pod in self.book.having("gated")
            if self._is_intended(pod, Do.SEND) or self._is_intended(pod, Do.LET)
        ]
        found += (
            pod for pod in self.book.having("unbound") if pod.may_be_sent or self._is_intended(pod, Do.BURST)
        )
        for name in self.nodes.names:
            found += self.book.having(f"node {name}")
        return [
            pod
            for pod in {pod.metadata.uid: pod for pod in found}.values()
            if not is_daemon_pod(pod.metadata)
        ]

    def _is_local(self, pod: Pod) -> bool:
        what = standing(pod, self.nodes.names)
        return what is Standing.LOCAL or (what is Standing.GATED and self._is_intended(pod, Do.KEEP))

    def _is_sent(self, pod: Pod) -> bool:
        what = standing(pod, self.nodes.names)
        return what is Standing.SUPER or (what is Standing.GATED and self._is_intended(pod, Do.SEND))

    def _is_intended(self, pod: Pod, do: Do) -> bool:
        intent = self.under_way.get(pod.metadata.uid)
        return intent is not None and intent.do is do
