"""The page of rollouts: their nodes, in the phases that the planner sees, and what changes their course."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Any

import msgspec

from api.ingress_daemonset import INGRESS_DAEMONSETS, NODE_LABEL, REVISION_OF
from api.ingress_daemonset.status import Phase
from api.ingress_daemonset.template import FollowedNode, readable
from cli.ingress_daemonset.command import aborted, changed, revisions_of, stored_of, undo, write
from cli.ingress_daemonset.rollouts import Patch, Rollout, StoredResource, pause, promote, rollout_of
from cli.inventory import Inventory
from cli.output import Document
from controllers.ingress_daemonset.children import Workload
from controllers.ingress_daemonset.nodes import NodeRollout, why
from controllers.ingress_daemonset.pacing import resolved
from controllers.ingress_daemonset.revisions import CONTROLLER_REVISIONS, Revision, of
from controllers.ingress_daemonset.rollout import Snapshot, budget
from kube.client import Client
from kube.errors import Forbidden
from kube.resources import DEPLOYMENTS, NODES, Selection

Raw = dict[str, Any]


class NodeState(StrEnum):
    """As a bar of progress has them: what is done comes first, what waits last."""

    CURRENT = "up to date"
    ATTACHING = "attaching"
    UPDATING = "updating"
    DETACHED = "detached"
    DETACHING = "detaching"
    STARTING = "starting"
    DRAINING = "draining"
    DEGRADED = "degraded"
    ALTERED = "altered"
    UNMANAGED = "unmanaged"
    OUTDATED = "waiting"


class NodeView(Document, frozen=True):
    name: str
    shown: NodeState
    why: str
    since: datetime | None


class Nodes(Document, frozen=True):
    """Each node, and how many there are in each state, as of the same moment.

    *budget* is how many may be unavailable, or degraded where *detaches* is false, at a time.
    """

    nodes: tuple[NodeView, ...]
    counts: dict[NodeState, int]
    ready: int
    detached: int
    budget: int
    spent: int
    detaches: bool

    @property
    def current(self) -> int:
        return self.counts.get(NodeState.CURRENT, 0)


class RolloutView(Document, frozen=True):
    """*nodes* is None for a spec that cannot be read, for the reason *unreadable*."""

    rollout: Rollout
    nodes: Nodes | None
    unreadable: str = ""

    @property
    def place(self) -> str:
        return f"{self.rollout.namespace}/{self.rollout.name}"


class RolloutsPage(Document, frozen=True):
    rollouts: tuple[RolloutView, ...]


def read(inventory: Inventory) -> RolloutsPage:
    ours = Selection(label_selector=NODE_LABEL)
    stored_resources, followed, deployments, revisions = inventory.cluster.together(
        partial(inventory.list, INGRESS_DAEMONSETS, Raw),
        partial(inventory.cached, NODES, FollowedNode),
        partial(inventory.list, DEPLOYMENTS, Workload, ours),
        partial(_revisions, inventory),
    )

    def view(raw: Raw) -> RolloutView:
        stored = msgspec.convert(raw, StoredResource)
        former = of(stored.metadata.uid, revisions)
        rollout = rollout_of(stored, {each.digest: each.template for each in former})
        children = [each for each in deployments if each.metadata.namespace == rollout.namespace]
        try:
            resource = readable(raw)
            if failed := resolved(resource, ())[1].stored:
                raise ValueError(f"{failed.reason}: they return to the former template")
        except (msgspec.ValidationError, ValueError) as error:
            return RolloutView(rollout, None, str(error))
        snapshot = Snapshot(resource, followed, children, inventory.now())
        return RolloutView(rollout, _nodes(snapshot, rollout))

    views = map(view, stored_resources)
    return RolloutsPage(tuple(sorted(views, key=lambda each: (not each.rollout.is_wrong, each.place))))


def _revisions(inventory: Inventory) -> Sequence[Revision]:
    """Empty where they may not be read: the images that a rollout replaces are not known then."""
    try:
        return inventory.list(CONTROLLER_REVISIONS, Revision, Selection(label_selector=REVISION_OF))
    except Forbidden:
        return ()


def _nodes(snapshot: Snapshot, rollout: Rollout) -> Nodes:
    rollouts, rolling = snapshot.rollouts(), snapshot.resource.spec.update_strategy.rolling_update
    # The leader's own, which the status has: only the leader asks health checkers, and is refused.
    reasons = {(each.node, each.phase): each.reason for each in rollout.waiting_for}
    nodes = tuple(_node(each, reasons, snapshot.now) for each in rollouts)
    counted = Counter(each.shown for each in nodes)
    return Nodes(
        nodes,
        {each: counted[each] for each in NodeState if counted[each]},
        sum(each.has_its_pods for each in rollouts),
        sum(each.detached for each in rollouts),
        budget(snapshot.resource, len(nodes)),
        sum(each.unavailable if rolling.detaches else each.degraded for each in rollouts),
        rolling.detaches,
    )


def _node(each: NodeRollout, reasons: Mapping[tuple[str, str], str], now: datetime) -> NodeView:
    name, mark = each.node.name, each.node_mark or each.deployment_mark
    is_detached = each.phase is Phase.DETACHING and each.safe_at is not None
    state = NodeState.DETACHED if is_detached else NodeState[each.phase.name]
    reason = reasons.get((name, each.phase)) or why(each, now)
    return NodeView(name, state, reason, mark.at if mark else None)


VERBS: Mapping[str, Callable[[Client, StoredResource], Patch | None]] = {
    "pause": lambda _, stored: pause(stored, True),
    "resume": lambda _, stored: pause(stored, False),
    "promote": lambda _, stored: promote(stored),
    "abort": lambda client, stored: undo(stored, aborted(stored, revisions_of(client, stored))),
}
"""The patch of each; None when there is nothing to do."""


def carry_out(client: Client, namespace: str, name: str, verb: str, shown: str) -> None:
    """One of VERBS; KubeError, and Failure for another rollout than was *shown*, or with nothing to return to.

    *shown* is the stamp of the rollout that the page had.
    """
    stored = stored_of(client, namespace, name)
    if rollout_of(stored).stamp != shown:
        raise changed(stored)
    if patch := VERBS[verb](client, stored):
        write(client, stored, patch)
