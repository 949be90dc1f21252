"""What is done every few seconds for all pods: metrics, Events for those that wait long, and settings that changed."""

from __future__ import annotations

from controllers.elasticity.eligibility import Eligibility
from controllers.elasticity.event_handlers import EventHandlers
from controllers.elasticity.reporter import Reporter
from controllers.elasticity.snapshot import Sources
from controllers.elasticity.writer import Writer


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
