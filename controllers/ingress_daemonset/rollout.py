"""An IngressDaemonSet with its nodes at one moment: which may begin, which wait, what holds it up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from functools import cached_property

from api.ingress_daemonset.node_matching import FollowedNode
from api.ingress_daemonset.status import Phase
from api.ingress_daemonset.types import IngressDaemonSet, share
from controllers.ingress_daemonset import drains, rollout_annotations
from controllers.ingress_daemonset.canary import canary_of
from controllers.ingress_daemonset.drift import Altered
from controllers.ingress_daemonset.failures import failures_of, halting, is_return
from controllers.ingress_daemonset.health_checks import ChildResources
from controllers.ingress_daemonset.nodes import NodeRollout, has_lasted, with_former
from controllers.ingress_daemonset.pacing import closed_window_of, waves_of, window_of
from controllers.ingress_daemonset.snapshot import Snapshot
from settings.ingress_daemonset import HealthChecker


def budget(resource: IngressDaemonSet, nodes: int) -> int:
    """Of *nodes*, how many may be detached at a time, or be degraded where nodes are not detached."""
    rolling = resource.spec.update_strategy.rolling_update
    return share(rolling.max_unavailable_nodes if rolling.detaches else rolling.max_degraded_nodes, nodes)


def marked_nodes(snapshot: Snapshot) -> list[FollowedNode]:
    """Nodes that bear a mark of the IngressDaemonSet."""
    uid = snapshot.resource.metadata.uid
    return [node for node in snapshot.nodes if rollout_annotations.attach(node.metadata.annotations, uid)]


class Rollout:
    """*defaults* are for health checkers; *before* has the nodes of the last plan.

    *left* bear a mark, and nothing of ours is left to update there; *departures* are Deployments without a node.
    *canary* is None unless only its nodes may begin, *closed* while the *window* is open, or there is none.
    """

    def __init__(self, snapshot: Snapshot, defaults: HealthChecker, before: Sequence[NodeRollout]) -> None:
        resource = snapshot.resource
        self.resource, self.writes, self.now = resource, snapshot.writes, snapshot.now
        self.rollback = snapshot.rollback
        self.rolling = resource.spec.update_strategy.rolling_update
        self.children = ChildResources(resource, snapshot.children, defaults)
        self.nodes = snapshot.rollouts(before)
        self.limit = budget(resource, len(self.nodes))
        self.window, self.closed = window_of(resource), closed_window_of(resource, self.now)
        self.failures = failures_of(resource, self.nodes, self.now)
        self.halting = halting(self.nodes, self.failures, self.now)
        """The nodes because of which it halts, and what is wrong."""
        self._halts = bool(self.halting) and not is_return(resource, self.nodes)
        served = {node.node.name for node in self.nodes if not node.unmanaged}
        self.left = [node for node in marked_nodes(snapshot) if node.name not in served]
        desired = {node.name for node in self.nodes}
        without_node = [each for each in snapshot.children["Deployment"] if each.metadata.name not in desired]
        self.departures = drains.departures(snapshot, without_node)
        self.canary = canary_of(resource, self.nodes, snapshot.measured, is_blocked=self._is_blocked)
        self.waves = None if self.canary else waves_of(resource, self.nodes)

    @cached_property
    def altered(self) -> tuple[Altered, ...]:
        """Objects that another writer changes repeatedly, so that they are left as they are."""
        return (*(node.altered for node in self.nodes if node.altered), *self.children.altered())

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
        former = self.rollback.former
        if former is None or node.deployment is not None or self._may_begin_with(node):
            return node
        return with_former(node, former)

    def _may_begin_with(self, node: NodeRollout) -> bool:
        """Whether a new node gets the present template."""
        if self.resource.spec.paused or self.canary or self.closed or not self._is_proven:
            return False
        return self.waves is None or self.waves.has_come(node)

    @cached_property
    def _is_proven(self) -> bool:
        """Pods that crash a while after they are available fail within the deadline."""
        return not self.failures.nodes and not self.halting and has_lasted(self.nodes, self.now)

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
        return {*in_turn[max(0, places) :]}

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
        waiting = self._begins
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
        leaving = {node.name for node in self.left} if self.rolling.detaches else set()
        return self._counted + len(leaving | {each.node for each in self.departures if each.counts})

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
        draining = [node for node in self.nodes if node.draining and not drains.is_over(node, self.now)]
        failing = self.failures.nodes
        off = {node for node in self.nodes if node.out_of_service} | updates
        taken = off | {node for node in self.nodes if node.lacks_pods or node.node.name in failing}
        waiting = sorted((node for node in draining if node not in off), key=lambda node: node not in taken)
        places = self.limit - len(taken.difference(waiting))
        return off.intersection(draining).union(waiting[: max(0, places)])
