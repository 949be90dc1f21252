"""The nodes of a rollout as they are shown, in the phases that the planner sees: functions of values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from api.ingress_daemonset.node_matching import FollowedNode
from api.ingress_daemonset.status import Phase
from api.ingress_daemonset.template import readable
from api.ingress_daemonset.types import IngressDaemonSet
from cli.objects import StoredResource
from cli.output import Document
from cli.rollouts import Rollout, is_wrong, rollout_of
from controllers.ingress_daemonset.children import Workload, Writes
from controllers.ingress_daemonset.failures import resolved
from controllers.ingress_daemonset.nodes import NodeRollout, why
from controllers.ingress_daemonset.rollout import budget
from controllers.ingress_daemonset.snapshot import Snapshot


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
        return is_wrong(self.rollout)

    @property
    def place(self) -> str:
        return f"{self.rollout.namespace}/{self.rollout.name}"


class RolloutsPage(Document, frozen=True):
    rollouts: tuple[RolloutView, ...]


class Found(Document, frozen=True):
    """*raw* are the IngressDaemonSets; *writable* the namespaces in which the user may change them."""

    raw: Sequence[dict[str, object]]
    nodes: Sequence[FollowedNode]
    deployments: Sequence[Workload]
    writable: Collection[str]


def page_of(found: Found, now: datetime) -> RolloutsPage:
    views = (_view(raw, found, now) for raw in found.raw)
    return RolloutsPage(tuple(sorted(views, key=lambda each: (not each.wrong, each.place))))


def _view(raw: dict[str, object], found: Found, now: datetime) -> RolloutView:
    rollout = rollout_of(msgspec.convert(raw, StoredResource))
    may_change = rollout.namespace in found.writable
    try:
        resource = readable(raw)
        if failed := resolved(resource, ())[1].stored:
            reason = f"{failed.reason}: they return to the former template"
            return RolloutView(rollout, (), {}, 0, 0, False, reason, may_change)
        rollouts = _snapshot(resource, found, now).rollouts()
    except (msgspec.ValidationError, ValueError) as error:
        return RolloutView(rollout, (), {}, 0, 0, False, str(error), may_change)
    reasons = {each.node: each.reason for each in rollout.waiting_for}
    nodes = tuple(_node(each, reasons, now) for each in rollouts)
    rolling = resource.spec.update_strategy.rolling_update
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


def _snapshot(resource: IngressDaemonSet, found: Found, now: datetime) -> Snapshot:
    namespace = resource.metadata.namespace
    deployments = [each for each in found.deployments if each.metadata.namespace == namespace]
    return Snapshot(resource, found.nodes, {"Deployment": deployments}, now, Writes(), {})


def _node(each: NodeRollout, reasons: Mapping[str, str], now: datetime) -> NodeView:
    """The leader's own reason, if the status has it: only the leader asks health checkers."""
    mark = each.node_mark or each.deployment_mark
    return NodeView(each.node.name, _state(each), _reason(each, reasons, now), mark.at if mark else None)


def _reason(each: NodeRollout, reasons: Mapping[str, str], now: datetime) -> str:
    return (
        reasons.get(each.node.name, "") if each.is_detaching and each.node.name in reasons else why(each, now)
    )


def _state(each: NodeRollout) -> NodeState:
    if each.phase is Phase.DETACHING and each.safe_at is not None:
        return NodeState.DETACHED
    return NodeState[each.phase.name]
