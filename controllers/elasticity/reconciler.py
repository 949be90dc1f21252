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
from controllers.elasticity.room import Others, SuperNodes, Usage
from controllers.elasticity.snapshot import Snapshot
from controllers.elasticity.sources import Sources
from controllers.elasticity.takeover import Takeover
from controllers.elasticity.writer import Writer


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
        self._outages = Outages(clock.monotonic)
        self._rejections = Rejections(clock.monotonic)
        self._standstills = Standstills(clock.monotonic)

    def reconcile(self, key: str) -> float | None:
        if not self._takeover.is_over(key):
            return None  # the takeover queues the key
        snapshot = self._sources.snapshot(key, self._assumptions.of(key), self._clock.now())
        settings = snapshot.cluster.settings
        with self._assumptions.deciding(settings.max_super_pods) as usage:
            made = plan(snapshot, self._super_nodes(snapshot, usage), self._past(key, snapshot))
            self._writer.start(made.actions)
            if made.is_short:
                self._assumptions.wait(key)
        if any(action.kind is Kind.DELETE for action in made.actions):
            self._rejections.note(key, settings.home_failover.home_after)
        for event in made.events:
            self._reporter.once(event.pod, event.reason, event.why, event.type)
        self._reporter.wait(made.waits)
        looked_up = [self._eligibility.look_up(pod) for pod in made.to_look_up]
        return min((*made.again, *looked_up), default=None)

    def keep_only(self, keys: Callable[[], Collection[str]]) -> None:
        self._standstills.keep_only(keys)

    def _super_nodes(self, snapshot: Snapshot, usage: Usage) -> SuperNodes:
        nodes = snapshot.cluster.nodes
        outages = self._outages.observe(nodes.super)
        others = Others(usage, self._sources.pods, self._assumptions.to_super_nodes, outages)
        return SuperNodes(nodes, others, self._eligibility, gpus=snapshot.cluster.settings.gpus)

    def _past(self, key: str, snapshot: Snapshot) -> Past:
        return Past(self._rejections.includes(key), self._is_stalled(key, snapshot), self._writer.rests)

    def _is_stalled(self, key: str, snapshot: Snapshot) -> bool:
        """Only a limit holds up a rollout."""
        if not snapshot.cluster.settings.max_super_pods.is_limited or not (gated := snapshot.gated):
            return False
        pods = self._sources.pods.of_workload(gated[0].workload)
        is_still = stands_still(pods, key, snapshot.assumed, snapshot.now)
        return self._standstills.observe(key, is_still=is_still) >= STANDSTILL


class Outages:
    """For how long this leader has seen super nodes in a state that passes; *clock* is monotonic, in seconds.

    Nodes say since when, too, but a provider may renew that time with every report, and pods would wait indefinitely.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}

    def observe(self, nodes: Iterable[WatchedNode]) -> Mapping[str, float]:
        """The seconds until now, by name."""
        now = self._clock()
        names = [node.metadata.name for node in nodes if node.in_trouble]
        self._since = {name: self._since.get(name, now) for name in names}
        return {name: now - since for name, since in self._since.items()}


class Rejections:
    """Keys whose pods super nodes did not take, for a while; *clock* is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def note(self, key: str, seconds: float) -> None:
        now = self._clock()
        lasting = {key: until for key, until in self._until.items() if until > now}
        self._until = lasting | {key: now + seconds}

    def includes(self, key: str) -> bool:
        return self._until.get(key, 0.0) > self._clock()


class Standstills:
    """For how long the rollout of each key has stood still, as this leader saw it; *clock* is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}

    def observe(self, key: str, *, is_still: bool) -> float:
        """The seconds until now."""
        if not is_still:
            self._since.pop(key, None)
            return 0.0
        return self._clock() - self._since.setdefault(key, self._clock())

    def keep_only(self, keys: Callable[[], Collection[str]]) -> None:
        keep_only(self._since, keys)
