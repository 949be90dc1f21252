"""The status of an IngressDaemonSet: counts, conditions, which nodes it waits for, and why; its rollout as a whole.

A rollout is the update of nodes that have pods of another template, or a changed one. It ends as its Events say:
complete, paused or halted; a new template ends it, too. New nodes and drains are no part of it. Its plan is there while
it runs, and how the last ones ended. How long a node takes are its graces as they are configured now, and its pods as
they have taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Any

from msgspec.structs import replace

from api.ingress_daemonset.status import (
    CONDITIONS,
    LEAVING,
    Available,
    Condition,
    Degraded,
    EndedRollout,
    Phase,
    Progressing,
    Result,
    RolloutStatus,
    Status,
    raw_of,
)
from controllers.ingress_daemonset.canary import canary_status, standstill
from controllers.ingress_daemonset.children import (
    LONG_AGO,
    applied_digest,
    is_current,
    revision_of,
    template_digest,
)
from controllers.ingress_daemonset.drains import Departure
from controllers.ingress_daemonset.drift import Altered
from controllers.ingress_daemonset.estimate import estimated_end
from controllers.ingress_daemonset.failures import FORMER, LOST, ROLLING, Failures, rollback_status
from controllers.ingress_daemonset.nodes import NodeRollout, available_pods, open_connections, why
from controllers.ingress_daemonset.pacing import suspended_until
from controllers.ingress_daemonset.rollout import Rollout
from kube.types import rfc3339

HISTORY_SIZE = 10
NEXT_NODES = 5
SHOWN = 10
"""Nodes that a status names at most."""
UP_TO_DATE = (
    Phase.CURRENT,
    Phase.DEGRADED,
    Phase.STARTING,
    Phase.UPDATING,
    Phase.ATTACHING,
    Phase.DRAINING,
)
ENDED = (Progressing.COMPLETE, Progressing.PAUSED, Progressing.HALTED, Progressing.ROLLED_BACK)
BLOCKED = (
    Progressing.WAITING_FOR_NODES,
    Progressing.WAITING_FOR_DETACHMENT,
    Progressing.CANARY_PAUSED,
    Progressing.CANARY_DEGRADED,
)
"""Reasons of Progressing whose end is not known."""
UNTRUE = (*ENDED, Available.NO_NODES, Available.NODES_WITHOUT_PODS, Degraded.AS_DESIRED)
"""Reasons of conditions that do not hold."""
Reason = tuple[Available | Progressing | Degraded, str]
"""Of the condition that the enumeration is for, and its message."""


def status_of(rollout: Rollout) -> dict[str, Any]:
    resource, now = rollout.resource, rollout.now
    progressing = _progressing(rollout)
    reasons = (_available(rollout.nodes), progressing, _degraded(rollout))
    leaving = [_leaving(each) for each in rollout.departures if each.goes_at or each.doubt]
    return {
        "observedGeneration": resource.metadata.generation,
        **_counts(rollout.nodes),
        "conditions": [_condition(resource.stored, each, now) for each in reasons],
        "waitingFor": [*leaving, *_waiting_for(rollout.nodes, now)][:SHOWN],
        **_overview(rollout, progressing[0]),
        **rollback_status(resource, rollout.halting, rollout.canary, rollout.rollback, now),
    }


def _overview(rollout: Rollout, progressing: str) -> dict[str, Any]:
    """The rollout as a whole; *progressing* is the reason of that condition."""
    resource, stored, now = rollout.resource, rollout.resource.stored, rollout.now
    old, history, revision = stored.rollout, stored.history, revision_of(resource)
    failed = rollout.rollback.stored.revision if rollout.rollback.stored else ""
    failing = rollout.failures.nodes
    left = [node for node in rollout.nodes if node.phase in ROLLING or node.node.name in failing]
    runs = bool(left) and progressing not in ENDED and (old is not None or any(map(_is_behind, left)))
    if old and not (runs and old.to_revision == revision):
        result = (
            Result.ROLLED_BACK if failed == old.to_revision else _result(old, revision, left, progressing)
        )
        ended = _ended(old, result, rollout)
        # Templates that no node got would displace what did happen.
        is_kept = ended.nodes or ended.result not in (Result.COMPLETE, Result.SUPERSEDED)
        history, old = ((ended, *history)[:HISTORY_SIZE] if is_kept else history), None
    found: dict[str, Any] = {"history": raw_of(history)} if history else {}
    is_done = not left and bool(rollout.nodes)
    current, digest = stored.current_revision, stored.current_digest
    if is_done:
        current, digest = revision, template_digest(resource)
    known = {"currentRevision": current, "currentDigest": digest}
    found |= {name: each for name, each in known.items() if each}
    is_over = is_done or is_current(resource)
    found |= canary_status(resource, rollout.canary, now, is_over=is_over)
    waves = rollout.waves.status(now) if rollout.waves and not is_over else None
    if waves and waves.digest:
        found["waves"] = raw_of(waves)
    if runs:
        began = now.replace(microsecond=0)
        status = old or RolloutStatus(failed or stored.current_revision, revision, started_at=began)
        status = _so_far(status, left, rollout)
        end = None if progressing in BLOCKED else estimated_end(status, rollout, left, history)
        found["rollout"] = raw_of(replace(status, digest=applied_digest(resource), estimated_end=end))
    return found | rollout.failures.status()


def _is_behind(node: NodeRollout) -> bool:
    """Not one that is attached again after a drain."""
    return node.phase in (Phase.OUTDATED, Phase.DETACHING)


def _so_far(began: RolloutStatus, left: Sequence[NodeRollout], rollout: Rollout) -> RolloutStatus:
    """How far it is; it is not known yet when it ends."""
    nodes, limit, waves = max(began.nodes, len(left)), max(1, rollout.limit), rollout.waves
    number, count = (nodes - len(left)) // limit + 1, ceil(nodes / limit)
    opens_at = rollout.closed.opens_at if rollout.closed else None
    return replace(
        began,
        nodes=nodes,
        nodes_left=len(left),
        at_a_time=limit,
        wave=waves.number if waves else min(number, count),
        waves=len(waves.groups) if waves else count,
        next_nodes=tuple(node.node.name for node in rollout.upcoming[:NEXT_NODES]),
        window_opens_at=opens_at.replace(microsecond=0) if opens_at else None,
    )


def _result(old: RolloutStatus, revision: str, left: Sequence[NodeRollout], progressing: str) -> Result:
    """Of the *old* rollout; one whose template was replaced is never complete."""
    if old.to_revision == revision and not left:
        return Result.COMPLETE
    return Result(progressing) if left and progressing in ENDED else Result.SUPERSEDED


def _ended(old: RolloutStatus, result: Result, rollout: Rollout) -> EndedRollout:
    began = old.started_at or rollout.now
    nodes = old.nodes - old.nodes_left
    if result is Result.COMPLETE:
        times = (node.baseline.updated for node in rollout.nodes if node.baseline)
        nodes = sum(at is not None and at >= began for at in times)
    return EndedRollout(
        old.from_revision,
        old.to_revision,
        old.started_at,
        rollout.now.replace(microsecond=0),
        result,
        nodes,
        max(0, round((rollout.now - began).total_seconds())),
        old.at_a_time,
    )


@dataclass(frozen=True)
class Unconfirmed:
    """A node whose detachment is not confirmed since a time, and *why*.

    *patience* is after how many seconds to report it; None is the configured time.
    """

    node: str
    since: datetime
    why: str
    patience: float | None = None


@dataclass(frozen=True)
class Undrained:
    """A node, detached *since* then, whose connections have not ended in time; *known* is whether they were counted."""

    node: str
    since: datetime
    why: str
    known: bool


def unconfirmed(rollout: Rollout) -> Iterator[Unconfirmed]:
    """Those without a timestamp, and those whose graces are over without a confirmation by what is asked for one."""
    for left in rollout.departures:
        if left.doubt and left.safe_at:
            yield Unconfirmed(left.node, left.safe_at, left.doubt, left.patience)
    for node in rollout.nodes:
        if node.lacks_timestamp and node.node_mark:
            yield Unconfirmed(node.node.name, node.node_mark.at, why(node, rollout.now))
        elif node.is_doubted(rollout.now) and (safe_at := node.safe_at):
            timeout = node.rolling.confirm_timeout_seconds
            yield Unconfirmed(node.node.name, safe_at, why(node, rollout.now), timeout)


def undrained(rollout: Rollout) -> Iterator[Undrained]:
    """Nodes whose pods are replaced now although connections are open, or may be."""
    for node in rollout.nodes:
        mark = node.deployment_mark or node.node_mark
        if mark and node.is_detaching and node.has_connections and node.is_released(rollout.now):
            is_known = node.connections is not None
            yield Undrained(node.node.name, mark.at, open_connections(node), is_known)


def _leaving(departure: Departure) -> dict[str, str]:
    name, at = departure.held.metadata.name, rfc3339(departure.goes_at) if departure.goes_at else ""
    if departure.doubt:
        when = f"Deployment {name} is deleted {f'at {at}' if at else 'when it is'}"
        reason = f"the node has left, and its detachment is not confirmed: {departure.doubt}; {when}"
    else:
        reason = f"the node has left: health checks fail, and Deployment {name} is deleted at {at}"
    return {"node": departure.node, "phase": LEAVING, "reason": reason}


def _waiting_for(rollouts: Sequence[NodeRollout], now: datetime) -> Iterator[dict[str, str]]:
    urgency = [*Phase]
    waiting = [each for each in rollouts if each.phase is not Phase.CURRENT]
    for each in sorted(waiting, key=lambda each: urgency.index(each.phase))[:SHOWN]:
        mark = each.node_mark or each.deployment_mark
        since = {"since": rfc3339(mark.at)} if mark else {}
        yield {"node": each.node.name, "phase": each.phase.value, "reason": why(each, now)} | since


def _counts(rollouts: Sequence[NodeRollout]) -> dict[str, int]:
    return {
        "desiredNodes": len(rollouts),
        "updatedNodes": sum(each.deployment is not None and each.phase in UP_TO_DATE for each in rollouts),
        "readyNodes": sum(each.has_its_pods for each in rollouts),
        "detachedNodes": sum(each.detached for each in rollouts),
        "unavailableNodes": sum(each.unavailable for each in rollouts),
        "degradedNodes": sum(each.degraded for each in rollouts),
    }


def _available(rollouts: Sequence[NodeRollout]) -> Reason:
    if not rollouts:
        return Available.NO_NODES, "no node matches the template"
    serving = sum(available_pods(each) > 0 for each in rollouts)
    message = f"{serving} of {len(rollouts)} nodes have available pods"
    if serving < len(rollouts):
        return Available.NODES_WITHOUT_PODS, message
    return Available.ALL_NODES_SERVE, message


def _progressing(rollout: Rollout) -> Reason:
    nodes, failing, now = rollout.nodes, rollout.failures.nodes, rollout.now
    behind = [
        node
        for node in nodes
        if node.in_flight or node.phase in (Phase.OUTDATED, Phase.STARTING) or node.node.name in failing
    ]
    others = [node for node in nodes if node.phase in (Phase.UNMANAGED, Phase.ALTERED, Phase.DEGRADED)]
    message = f"{len(nodes) - len({*behind, *others})} of {len(nodes)} nodes are as desired"
    if rollback := rollout.rollback.stored:
        message += f"; template {rollback.revision} of the spec has failed: {rollback.reason}"
    if not behind:
        return Progressing.ROLLED_BACK if rollback else Progressing.COMPLETE, message
    if rollout.resource.spec.paused:
        until = suspended_until(rollout.resource, now)
        return Progressing.PAUSED, f"{message}; suspended until {rfc3339(until)}" if until else message
    for reason, what in _standstills(rollout, behind):
        return reason, f"{message}; {what}"
    return Progressing.ROLLING_BACK if rollback else Progressing.ROLLING_OUT, message


def _standstills(rollout: Rollout, behind: Sequence[NodeRollout]) -> Iterator[tuple[Progressing, str]]:
    """Why it does not go on, the most important one first."""
    nodes, now = rollout.nodes, rollout.now
    if rollout.halting:
        yield Progressing.HALTED, _listed(rollout.halting)
    for node in nodes:
        if node.lacks_timestamp or node.is_doubted(now):
            yield Progressing.WAITING_FOR_DETACHMENT, f"{node.node.name}: {why(node, now)}"
    if all(node.phase is Phase.DRAINING for node in behind):
        yield Progressing.DRAINING, f"{len(behind)} are detached, to be drained"
    if rollout.canary and (paused := standstill(rollout.canary)):
        yield paused
    if rollout.closed and (text := rollout.closed.standstill(nodes)):
        yield Progressing.WAITING_FOR_WINDOW, text
    if rollout.waves and (text := rollout.waves.standstill(now)):
        yield Progressing.WAVE_PAUSED, text
    for node in nodes:
        if node.refusal:
            yield Progressing.WAITING_FOR_NODES, f"{node.node.name}: {node.refusal}"
    if text := _blocking(rollout):
        yield Progressing.WAITING_FOR_NODES, text


def _blocking(rollout: Rollout) -> str | None:
    """The nodes that use up the budget; None while one of them is being updated."""
    waiting = any(node.phase is Phase.OUTDATED for node in rollout.nodes)
    under_way = any(node.in_flight and node.node.ready and not node.draining for node in rollout.nodes)
    others = [f"{node.node.name} is {_hindrance(node, rollout.failures)}" for node in rollout.counting]
    if not (waiting or rollout.failures.nodes) or under_way or not others:
        return None
    field = "maxUnavailableNodes" if rollout.rolling.detaches else "maxDegradedNodes"
    return f"these also count against {field}: {', '.join(others[:SHOWN])}"


def _hindrance(node: NodeRollout, failures: Failures) -> str:
    failure = failures.nodes.get(node.node.name)
    if failure and failure.reason not in (LOST, FORMER):
        return f"not updated: {failure.reason}"
    if failure and not node.lost:
        return (
            f"not trusted before {rfc3339(failures.ends_at(node.node.name) or LONG_AGO)}, since it lost pods"
        )
    if node.lacks_pods:
        return "without all of its pods"
    if not node.node.ready:
        return "NotReady"
    if node.draining or node.node.to_be_deleted:
        return "to be drained"
    return "cordoned" if node.node.cordoned else "detached"


def _degraded(rollout: Rollout) -> Reason:
    for node in rollout.nodes:
        if node.unmanaged:
            return Degraded.UNMANAGED_DEPLOYMENT, f"{node.node.name}: {why(node, LONG_AGO)}"
    if unmanaged := rollout.children.unmanaged():
        taken = f"{unmanaged[0]}, a name for health checks, is not managed by Drawbridge: rename one"
        return Degraded.UNMANAGED_OBJECT, taken
    if rollout.halting:
        return Degraded.ROLLOUT_STUCK, _listed(rollout.halting)
    if rollout.altered:
        return Degraded.TEMPLATE_ALTERED, _altered(rollout.altered)
    short = [node for node in rollout.nodes if node.phase is Phase.DEGRADED]
    if short:
        message = f"{len(short)} nodes lost pods; {short[0].node.name}: {why(short[0], LONG_AGO)}"
        return Degraded.PODS_UNAVAILABLE, message
    return Degraded.AS_DESIRED, "no node has lost pods"


def _listed(halting: Mapping[str, str]) -> str:
    return "; ".join([f"{name}: {each}" for name, each in halting.items()][:SHOWN])


def _altered(altered: Sequence[Altered]) -> str:
    first, others = altered[0], len(altered) - 1
    more = f" and {others} others" if others else ""
    return (
        f"{first.kind} {first.name}{more}: changed again in the same way after it was restored, and left as it is:"
        " Event TemplateAltered names the field and its manager"
    )


def _condition(stored: Status, found: Reason, now: datetime) -> dict[str, Any]:
    """Its time changes only with its status."""
    reason, message = found
    kind, status = CONDITIONS[type(reason)], str(reason not in UNTRUE)
    old = stored.condition(kind)
    since = old.last_transition_time if old.status == status else None
    condition = Condition(kind, status, reason, message, since or now.replace(microsecond=0))
    raw: dict[str, Any] = raw_of(condition)
    return raw
