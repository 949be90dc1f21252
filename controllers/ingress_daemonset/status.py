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
from api.ingress_daemonset.types import IngressDaemonSet
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
from controllers.ingress_daemonset.failures import (
    FORMER,
    LOST,
    NO_ROLLBACK,
    ROLLING,
    Failures,
    Rollback,
    rollback_status,
)
from controllers.ingress_daemonset.nodes import NodeRollout, available_pods, open_connections, why
from controllers.ingress_daemonset.pacing import NO_PACING, Pacing, suspended_until
from kube.types import rfc3339

HISTORY_SIZE = 10
NEXT_NODES = 5
FIELDS = (
    "currentRevision",
    "currentDigest",
    "rollout",
    "history",
    "canary",
    "waves",
    "rollback",
    "failures",
)
"""Those of a status that earlier versions of the CRD do not have."""
ENDED = (Progressing.COMPLETE, Progressing.PAUSED, Progressing.HALTED, Progressing.ROLLED_BACK)
BLOCKED = (
    Progressing.WAITING_FOR_NODES,
    Progressing.WAITING_FOR_DETACHMENT,
    Progressing.CANARY_PAUSED,
    Progressing.CANARY_DEGRADED,
)
"""Reasons of Progressing whose end is not known."""
Raw = Mapping[str, Any]


def overview(
    resource: IngressDaemonSet,
    stored: Status,
    rollouts: Sequence[NodeRollout],
    pacing: Pacing,
    progressing: str,
    now: datetime,
) -> dict[str, Any]:
    """The fields of the status that replaces the *stored* one; *progressing* is the reason of that condition."""
    old, history, revision = stored.rollout, stored.history, revision_of(resource)
    left = [node for node in rollouts if node.phase in ROLLING or node.node.name in pacing.failures.nodes]
    runs = bool(left) and progressing not in ENDED and (old is not None or any(map(_is_behind, left)))
    if old and not (runs and old.to_revision == revision):
        result = _result(old, revision, left, pacing.failed, progressing)
        ended = _ended(old, result, rollouts, now)
        # Templates that no node got would displace what did happen.
        is_kept = ended.nodes or ended.result not in (Result.COMPLETE, Result.SUPERSEDED)
        history, old = ((ended, *history)[:HISTORY_SIZE] if is_kept else history), None
    found: dict[str, Any] = {"history": raw_of(history)} if history else {}
    is_done, is_over = not left and bool(rollouts), is_current(resource)
    if is_done:
        found |= {"currentRevision": revision, "currentDigest": template_digest(resource)}
    else:
        known = {"currentRevision": stored.current_revision, "currentDigest": stored.current_digest}
        found |= {name: digest for name, digest in known.items() if digest}
    found |= canary_status(resource, pacing.canary, now, is_over=is_done or is_over)
    waves = pacing.waves.status(now) if pacing.waves and not is_done and not is_over else None
    if waves and waves.digest:
        found["waves"] = raw_of(waves)
    if runs:
        began = now.replace(microsecond=0)
        rollout = old or RolloutStatus(pacing.failed or stored.current_revision, revision, started_at=began)
        rollout = _rollout(rollout, left, pacing)
        end = None
        if progressing not in BLOCKED:
            end = estimated_end(rollout, rollouts, left, pacing, history, now)
        rollout = replace(rollout, digest=applied_digest(resource), estimated_end=end)
        found["rollout"] = raw_of(rollout)
    return found | pacing.failures.status()


def _is_behind(node: NodeRollout) -> bool:
    """Not one that is attached again after a drain."""
    return node.phase in (Phase.OUTDATED, Phase.DETACHING)


def _rollout(began: RolloutStatus, left: Sequence[NodeRollout], pacing: Pacing) -> RolloutStatus:
    """How far it is; it is not known yet when it ends."""
    nodes, limit = max(began.nodes, len(left)), max(1, pacing.limit)
    wave, waves = (nodes - len(left)) // limit + 1, ceil(nodes / limit)
    opens_at = pacing.closed.opens_at if pacing.closed else None
    return replace(
        began,
        nodes=nodes,
        nodes_left=len(left),
        at_a_time=limit,
        wave=pacing.waves.number if pacing.waves else min(wave, waves),
        waves=len(pacing.waves.groups) if pacing.waves else waves,
        next_nodes=tuple(node.node.name for node in pacing.upcoming[:NEXT_NODES]),
        window_opens_at=opens_at.replace(microsecond=0) if opens_at else None,
    )


def _result(
    old: RolloutStatus, revision: str, left: Sequence[NodeRollout], failed: str, progressing: str
) -> Result:
    """Of the *old* rollout; one whose template was withdrawn, or replaced, is never complete."""
    if failed == old.to_revision:
        return Result.ROLLED_BACK
    if old.to_revision == revision and not left:
        return Result.COMPLETE
    return Result(progressing) if left and progressing in ENDED else Result.SUPERSEDED


def _ended(
    old: RolloutStatus, result: Result, rollouts: Sequence[NodeRollout], now: datetime
) -> EndedRollout:
    began = old.started_at or now
    nodes = old.nodes - old.nodes_left
    if result is Result.COMPLETE:
        times = (node.baseline.updated for node in rollouts if node.baseline)
        nodes = sum(at is not None and at >= began for at in times)
    return EndedRollout(
        old.from_revision,
        old.to_revision,
        old.started_at,
        now.replace(microsecond=0),
        result,
        nodes,
        max(0, round((now - began).total_seconds())),
        old.at_a_time,
    )


SHOWN = 10
"""Nodes that a status names at most."""
DONE = (Phase.CURRENT, Phase.DEGRADED, Phase.STARTING)
UP_TO_DATE = (*DONE, Phase.UPDATING, Phase.ATTACHING, Phase.DRAINING)


UNTRUE = (*ENDED, Available.NO_NODES, Available.NODES_WITHOUT_PODS, Degraded.AS_DESIRED)
"""Reasons of conditions that do not hold."""
Reason = tuple[Available | Progressing | Degraded, str]
"""Of the condition that the enumeration is for, and its message."""


@dataclass(frozen=True)
class Findings:
    """Beside the rollouts of nodes: Deployments whose nodes left, and children that are left as they are.

    *unmanaged* are names of objects that have a name of a child's.
    """

    departures: Sequence[Departure] = ()
    unmanaged: Sequence[str] = ()
    altered: Sequence[Altered] = ()
    pacing: Pacing = NO_PACING
    rollback: Rollback = NO_ROLLBACK


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


def status_of(
    resource: IngressDaemonSet, rollouts: Sequence[NodeRollout], findings: Findings, now: datetime
) -> dict[str, Any]:
    stored = resource.stored
    progressing = _progressing(resource, rollouts, findings, now)
    reasons = (_available(rollouts), progressing, _degraded(rollouts, findings))
    leaving = [_leaving(each) for each in findings.departures if each.goes_at or each.doubt]
    return {
        "observedGeneration": resource.metadata.generation,
        **_counts(rollouts),
        "conditions": [_condition(stored, each, now) for each in reasons],
        "waitingFor": [*leaving, *_waiting_for(rollouts, now)][:SHOWN],
        **overview(resource, stored, rollouts, findings.pacing, progressing[0], now),
        **rollback_status(resource, findings.pacing.halting, findings.pacing.canary, findings.rollback, now),
    }


def unconfirmed(
    rollouts: Sequence[NodeRollout], departures: Sequence[Departure], now: datetime
) -> Iterator[Unconfirmed]:
    """Those without a timestamp, and those whose graces are over without a confirmation by what is asked for one."""
    for left in departures:
        if left.doubt and left.safe_at:
            yield Unconfirmed(left.node, left.safe_at, left.doubt, left.patience)
    for each in rollouts:
        if each.lacks_timestamp and each.node_mark:
            yield Unconfirmed(each.node.name, each.node_mark.at, why(each, now))
        elif each.is_doubted(now) and (safe_at := each.safe_at):
            timeout = each.rolling.confirm_timeout_seconds
            yield Unconfirmed(each.node.name, safe_at, why(each, now), timeout)


def undrained(rollouts: Sequence[NodeRollout], now: datetime) -> Iterator[Undrained]:
    """Nodes whose pods are replaced now although connections are open, or may be."""
    for each in rollouts:
        mark = each.deployment_mark or each.node_mark
        if mark and each.is_detaching and each.has_connections and each.is_released(now):
            yield Undrained(
                each.node.name, mark.at, open_connections(each), known=each.connections is not None
            )


def _leaving(departure: Departure) -> dict[str, str]:
    name, at = departure.held.metadata.name, rfc3339(departure.goes_at) if departure.goes_at else ""
    if departure.doubt:
        reason = f"the node has left, and its detachment is not confirmed: {departure.doubt}"
        reason += f"; Deployment {name} is deleted {f'at {at}' if at else 'when it is'}"
    elif at:
        reason = f"the node has left: health checks fail, and Deployment {name} is deleted at {at}"
    else:
        reason = f"the node has left: health checks fail, and Deployment {name} is deleted"
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
        "readyNodes": sum(_has_its_pods(each) for each in rollouts),
        "detachedNodes": sum(each.detached for each in rollouts),
        "unavailableNodes": sum(each.unavailable for each in rollouts),
        "degradedNodes": sum(each.degraded for each in rollouts),
    }


def _has_its_pods(rollout: NodeRollout) -> bool:
    """As many as its Deployment should have: a node whose number changes has the former one until its turn."""
    return rollout.deployment is not None and not rollout.unmanaged and rollout.deployment.available


def _available(rollouts: Sequence[NodeRollout]) -> Reason:
    if not rollouts:
        return Available.NO_NODES, "no node matches the template"
    serving = sum(available_pods(each) > 0 for each in rollouts)
    message = f"{serving} of {len(rollouts)} nodes have available pods"
    if serving < len(rollouts):
        return Available.NODES_WITHOUT_PODS, message
    return Available.ALL_NODES_SERVE, message


def _progressing(
    resource: IngressDaemonSet, rollouts: Sequence[NodeRollout], findings: Findings, now: datetime
) -> Reason:
    failures = findings.pacing.failures
    behind = [
        each
        for each in rollouts
        if each.in_flight
        or each.phase in (Phase.OUTDATED, Phase.STARTING)
        or each.node.name in failures.nodes
    ]
    others = [each for each in rollouts if each.phase in (Phase.UNMANAGED, Phase.ALTERED, Phase.DEGRADED)]
    message = f"{len(rollouts) - len({*behind, *others})} of {len(rollouts)} nodes are as desired"
    canary, rollback = findings.pacing.canary, findings.rollback.stored
    if rollback:
        message += f"; template {rollback.revision} of the spec has failed: {rollback.reason}"
    if not behind:
        return Progressing.ROLLED_BACK if rollback else Progressing.COMPLETE, message
    if resource.spec.paused:
        until = suspended_until(resource, now)
        return Progressing.PAUSED, f"{message}; suspended until {rfc3339(until)}" if until else message
    if halting := findings.pacing.halting:
        return Progressing.HALTED, f"{message}; {_listed(halting)}"
    for each in rollouts:
        if each.lacks_timestamp or each.is_doubted(now):
            return Progressing.WAITING_FOR_DETACHMENT, f"{message}; {each.node.name}: {why(each, now)}"
    if all(each.phase is Phase.DRAINING for each in behind):
        return Progressing.DRAINING, f"{message}; {len(behind)} are detached, to be drained"
    if canary and (paused := standstill(canary)):
        return paused[0], f"{message}; {paused[1]}"
    if (closed := findings.pacing.closed) and (stands := closed.standstill(rollouts)):
        return Progressing.WAITING_FOR_WINDOW, f"{message}; {stands}"
    if (waves := findings.pacing.waves) and (stands := waves.standstill(now)):
        return Progressing.WAVE_PAUSED, f"{message}; {stands}"
    if refused := next((each for each in rollouts if each.refusal), None):
        return Progressing.WAITING_FOR_NODES, f"{message}; {refused.node.name}: {refused.refusal}"
    if blocking := _blocking(resource, rollouts, failures):
        return Progressing.WAITING_FOR_NODES, f"{message}; {blocking}"
    return Progressing.ROLLING_BACK if rollback else Progressing.ROLLING_OUT, message


def _blocking(resource: IngressDaemonSet, rollouts: Sequence[NodeRollout], failures: Failures) -> str:
    """The nodes that use up the budget, when none of them is being updated."""
    detaches = resource.spec.update_strategy.rolling_update.detaches
    waiting = any(each.phase is Phase.OUTDATED for each in rollouts)
    under_way = any(each.in_flight and each.node.ready and not each.draining for each in rollouts)
    counted = [each for each in rollouts if each.node.name in failures.nodes]
    counted += [each for each in rollouts if (each.unavailable if detaches else each.degraded)]
    others = [f"{each.node.name} is {_hindrance(each, failures)}" for each in dict.fromkeys(counted)]
    if not (waiting or failures.nodes) or under_way or not others:
        return ""
    budget = "maxUnavailableNodes" if detaches else "maxDegradedNodes"
    return f"these also count against {budget}: {', '.join(others[:SHOWN])}"


def _hindrance(rollout: NodeRollout, failures: Failures) -> str:
    failure = failures.nodes.get(rollout.node.name)
    if failure and failure.reason not in (LOST, FORMER):
        return f"not updated: {failure.reason}"
    if failure and not rollout.lost:
        return f"not trusted before {rfc3339(failures.ends_at(rollout.node.name) or LONG_AGO)}, since it lost pods"
    if rollout.lacks_pods:
        return "without all of its pods"
    if not rollout.node.ready:
        return "NotReady"
    if rollout.draining or rollout.node.to_be_deleted:
        return "to be drained"
    return "cordoned" if rollout.node.cordoned else "detached"


def _degraded(rollouts: Sequence[NodeRollout], findings: Findings) -> Reason:
    for each in rollouts:
        if each.unmanaged:
            return Degraded.UNMANAGED_DEPLOYMENT, f"{each.node.name}: {why(each, LONG_AGO)}"
    if findings.unmanaged:
        taken = f"{findings.unmanaged[0]}, a name for health checks, is not managed by Drawbridge: rename one"
        return Degraded.UNMANAGED_OBJECT, taken
    if halting := findings.pacing.halting:
        return Degraded.ROLLOUT_STUCK, _listed(halting)
    if findings.altered:
        return Degraded.TEMPLATE_ALTERED, _altered(findings.altered)
    short = [each for each in rollouts if each.phase is Phase.DEGRADED]
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
