"""What one decision on an IngressDaemonSet rests on, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from controllers.ingress_daemonset.actions import Writes
from controllers.ingress_daemonset.child_resources import Children
from controllers.ingress_daemonset.confirmation import Readings
from controllers.ingress_daemonset.node_rollout import DrainStatus, NodeRollout
from controllers.ingress_daemonset.types import Workload
from healthchecker.naming import deployment_name
from webhook.ingress_daemonset.node_matching import FollowedNode, Where, matches, where_of
from webhook.ingress_daemonset.types import IngressDaemonSet

NO_DRAIN = DrainStatus()


@dataclass(frozen=True)
class Snapshot:
    """*readings* are of the health checkers of nodes that are being detached."""

    resource: IngressDaemonSet
    nodes: Sequence[FollowedNode]
    children: Children
    now: datetime
    writes: Writes
    readings: Readings

    def rollouts(self, before: Sequence[NodeRollout] = ()) -> list[NodeRollout]:
        """One for each node on which pods run or should run; unchanged ones are reused from *before*."""
        held = {each.metadata.name: each for each in self.children.deployments}
        known = {each.node.name: each for each in before} if self._still_holds(before) else {}
        where = where_of(self.resource)
        nodes = sorted(self.nodes, key=lambda each: each.name)
        found = (self._rollout(node, held, where, known) for node in nodes)
        return [each for each in found if each]

    def _rollout(
        self,
        node: FollowedNode,
        deployments: Mapping[str, Workload],
        where: Where,
        known: Mapping[str, NodeRollout],
    ) -> NodeRollout | None:
        resource, readings = self.resource, self.readings.get(node.name, ())
        held = deployments.get(deployment_name(resource.metadata.name, node.name))
        requested, evictable = (
            resource.drain_requests.get(node.name, ""),
            node.name in resource.evictable_nodes,
        )
        drain = DrainStatus(requested, evictable) if requested or evictable else NO_DRAIN
        same = known.get(node.name)
        # Cached objects are values, replaced when they change.
        is_same = same is not None and same.node is node and same.deployment is held
        if same and is_same and (same.readings, same.drain) == (readings, drain):
            return same
        runs = held is not None and held.is_of(resource.metadata.uid)
        if not matches(where, node, runs=runs):
            return None
        return NodeRollout(resource, node, held, self.writes, readings, drain)

    def _still_holds(self, before: Sequence[NodeRollout]) -> bool:
        """Whether the same was desired then: a NodeRollout depends on the spec and the uid."""
        if not before:
            return False
        then = before[0].resource
        desired = (then.spec, then.metadata.uid, before[0].writes)
        return desired == (self.resource.spec, self.resource.metadata.uid, self.writes)
