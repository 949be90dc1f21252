"""What one plan is decided on, and an IngressDaemonSet with its nodes at that moment: which may begin, which wait."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property

import msgspec

from api.health_checks import deployment_name
from api.ingress_daemonset.status import Phase
from api.ingress_daemonset.template import FollowedNode, where_of
from api.ingress_daemonset.types import OFF, PREFERRED, IngressDaemonSet, share, suspended_until, time_of
from controllers.ingress_daemonset.children import (
    Action,
    Change,
    Seen,
    Target,
    Workload,
    Writes,
    change,
    delete,
    target,
    version_of,
)
from controllers.ingress_daemonset.detachment import (
    BackendsByNode,
    NodeBackends,
    Readings,
    attach_node,
    by_load_balancer,
    deployment_mark_of,
    detach_deployment,
    holders_of,
)
from controllers.ingress_daemonset.drift import Altered, Drift
from controllers.ingress_daemonset.health_checks import HealthCheckers
from controllers.ingress_daemonset.nodes import NodeRollout
from controllers.ingress_daemonset.pacing import (
    ClosedWindow,
    Failures,
    Measurement,
    Rollback,
    canary_of,
    failures_of,
    halting,
    waves_of,
    window_of,
)
from kube.types import after
from settings.windows import closes_at, opens_at

RETURN = 10
"""Seconds for which a node that no longer matches keeps its pods: its label may come back, as when it is replaced."""


@dataclass(frozen=True)
class Snapshot:
    """*deployments* are all of the namespace that bear our label, or have a name of ours.

    *readings* are of the health checkers of nodes that are being detached, *backends* of load balancers.
    """

    resource: IngressDaemonSet
    nodes: Sequence[FollowedNode]
    deployments: Sequence[Workload]
    now: datetime
    writes: Writes = field(default_factory=Writes)
    readings: Readings = field(default_factory=dict)
    rollback: Rollback = field(default_factory=Rollback)
    measured: Measurement | None = None
    """The last answer to the query of the last plan."""
    backends: BackendsByNode = field(default_factory=dict)
    checkers: HealthCheckers = field(default_factory=HealthCheckers)
    recorded: Sequence[Action] = ()
    """What has to be written of its ControllerRevisions."""

    def rollouts(self, before: Sequence[NodeRollout] = ()) -> list[NodeRollout]:
        """One for each node on which pods run or should run; unchanged ones are reused from *before*."""
        resource, uid, known = self.resource, self.resource.metadata.uid, dict[str, NodeRollout]()
        # A NodeRollout depends on the spec and the uid, and on cached objects, which are replaced when they change.
        if before and (before[0].resource.spec, before[0].uid) == (resource.spec, uid):
            known = {each.node.name: each for each in before}
        held = {each.metadata.name: each for each in self.deployments}
        where, found = where_of(resource), list[NodeRollout]()
        for node in sorted(self.nodes, key=lambda each: each.name):
            name, old = node.name, known.get(node.name)
            deployment = held.get(deployment_name(resource.metadata.name, name))
            seen = (self.readings.get(name, ()), self.backends.get(name, ()))
            drain = (resource.stored.drain_requests.get(name, ""), name in resource.stored.evictable_nodes)
            if (
                old
                and old.node is node
                and old.deployment is deployment
                and (old.readings, old.backends, old.drain_requested, old.evictable) == (*seen, *drain)
                and old.writes.about(old.written) == self.writes.about(old.written)
            ):
                found.append(old)
            elif where.matches(node, runs=deployment is not None and deployment.is_of(uid)):
                found.append(NodeRollout(resource, node, deployment, self.writes, *seen, *drain))
        return found

    def attachments(self) -> dict[str, Change]:
        """By the names of the nodes that bear a mark of the IngressDaemonSet: what attaches them."""
        uid = self.resource.metadata.uid
        changes = ((node.metadata, attach_node(node.metadata, uid)) for node in self.nodes)
        return {node.name: change("Node", node, each) for node, each in changes if each}


def first_seen(
    before: Seen,
    resource: IngressDaemonSet,
    nodes: Iterable[FollowedNode],
    deployments: Iterable[Workload],
    now: datetime,
) -> Seen:
    """When each mark was first seen, and each timestamp of a detachment or a drain; what is gone is forgotten.

    With another leader, graces begin again.
    """
    uid, wanted = resource.metadata.uid, resource.spec.update_strategy.rolling_update.timestamp
    found = list[tuple[Target, datetime]]()
    for held in deployments:
        if mark := deployment_mark_of(held.metadata.annotations):
            found.append((target("Deployment", held.metadata), mark.at))
    for node in nodes:
        annotations, marked = node.metadata.annotations, target("Node", node.metadata)
        if mark := holders_of(annotations).get(uid):
            found.append((marked, mark.at))
        if wanted and (at := time_of(annotations.get(wanted.key, ""))):
            found.append((marked, at))
    requests = resource.stored.drain_requests.items()
    found += [(Target("Node", "", name), at) for name, asked in requests if (at := time_of(asked))]
    return {each: before.get(each, now) for each in found}


@dataclass(frozen=True)
class Departure:
    """A Deployment whose node has left: the action for it now, or when it is deleted.

    It *counts* against the budget, since its node may come back. *doubt* is why a load balancer may still send traffic
    to the node, though the graces were over at *safe_at*.
    """

    held: Workload
    action: Action | None = None
    goes_at: datetime | None = None
    counts: bool = False
    doubt: str | None = None
    safe_at: datetime | None = None


def departure(snapshot: Snapshot, held: Workload, node: FollowedNode | None) -> Departure:
    """Its pods go when the load balancer sends *node* nothing more, which may be gone."""
    resource, now, annotations = snapshot.resource, snapshot.now, held.metadata.annotations
    rolling = resource.spec.update_strategy.rolling_update
    annotation, weights = rolling.deployment_annotation, rolling.weights
    serves, found = held.status.available_replicas > 0, Departure(held, counts=node is not None)
    if target("Deployment", held.metadata) in snapshot.writes.uncertain:
        return found
    # Nothing is waited for where no pod gets traffic, or by which nothing could be detached.
    grace, backends = RETURN if node else 0, list[NodeBackends]()
    if serves and annotation and (resource.spec.health_check_node_ports or weights):
        grace = max(grace, *(each.grace_period_seconds for each in (annotation, weights) if each))
    if weights and rolling.confirm != OFF and (serves or node):
        backends = by_load_balancer(weights.load_balancers, snapshot.backends.get(held.node, ()))
    if not grace and not backends:
        return replace(found, action=delete("Deployment", held.metadata))
    mark = deployment_mark_of(annotations)
    if mark is None and suspended_until(resource, now):
        # The Job that attaches all nodes may have removed it.
        return found
    if mark is None or not mark.leaving or (mark.key and mark.key not in annotations):
        changes = detach_deployment(annotations, annotation, now, leaving=True)
        return replace(found, action=change("Deployment", held.metadata, {"annotations": changes}))
    began = snapshot.writes.began(mark.at, target("Deployment", held.metadata))
    weighed = weights.grace_period_seconds if weights else 0
    weightless = (after(each.detached_since, weighed) for each in backends if each.detached_since)
    safe_at = max([after(began, grace), *weightless])
    if serves and node and (on_node := holders_of(node.metadata.annotations).get(resource.metadata.uid)):
        # It was detached to be drained, say, before it had to leave.
        since = snapshot.writes.began(on_node.at, target("Node", node.metadata))
        safe_at = max(safe_at, after(since, rolling.node_grace_seconds))
    if safe_at > now:
        return replace(found, goes_at=safe_at)
    doubt = next(filter(None, (each.detach_doubt for each in backends)), None)
    ends_at = after(safe_at, rolling.confirm_timeout_seconds) if rolling.confirm == PREFERRED else None
    if doubt and (ends_at is None or ends_at > now):
        return replace(found, goes_at=ends_at, doubt=doubt, safe_at=safe_at)
    return replace(found, action=delete("Deployment", held.metadata))


def budget(resource: IngressDaemonSet, nodes: int) -> int:
    """Of *nodes*, how many may be detached at a time, or be degraded where nodes are not detached."""
    rolling = resource.spec.update_strategy.rolling_update
    return share(rolling.max_unavailable_nodes if rolling.detaches else rolling.max_degraded_nodes, nodes)


class Rollout:
    """*before* has the nodes of the last plan.

    *left* bear a mark, and nothing of ours is left to update there: what attaches them, by their names. *departures*
    are Deployments without a node. *canary* is None unless only its nodes may begin, *waves* come after it, *closed* is
    None while the *window* is open, or there is none. *returns*: nodes go back to the template that all of them had,
    and nothing holds that up.
    """

    def __init__(self, snapshot: Snapshot, before: Sequence[NodeRollout]) -> None:
        resource = snapshot.resource
        self.resource, self.writes, self.now = resource, snapshot.writes, snapshot.now
        self.rollback, self.checkers, self.recorded = snapshot.rollback, snapshot.checkers, snapshot.recorded
        self.rolling = resource.spec.update_strategy.rolling_update
        self.version = version_of(resource)
        self.nodes = snapshot.rollouts(before)
        served = {node.node.name for node in self.nodes if not node.unmanaged}
        self.left = {name: each for name, each in snapshot.attachments().items() if name not in served}
        desired, existing = {node.name for node in self.nodes}, {each.name: each for each in snapshot.nodes}
        self.departures = [
            departure(snapshot, each, existing.get(each.node))
            for each in snapshot.deployments
            if each.metadata.name not in desired
            and each.is_of(resource.metadata.uid)
            and not each.is_terminating
        ]
        self.limit = budget(resource, len(self.nodes))
        self.window, self.closed = window_of(resource, self.version), None
        if self.window and not closes_at(self.window, self.now):
            self.closed = ClosedWindow(self.window, self.version.is_current, opens_at(self.window, self.now))
        self.returns = self.version.is_current and any(node.drift is Drift.OUTDATED for node in self.nodes)
        self.failures = Failures()
        if not self.returns:
            self.failures = failures_of(resource, self.version, self.nodes, self.now)
        self.halting = halting(self.nodes, self.failures, self.now)
        """The nodes because of which it halts, and what is wrong."""
        self._halts = bool(self.halting) and not self.returns
        self.canary = canary_of(
            resource, self.version, self.nodes, snapshot.measured, is_blocked=self._is_blocked
        )
        self.waves = waves_of(resource, self.version, self.nodes)

    @cached_property
    def altered(self) -> tuple[Altered, ...]:
        """Objects that another writer changes repeatedly, so that they are left as they are."""
        return (*(node.altered for node in self.nodes if node.altered), *self.checkers.altered)

    @property
    def is_halted(self) -> bool:
        """Whether it goes on with no node. Nodes that return do, beside those that fail."""
        if not (self.halting and self.returns):
            return bool(self.halting)
        under_way = (node for node in self.nodes if node.in_flight and node.node.ready and not node.draining)
        return not (self.updates() or any(node.node.name not in self.halting for node in under_way))

    @property
    def upcoming(self) -> list[NodeRollout]:
        """Those that have not begun, in their order, whatever they wait for."""
        waiting = self._in_turn(self.nodes)
        return [*dict.fromkeys([*self._begins, *(self.waves.in_order(waiting) if self.waves else waiting)])]

    @property
    def counting(self) -> list[NodeRollout]:
        """Against the budget, those that failed first."""
        failed = [node for node in self.nodes if node.node.name in self.failures.nodes]
        return [*dict.fromkeys([*failed, *filter(self._counts, self.nodes)])]

    def with_first_template(self, node: NodeRollout) -> NodeRollout:
        """*node*, with another template if it is new, and may not have the present one yet."""
        former, is_over = self.rollback.former, self._is_proven and self.closed is None and not self.canary
        may_have_present = (
            is_over and not self.resource.spec.paused and (not self.waves or self.waves.has_come(node))
        )
        if former is None or node.deployment is not None or may_have_present:
            return node
        spec = msgspec.structs.replace(self.resource.spec, template=dict(former))
        resource = msgspec.structs.replace(self.resource, spec=spec)
        # With that template, its pods may run on other nodes only.
        return replace(node, resource=resource) if where_of(resource).matches(node.node, runs=False) else node

    @cached_property
    def _is_proven(self) -> bool:
        """Whether nothing fails, and the template replaced pods progressDeadlineSeconds ago that a Ready node has.

        Pods that crash a while after they are available fail within that time. The first pods of a node prove nothing.
        """
        if self.failures.nodes or self.halting:
            return False
        current = (node for node in self.nodes if node.node.ready and node.phase is Phase.CURRENT)
        deadline = self.resource.spec.progress_deadline_seconds
        return any(node.updated_at and after(node.updated_at, deadline) <= self.now for node in current)

    def waiting(self) -> set[NodeRollout]:
        """Those whose template stays as it is for now."""
        if self.resource.spec.paused:
            return {*self.nodes}
        others = set[NodeRollout]()
        if self.canary:
            others = {*self.nodes} - self.canary.nodes
        elif self.waves:
            others = self.waves.withheld
        others = {node for node in others if not (self._is_blocked and node.is_stranded)}
        return others | self._given_back() | {node for node in self.nodes if self._is_withheld(node)}

    def _is_withheld(self, node: NodeRollout) -> bool:
        return self.closed is not None and self.closed.withholds(node)

    def _given_back(self) -> set[NodeRollout]:
        """Detached nodes whose template stays, since others fail with it, or as many as allowed are updated.

        Those that are only drained come last.
        """
        untouched = [node for node in self.nodes if node.untouched]
        places = self.limit - (sum(node.in_flight for node in self.nodes) - len(untouched))
        if self._halts or self._surplus:
            others = sum(not node.draining for node in untouched)
            places = 0 if self._halts else min(places, others - self._surplus)
        in_turn = sorted(untouched, key=lambda node: (node.draining, node.marked_at))
        return {*in_turn[max(0, places) :], *filter(self._comes_later, untouched)}

    def _comes_later(self, node: NodeRollout) -> bool:
        """Whether those that failed with the template before get this one first: *node* may be the last that serves."""
        failures = self.failures
        if not failures.nodes or failures.with_template or self._counted <= self.limit:
            return False
        return node.node.name not in failures.nodes and not node.lacks_pods

    @property
    def _surplus(self) -> int:
        """How many more nodes count than the budget allows, while some fail with the template."""
        return max(0, self._counted - self.limit) if self.failures.with_template else 0

    def updates(self) -> list[NodeRollout]:
        """Those whose update may begin now.

        Nodes that are unavailable anyway cost no further budget, but never are more updated at a time than allowed.
        With a surplus, one that counts anyway, as a cordoned one, would be detached and given back again and again.
        """
        if self.resource.spec.paused or self._halts or self._surplus:
            return []
        free = max(0, self.limit - self._used)
        waiting = [node for node in self._begins if not self._comes_later(node)]
        in_flight = sum(node.in_flight for node in self.nodes)
        first = sum(map(self._counts, waiting))
        return waiting[: first + free][: max(0, self.limit - in_flight)]

    @cached_property
    def _begins(self) -> list[NodeRollout]:
        """Those that wait for their update and may begin, in the order of their turns."""
        begins: Sequence[NodeRollout] = self.nodes
        if self.canary:
            begins = self.canary.begins
        elif self.waves:
            begins = self.waves.begins
            if begins and self._is_blocked:
                begins = [*dict.fromkeys([*begins, *(node for node in self.nodes if node.lost)])]
        return self._in_turn(node for node in begins if not self._is_withheld(node))

    def _in_turn(self, nodes: Iterable[NodeRollout]) -> list[NodeRollout]:
        """NotReady nodes come last, when no other is left: they could use up the budget indefinitely."""
        waiting = [node for node in nodes if node.phase is Phase.OUTDATED]
        ready = [node for node in waiting if node.node.ready]
        busy = any(node.in_flight and node.node.ready for node in self.nodes)
        return sorted(ready if ready or busy else waiting, key=lambda node: not self._counts(node))

    def _counts(self, node: NodeRollout) -> bool:
        """Against the budget."""
        lacks = node.unavailable if self.rolling.detaches else node.degraded
        return lacks or node.node.name in self.failures.nodes

    @cached_property
    def _counted(self) -> int:
        return sum(map(self._counts, self.nodes))

    @cached_property
    def _used(self) -> int:
        """Of the budget. Nodes keep their place in it until it is known that they have left."""
        leaving = self.left.keys() if self.rolling.detaches else set[str]()
        return self._counted + len(leaving | {each.held.node for each in self.departures if each.counts})

    @cached_property
    def _is_blocked(self) -> bool:
        """Whether nodes use up the budget though none is being updated: what they lack may be in the new template."""
        under_way = (node.in_flight and node.node.ready and not node.is_stranded for node in self.nodes)
        return self._used >= self.limit and not any(under_way)

    def drained(self, updates: Set[NodeRollout]) -> set[NodeRollout]:
        """Those that are detached to be drained, within what *updates* that begin now leave of the budget.

        A node that is cordoned or about to be deleted does not wait for the budget: that is an administrator's
        decision, while anyone who reaches the webhook can request an eviction. One that lacks pods does wait: it has
        them again in a moment, and would be detached for as long as a drain lasts.
        """
        draining = [node for node in self.nodes if node.draining and not node.drain_is_over(self.now)]
        failing = self.failures.nodes
        off = {node for node in self.nodes if node.out_of_service} | updates
        taken = off | {node for node in self.nodes if node.lacks_pods or node.node.name in failing}
        waiting = sorted((node for node in draining if node not in off), key=lambda node: node not in taken)
        places = self.limit - len(taken.difference(waiting))
        return off.intersection(draining).union(waiting[: max(0, places)])
