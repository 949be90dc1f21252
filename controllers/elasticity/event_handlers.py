"""What makes keys due: changes in the cluster, and a run every few seconds, which keeps the metrics, too."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from controllers.elasticity.eligibility import Eligibility
from controllers.elasticity.nodes import WatchedNode, matters
from controllers.elasticity.patches import cost_change
from controllers.elasticity.planner import standing
from controllers.elasticity.pods import KEPT, Pod
from controllers.elasticity.quota import Quota
from controllers.elasticity.reporter import Reporter
from controllers.elasticity.snapshot import Sources
from controllers.elasticity.writer import Writer
from webhook.elasticity import MODE, is_daemon_pod

READ = KEPT | {MODE}
"""The annotations that a decision reads."""


class EventHandlers:
    """*enqueue* takes keys; handlers do nothing else that takes time."""

    def __init__(self, sources: Sources, quota: Quota, enqueue: Callable[[str], None]) -> None:
        self._sources, self._quota, self._enqueue = sources, quota, enqueue
        self._names = sources.nodes().names

    def pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        seen = new or old
        if seen is None:
            return
        self.count(seen)
        if self._role(old) != self._role(new):
            for key in {pod.key for pod in (old, new) if pod is not None}:
                self._enqueue(key)

    def node_changed(self, old: WatchedNode | None, new: WatchedNode | None) -> None:
        if not matters(old, new):
            return
        names = self._sources.nodes().names
        if names == self._names:
            self.look_again()
            return
        self._names = names
        for pod in self._sources.pods.all():
            self.count(pod)
        self.look_again(all_keys=True)

    def look_again(self, *, all_keys: bool = False) -> None:
        """At all keys with undecided pods, or at all: the switch, the nodes or the settings have changed."""
        pods = self._sources.pods
        found: Iterable[Pod] = pods.all() if all_keys else (*pods.having("gated"), *pods.having("unbound"))
        for key in dict.fromkeys(pod.key for pod in found):
            self._enqueue(key)

    def count(self, pod: Pod) -> None:
        """All that follows from a write of ours: it was decided."""
        self._quota.see(pod, lambda: self._counts(self._sources.pods.current(pod)))

    def _counts(self, pod: Pod | None) -> bool:
        """Whether it is on a super node, or may come there."""
        if pod is None or not pod.active or is_daemon_pod(pod.metadata):
            return False
        return pod.node_name in self._sources.nodes().names or pod.may_come_to_super_nodes

    def _role(self, pod: Pod | None) -> object:
        """All of a pod that a decision reads, without what the kubelet reports all the time."""
        if pod is None:
            return None
        names, annotations = self._sources.nodes().names, pod.metadata.annotations
        return (
            pod.key,
            standing(pod, names),
            pod.stuck_since,
            cost_change(pod, names) is None,
            [annotations.get(name) for name in READ],
        )


class Upkeep:
    def __init__(
        self,
        sources: Sources,
        handlers: EventHandlers,
        reporter: Reporter,
        eligibility: Eligibility,
        writer: Writer,
    ) -> None:
        self._sources, self._handlers, self._reporter = sources, handlers, reporter
        self._eligibility, self._writer = eligibility, writer
        self._settings = sources.settings()

    def run(self) -> None:
        settings = self._sources.settings()
        if settings != self._settings:
            self._settings = settings
            self._handlers.look_again(all_keys=True)
        self._report()
        self._eligibility.keep_only(self._waiting)
        self._writer.keep_only(self._all)
        self._reporter.keep_only(self._all)

    def _report(self) -> None:
        having = self._sources.pods.having
        self._reporter.report_waiting(having("gated"))
        on_super_nodes = sum(len(having(f"node {name}")) for name in self._sources.nodes().names)
        self._reporter.count(
            pending=sum(pod.stuck_since is not None for pod in having("unbound")),
            local=len(having("placed local")),
            super=on_super_nodes + len(having("sent")),
        )

    def _waiting(self) -> set[str]:
        having = self._sources.pods.having
        return {pod.metadata.uid for pod in (*having("gated"), *having("unbound"))}

    def _all(self) -> set[str]:
        return {pod.metadata.uid for pod in self._sources.pods.all()}
