"""The page of rollouts: their nodes, in the phases that the planner sees, and what changes their course."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Any

import msgspec

from api.ingress_daemonset import GROUP, INGRESS_DAEMONSETS, NODE_LABEL, PLURAL
from api.ingress_daemonset.status import Phase
from api.ingress_daemonset.template import FollowedNode, readable
from cli.cluster import Cluster
from cli.errors import Failure
from cli.ingress_daemonset.command import Patch, aborted, revisions_of, stored_of, undo
from cli.ingress_daemonset.command import write as write_change
from cli.ingress_daemonset.rollouts import Rollout, StoredResource, pause, promote, rollout_of
from cli.installation import Access
from cli.inventory import Inventory
from cli.output import Document
from controllers.ingress_daemonset.children import Workload, Writes
from controllers.ingress_daemonset.nodes import NodeRollout, why
from controllers.ingress_daemonset.pacing import resolved
from controllers.ingress_daemonset.rollout import Snapshot, budget
from dashboard.pages import Permissions
from kube.client import Client
from kube.errors import Conflict
from kube.resources import DEPLOYMENTS, NODES, Selection

Raw = dict[str, Any]
Write = Callable[[str, str, str, str], None]
"""Of a namespace, a name, one of VERBS, and the stamp of the rollout that the page showed."""
OUTDATED = Failure(
    "the rollout was changed in the meantime; nothing was changed by you", "go back, and repeat it"
)


class NodeState(StrEnum):
    """In the order of a rollout; what needs attention last."""

    OUTDATED = "waiting"
    DETACHING = "detaching"
    DETACHED = "detached"
    UPDATING = "updating"
    ATTACHING = "attaching"
    CURRENT = "up to date"
    STARTING = "starting"
    DRAINING = "draining"
    DEGRADED = "degraded"
    ALTERED = "altered"
    UNMANAGED = "unmanaged"


class NodeView(Document, frozen=True):
    name: str
    shown: NodeState
    why: str
    since: datetime | None


class RolloutView(Document, frozen=True):
    """*budget* is how many nodes may be unavailable, or degraded where *detaches* is false, at a time."""

    rollout: Rollout
    nodes: tuple[NodeView, ...]
    counts: dict[NodeState, int]
    budget: int
    spent: int
    detaches: bool
    unreadable: str
    may_change: bool

    @property
    def wrong(self) -> bool:
        return self.rollout.is_wrong

    @property
    def place(self) -> str:
        return f"{self.rollout.namespace}/{self.rollout.name}"


class RolloutsPage(Document, frozen=True):
    rollouts: tuple[RolloutView, ...]


def read(inventory: Inventory, permissions: Permissions) -> RolloutsPage:
    ours = Selection(label_selector=NODE_LABEL)
    found = inventory.cluster.read_all(
        {
            "rollouts": partial(inventory.list, INGRESS_DAEMONSETS, Raw),
            "nodes": partial(inventory.cached, NODES, FollowedNode),
            "deployments": partial(inventory.list, DEPLOYMENTS, Workload, ours),
        }
    )
    may = permissions.granted(_pausing(raw["metadata"]["namespace"]) for raw in found["rollouts"])

    def view(raw: Raw) -> RolloutView:
        rollout, now = rollout_of(msgspec.convert(raw, StoredResource)), inventory.now()
        may_change = _pausing(rollout.namespace) in may
        try:
            resource = readable(raw)
            if failed := resolved(resource, ())[1].stored:
                raise ValueError(f"{failed.reason}: they return to the former template")
        except (msgspec.ValidationError, ValueError) as error:
            return RolloutView(rollout, (), {}, 0, 0, False, str(error), may_change)
        children = [each for each in found["deployments"] if each.metadata.namespace == rollout.namespace]
        snapshot = Snapshot(resource, found["nodes"], children, now, Writes(), {})
        rollouts, rolling = snapshot.rollouts(), resource.spec.update_strategy.rolling_update
        nodes = tuple(_nodes(rollouts, {each.node: each.reason for each in rollout.waiting_for}, now))
        counted = Counter(each.shown for each in nodes)
        return RolloutView(
            rollout,
            nodes,
            {each: counted[each] for each in NodeState if counted[each]},
            budget(resource, len(nodes)),
            sum(each.unavailable if rolling.detaches else each.degraded for each in rollouts),
            rolling.detaches,
            "",
            may_change,
        )

    views = map(view, found["rollouts"])
    return RolloutsPage(tuple(sorted(views, key=lambda each: (not each.wrong, each.place))))


def _pausing(namespace: str) -> Access:
    return Access("patch", PLURAL, GROUP, namespace)


def _nodes(rollouts: Iterable[NodeRollout], reasons: Mapping[str, str], now: datetime) -> Iterator[NodeView]:
    """With the leader's own *reasons*, which the status has: only the leader asks health checkers."""
    for each in rollouts:
        name, mark = each.node.name, each.node_mark or each.deployment_mark
        is_detached = each.phase is Phase.DETACHING and each.safe_at is not None
        state = NodeState.DETACHED if is_detached else NodeState[each.phase.name]
        reason = reasons[name] if each.is_detaching and name in reasons else why(each, now)
        yield NodeView(name, state, reason, mark.at if mark else None)


VERBS: Mapping[str, Callable[[Client, StoredResource], Patch | None]] = {
    "pause": lambda _, stored: pause(stored, True),
    "resume": lambda _, stored: pause(stored, False),
    "promote": lambda _, stored: promote(stored),
    "abort": lambda client, stored: undo(aborted(stored, revisions_of(client, stored))),
}
"""The patch of each; None when there is nothing to do."""


def writer_of(cluster: Cluster) -> Write:
    def write(namespace: str, name: str, verb: str, shown: str) -> None:
        """KubeError; Failure for another rollout than was *shown*, or when there is nothing to return to."""
        stored = stored_of(cluster.client, namespace, name)
        if rollout_of(stored).stamp != shown:
            raise OUTDATED
        try:
            write_change(cluster.client, stored, partial(VERBS[verb], cluster.client))
        except Conflict:
            raise OUTDATED from None

    return write
