"""The status of an IngressDaemonSet: counts, conditions, and which nodes it waits for, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from api.ingress_daemonset.types import IngressDaemonSet
from controllers.ingress_daemonset.actions import LONG_AGO
from controllers.ingress_daemonset.canary import standstill
from controllers.ingress_daemonset.departures import Departure
from controllers.ingress_daemonset.drift import Altered
from controllers.ingress_daemonset.failures import FORMER, LOST, Failures
from controllers.ingress_daemonset.node_rollout import NodeRollout, Phase
from controllers.ingress_daemonset.overview import NO_TURNS, Turns, overview
from controllers.ingress_daemonset.reasons import available_pods, open_connections, why
from controllers.ingress_daemonset.rollback import NO_ROLLBACK, Rollback, rollback_status
from controllers.ingress_daemonset.suspension import suspended_until
from kube.types import rfc3339

SHOWN = 10
"""Nodes that a status names at most."""
DONE = (Phase.CURRENT, Phase.DEGRADED, Phase.STARTING)
UP_TO_DATE = (*DONE, Phase.UPDATING, Phase.ATTACHING, Phase.DRAINING)

Verdict = tuple[bool, str, str]
"""Whether a condition holds, the reason, and the message."""


@dataclass(frozen=True)
class Findings:
    """Beside the rollouts of nodes: Deployments whose nodes left, and children that are left as they are.

    *unmanaged* are names of objects that have a name of a child's.
    """

    departures: Sequence[Departure] = ()
    unmanaged: Sequence[str] = ()
    altered: Sequence[Altered] = ()
    turns: Turns = NO_TURNS
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
    verdicts = {
        "Available": _available(rollouts),
        "Progressing": _progressing(resource, rollouts, findings, now),
        "Degraded": _degraded(rollouts, findings),
    }
    leaving = [_leaving(each) for each in findings.departures if each.goes_at or each.doubt]
    return {
        "observedGeneration": resource.metadata.generation,
        **_counts(rollouts),
        "conditions": [_condition(resource, kind, verdict, now) for kind, verdict in verdicts.items()],
        "waitingFor": [*leaving, *_waiting_for(rollouts, now)][:SHOWN],
        **overview(resource, rollouts, findings.turns, verdicts["Progressing"][1], now),
        **rollback_status(resource, findings.turns.halting, findings.turns.canary, findings.rollback, now),
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
    return {"node": departure.node, "phase": "Leaving", "reason": reason}


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


def _available(rollouts: Sequence[NodeRollout]) -> Verdict:
    if not rollouts:
        return False, "NoNodes", "no node matches the template"
    serving = sum(available_pods(each) > 0 for each in rollouts)
    message = f"{serving} of {len(rollouts)} nodes have available pods"
    if serving < len(rollouts):
        return False, "NodesWithoutPods", message
    return True, "AllNodesServe", message


def _progressing(
    resource: IngressDaemonSet, rollouts: Sequence[NodeRollout], findings: Findings, now: datetime
) -> Verdict:
    failures = findings.turns.failures
    behind = [
        each
        for each in rollouts
        if each.in_flight
        or each.phase in (Phase.OUTDATED, Phase.STARTING)
        or each.node.name in failures.nodes
    ]
    others = [each for each in rollouts if each.phase in (Phase.UNMANAGED, Phase.ALTERED, Phase.DEGRADED)]
    message = f"{len(rollouts) - len({*behind, *others})} of {len(rollouts)} nodes are as desired"
    canary, rollback = findings.turns.canary, findings.rollback.stored
    if rollback:
        message += f"; template {rollback['revision']} of the spec has failed: {rollback['reason']}"
    if not behind:
        return False, "RolledBack" if rollback else "Complete", message
    if resource.spec.paused:
        until = suspended_until(resource, now)
        return False, "Paused", f"{message}; suspended until {rfc3339(until)}" if until else message
    if halting := findings.turns.halting:
        return False, "Halted", f"{message}; {_listed(halting)}"
    for each in rollouts:
        if each.lacks_timestamp or each.is_doubted(now):
            return True, "WaitingForDetachment", f"{message}; {each.node.name}: {why(each, now)}"
    if all(each.phase is Phase.DRAINING for each in behind):
        return True, "Draining", f"{message}; {len(behind)} are detached, to be drained"
    if canary and (paused := standstill(canary)):
        return True, paused[0], f"{message}; {paused[1]}"
    if (closed := findings.turns.closed) and (stands := closed.standstill(rollouts)):
        return True, "WaitingForWindow", f"{message}; {stands}"
    if (waves := findings.turns.waves) and (stands := waves.standstill(now)):
        return True, "WavePaused", f"{message}; {stands}"
    if refused := next((each for each in rollouts if each.refusal), None):
        return True, "WaitingForNodes", f"{message}; {refused.node.name}: {refused.refusal}"
    if blocking := _blocking(resource, rollouts, failures):
        return True, "WaitingForNodes", f"{message}; {blocking}"
    return True, "RollingBack" if rollback else "RollingOut", message


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


def _degraded(rollouts: Sequence[NodeRollout], findings: Findings) -> Verdict:
    for each in rollouts:
        if each.unmanaged:
            return True, "ForeignDeployment", f"{each.node.name}: {why(each, LONG_AGO)}"
    if findings.unmanaged:
        taken = f"{findings.unmanaged[0]}, a name for health checks, is not managed by Drawbridge: rename one"
        return True, "ForeignObject", taken
    if halting := findings.turns.halting:
        return True, "RolloutStuck", _listed(halting)
    if findings.altered:
        return True, "TemplateAltered", _altered(findings.altered)
    short = [each for each in rollouts if each.phase is Phase.DEGRADED]
    if short:
        message = f"{len(short)} nodes lost pods; {short[0].node.name}: {why(short[0], LONG_AGO)}"
        return True, "PodsUnavailable", message
    return False, "AsDesired", "no node has lost pods"


def _listed(halting: Mapping[str, str]) -> str:
    return "; ".join([f"{name}: {each}" for name, each in halting.items()][:SHOWN])


def _altered(altered: Sequence[Altered]) -> str:
    first, others = altered[0], len(altered) - 1
    more = f" and {others} others" if others else ""
    return (
        f"{first.kind} {first.name}{more}: changed again in the same way after it was restored, and left as it is:"
        " Event TemplateAltered names the field and its manager"
    )


def _condition(resource: IngressDaemonSet, kind: str, verdict: Verdict, now: datetime) -> Mapping[str, Any]:
    """Its time changes only with its status."""
    holds, reason, message = verdict
    status = "True" if holds else "False"
    conditions: Sequence[dict[str, str]] = resource.status.get("conditions") or ()
    old = next((each for each in conditions if each["type"] == kind), {})
    since = old["lastTransitionTime"] if old.get("status") == status else rfc3339(now)
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}
