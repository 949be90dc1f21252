"""What one plan is decided on, read at one time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from api.health_checks import deployment_name
from api.ingress_daemonset.node_matching import FollowedNode, Where, matches, where_of
from api.ingress_daemonset.types import IngressDaemonSet, time_of
from controllers.ingress_daemonset import rollout_annotations
from controllers.ingress_daemonset.canary import Measurement
from controllers.ingress_daemonset.children import Children, Seen, Target, Workload, Writes, target
from controllers.ingress_daemonset.detachment import Readings
from controllers.ingress_daemonset.failures import NO_ROLLBACK, Rollback
from controllers.ingress_daemonset.load_balancers import BackendsByNode
from controllers.ingress_daemonset.nodes import DrainStatus, NodeRollout


@dataclass(frozen=True)
class Snapshot:
    """*readings* are of the health checkers of nodes that are being detached, *backends* of load balancers."""

    resource: IngressDaemonSet
    nodes: Sequence[FollowedNode]
    children: Children
    now: datetime
    writes: Writes
    readings: Readings
    rollback: Rollback = NO_ROLLBACK
    measured: Measurement | None = None
    """The last answer to the query of the last plan."""
    backends: BackendsByNode = field(default_factory=dict)

    def rollouts(self, before: Sequence[NodeRollout] = ()) -> list[NodeRollout]:
        """One for each node on which pods run or should run; unchanged ones are reused from *before*."""
        held = {each.metadata.name: each for each in self.children["Deployment"]}
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
        backends = self.backends.get(node.name, ())
        held = deployments.get(deployment_name(resource.metadata.name, node.name))
        drain = DrainStatus(
            resource.stored.drain_requests.get(node.name, ""), node.name in resource.stored.evictable_nodes
        )
        same = known.get(node.name)
        # Cached objects are values, replaced when they change.
        is_same = same is not None and same.node is node and same.deployment is held
        if same and is_same and (same.readings, same.drain, same.backends) == (readings, drain, backends):
            return same
        runs = held is not None and held.is_of(resource.metadata.uid)
        if not matches(where, node, runs=runs):
            return None
        return NodeRollout(resource, node, held, self.writes, readings, backends, drain)

    def _still_holds(self, before: Sequence[NodeRollout]) -> bool:
        """Whether the same was desired then: a NodeRollout depends on the spec and the uid."""
        if not before:
            return False
        then = before[0].resource
        desired = (then.spec, then.metadata.uid, before[0].writes)
        return desired == (self.resource.spec, self.resource.metadata.uid, self.writes)


def first_seen(
    before: Seen,
    resource: IngressDaemonSet,
    nodes: Iterable[FollowedNode],
    deployments: Iterable[Workload],
    now: datetime,
) -> Seen:
    """When each mark was first seen, and each timestamp of a detachment; those that are gone are forgotten.

    With another leader, graces begin again.
    """
    return {each: before.get(each, now) for each in _moments(resource, nodes, deployments)}


def _moments(
    resource: IngressDaemonSet, nodes: Iterable[FollowedNode], deployments: Iterable[Workload]
) -> Iterator[tuple[Target, datetime]]:
    wanted = resource.spec.update_strategy.rolling_update.timestamp
    for held in deployments:
        if mark := rollout_annotations.on_deployment(held.metadata.annotations):
            yield target("Deployment", held.metadata), mark.at
    for node in nodes:
        annotations = node.metadata.annotations
        if mark := rollout_annotations.on_node(annotations).get(resource.metadata.uid):
            yield target("Node", node.metadata), mark.at
        if wanted and (at := time_of(annotations.get(wanted.key, ""))):
            yield target("Node", node.metadata), at
