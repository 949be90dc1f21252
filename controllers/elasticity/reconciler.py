"""Decide where the pods of one owner and revision belong, and start the writes that take them there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from controllers.clock import Clock
from controllers.elasticity.eligibility import Eligibility
from controllers.elasticity.nodes import WatchedNode
from controllers.elasticity.patches import Kind
from controllers.elasticity.planner import STANDSTILL, Past, plan, stands_still
from controllers.elasticity.pods import keep_only
from controllers.elasticity.reporter import Reporter
from controllers.elasticity.room import Fleet, Quota, SuperNodes, counted
from controllers.elasticity.snapshot import Snapshot
from controllers.elasticity.sources import Sources
from controllers.elasticity.takeover import Takeover
from controllers.elasticity.writer import Writer
from runtime import threading


class Reconciler:
    """Keeps what this leader has seen and the cluster does not say: outages, standstills and rejections."""

    def __init__(
        self,
        sources: Sources,
        takeover: Takeover,
        writer: Writer,
        eligibility: Eligibility,
        reporter: Reporter,
        clock: Clock,
    ) -> None:
        self._sources, self._takeover, self._writer = sources, takeover, writer
        self._eligibility, self._reporter, self._clock = eligibility, reporter, clock
        self._assumptions = writer.assumptions
        self._deciding = threading.Lock()
        self._in_trouble_since: dict[str, float] = {}
        self._still_since: dict[str, float] = {}
        self._rejected_until: dict[str, float] = {}

    def reconcile(self, key: str) -> float | None:
        if not self._takeover.is_over(key):
            return None  # the takeover queues the key
        with self._deciding:  # one at a time: the next one finds assumed what this one decides
            self._writer.short.add(key)  # before it reads, so that it misses no room that is given back
            assumed, going = self._assumptions.of(key), self._assumptions.to_super_nodes()
            snapshot = self._sources.snapshot(key, assumed, self._clock.now())
            nodes, settings = snapshot.cluster.nodes, snapshot.cluster.settings
            fleet = Fleet(nodes, self._sources.pods, going, gpus=settings.gpus)
            there = counted(self._sources.pods, nodes.names, going)
            quota = Quota(settings.max_super_pods, there, snapshot.now)
            super_nodes = SuperNodes(fleet, quota, self._eligibility, self._outages(nodes.super))
            made = plan(snapshot, super_nodes, self._past(key, snapshot))
            self._writer.start(made.actions)
            if not made.is_short:
                self._writer.short.discard(key)
        if any(action.kind is Kind.DELETE for action in made.actions):
            now = self._clock.monotonic()
            lasting = {key: until for key, until in self._rejected_until.items() if until > now}
            self._rejected_until = lasting | {key: now + settings.home_failover.home_after}
        for event in made.events:
            self._reporter.once(event.pod, event.reason, event.why, event.type)
        self._reporter.wait(made.waits)
        looked_up = [self._eligibility.look_up(pod) for pod in made.to_look_up]
        return min((*made.again, *looked_up), default=None)

    def keep_only(self, keys: Callable[[], Collection[str]]) -> None:
        """*keys* are those with gated pods."""
        keep_only(self._still_since, keys)

    def _outages(self, nodes: Iterable[WatchedNode]) -> Mapping[str, float]:
        """The seconds, by name, for which super nodes have been in a state that passes.

        Nodes say since when, too, but a provider may renew that time with every report, and pods would wait
        indefinitely.
        """
        now, since = self._clock.monotonic(), self._in_trouble_since
        names = [node.metadata.name for node in nodes if node.in_trouble]
        self._in_trouble_since = {name: since.get(name, now) for name in names}
        return {name: now - then for name, then in self._in_trouble_since.items()}

    def _past(self, key: str, snapshot: Snapshot) -> Past:
        is_rejected = self._rejected_until.get(key, 0.0) > self._clock.monotonic()
        return Past(is_rejected, self._is_stalled(key, snapshot), self._writer.rests)

    def _is_stalled(self, key: str, snapshot: Snapshot) -> bool:
        """Whether its rollout has stood still for long, as this leader saw it. Only a limit holds one up."""
        if not snapshot.cluster.settings.max_super_pods.is_limited or not (gated := snapshot.gated):
            return False
        pods = self._sources.pods.of_workload(gated[0].workload)
        if not stands_still(pods, key, snapshot.assumed, snapshot.now):
            self._still_since.pop(key, None)
            return False
        now = self._clock.monotonic()
        return now - self._still_since.setdefault(key, now) >= STANDSTILL
