"""Decide where the pods of one owner and revision belong, and start the writes that take them there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from controllers.elasticity.decision import Decision, Rejections
from controllers.elasticity.eligibility import Eligibility
from controllers.elasticity.fleet import Fleet, SuperNodeDestination
from controllers.elasticity.nodes import Outages
from controllers.elasticity.quota import Quota, Room
from controllers.elasticity.reporter import Reporter
from controllers.elasticity.snapshot import Snapshot, Sources
from controllers.elasticity.takeover import Takeover
from controllers.elasticity.writer import Writer


@dataclass(frozen=True)
class SuperNodeState:
    """What all decisions share about super nodes."""

    quota: Quota
    eligibility: Eligibility
    outages: Outages
    rejections: Rejections


class Reconciler:
    """*now* is the time of day."""

    def __init__(
        self,
        sources: Sources,
        takeover: Takeover,
        writer: Writer,
        state: SuperNodeState,
        reporter: Reporter,
        now: Callable[[], datetime],
    ) -> None:
        self._sources, self._takeover, self._writer = sources, takeover, writer
        self._state, self._reporter, self._now = state, reporter, now

    def reconcile(self, key: str) -> float | None:
        if not self._takeover.is_over(key):
            return None  # the takeover queues the key
        snapshot = self._sources.snapshot(key, self._writer.assumed(key), self._now())
        with self._state.quota.acquire(key, snapshot.settings.max_super_pods) as room:
            destination = self._destination(snapshot, room)
            decision = Decision(snapshot, destination, self._state.rejections, self._writer.rests)
            decision.make()
            self._writer.start(decision.actions)
        for each in decision.events:
            self._reporter.once(each.pod, each.reason, each.why, each.type)
        self._reporter.wait(decision.waits)
        looked_up = [self._state.eligibility.look_up(pod) for pod in destination.to_look_up]
        return min((*decision.again, *looked_up), default=None)

    def _destination(self, snapshot: Snapshot, room: Room) -> SuperNodeDestination:
        having, nodes = self._sources.pods.having, snapshot.nodes
        self._state.outages.observe(nodes.super)
        fleet = Fleet(nodes, having, self._writer.assumed_on_super_nodes)
        return SuperNodeDestination(self._state.eligibility, fleet, room, self._state.outages)
