"""The status of an IngressDaemonSet: counts, conditions, which nodes it waits for, and why; its rollout as a whole.

A rollout is the update of nodes that have pods of another template, or a changed one. It ends as its Events say:
complete, paused or halted; a new template ends it, too. New nodes and drains are no part of it. Its plan is there while
it runs, and how the last ones ended. How long a node takes are its graces as they are configured now, and its pods as
they have taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import ceil
from statistics import median
from typing import Any

from api.ingress_daemonset.status import Phase
from api.ingress_daemonset.types import IngressDaemonSet, Window, time_of
from controllers.ingress_daemonset.canary import Canary, canary_status, standstill
from controllers.ingress_daemonset.children import (
    LONG_AGO,
    applied_digest,
    is_current,
    revision_of,
    template_digest,
)
from controllers.ingress_daemonset.drains import Departure
from controllers.ingress_daemonset.drift import Altered
from controllers.ingress_daemonset.failures import (
    FORMER,
    LOST,
    NO_FAILURES,
    NO_ROLLBACK,
    ROLLING,
    Failures,
    Rollback,
    rollback_status,
)
from controllers.ingress_daemonset.nodes import NodeRollout, available_pods, open_connections, why
from controllers.ingress_daemonset.pacing import ClosedWindow, Waves, suspended_until
from kube.types import rfc3339
from settings.windows import end_of

ASSUMED = 30.0
"""Seconds that pods take to be replaced, where no rollout was measured; minReadySeconds come on top."""


def measured(rollouts: Iterable[NodeRollout], since: datetime = LONG_AGO) -> list[int]:
    """Seconds that the pods of each node took in its last update, of those that were updated *since* then."""
    baselines = (each.baseline for each in rollouts if each.baseline)
    return [
        each.took for each in baselines if each.took is not None and each.updated and each.updated >= since
    ]


def seconds_of_pods(rollouts: Sequence[NodeRollout], since: datetime = LONG_AGO) -> float:
    """Until the pods of a node are replaced: by those that were *since* then, else by earlier ones, else assumed."""
    ready = max((each.resource.spec.min_ready_seconds for each in rollouts), default=0)
    times = measured(rollouts, since) or measured(rollouts)
    return max(ready, median(times)) if times else ASSUMED + ready


def seconds_of_turn(rollout: NodeRollout, pods: float) -> float:
    """Until it counts no longer, when its *pods* take so many seconds, and nothing else is waited for."""
    rolling = rollout.rolling
    ways = (rolling.deployment_annotation, rolling.node_annotation, rolling.weights, rolling.timestamp)
    graces = max((each.grace_period_seconds for each in ways if each), default=0)
    return graces + pods + rolling.attach_grace_period_seconds


def waits_for_others(rollout: NodeRollout) -> bool:
    """Whether a turn may take longer than graces and pods do, for as long as another program or clients like."""
    rolling = rollout.rolling
    return any((rolling.timestamp, rolling.connections, rolling.weights))


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
ENDED = ("Complete", "Paused", "Halted", "RolledBack")
BLOCKED = ("WaitingForNodes", "WaitingForDetachment", "CanaryPaused", "CanaryDegraded")
"""Reasons of Progressing whose end is not known."""
OVERDUE = 0.25
"""Of a turn: what a node still takes that has had its time."""
LATE = 3
"""Turns after which it is not known when a node that is under way will be done."""
STEP = 10
"""Seconds to which an estimate is rounded up."""
TOLERANCE = 0.1
"""Of the time that is left: a better estimate that differs by less is not worth a write."""

Raw = Mapping[str, Any]


@dataclass(frozen=True)
class Turns:
    """*limit* nodes are updated at a time; *upcoming* have not begun, in their order."""

    limit: int = 1
    upcoming: Sequence[NodeRollout] = ()
    canary: Canary | None = None
    """While only its nodes may begin."""
    paused_for: timedelta = timedelta()
    """How long the rollout has waited after its canary."""
    failed: str = ""
    """The revision from which nodes return, since it failed."""
    waves: Waves | None = None
    window: Window | None = None
    """In which updates may begin; None is always."""
    closed: ClosedWindow | None = None
    failures: Failures = NO_FAILURES
    halting: Mapping[str, str] = field(default_factory=dict)
    """The nodes because of which it halts, and what is wrong."""

    def parts(self, left: Sequence[NodeRollout]) -> Sequence[Sequence[NodeRollout]]:
        """Those of *left* that are updated before the next ones begin."""
        return (self.waves.left() if self.waves else ()) or [left]

    def waited(self, now: datetime) -> timedelta:
        """So far, after the canary and between waves."""
        return self.paused_for + (self.waves.paused_for(now) if self.waves else timedelta())

    def waits(self, now: datetime) -> timedelta:
        """From now on, between waves."""
        return self.waves.still_paused(now) if self.waves else timedelta()


NO_TURNS = Turns()


def overview(
    resource: IngressDaemonSet, rollouts: Sequence[NodeRollout], turns: Turns, progressing: str, now: datetime
) -> dict[str, Any]:
    """The fields of the status; *progressing* is the reason of that condition."""
    old: Raw | None = resource.status.get("rollout")
    revision, current = revision_of(resource), resource.status.get("currentRevision", "")
    left = [each for each in rollouts if each.phase in ROLLING or each.node.name in turns.failures.nodes]
    history = list(resource.status.get("history") or ())
    runs = bool(left) and progressing not in ENDED and (old is not None or any(map(_is_behind, left)))
    if old and not (runs and old["toRevision"] == revision):
        result = _result(old, revision, left, progressing)
        if turns.failed == old["toRevision"]:
            result = "RolledBack"
        nodes = _updated(rollouts, old) if result == "Complete" else old["nodes"] - old["nodesLeft"]
        entry = _entry(old, result, nodes, now)
        # Templates that no node got would displace what did happen.
        kept = [entry] if entry["nodes"] or result not in ("Complete", "Superseded") else []
        history = [*kept, *history][:HISTORY_SIZE]
        old = None
    found: dict[str, Any] = {"history": history} if history else {}
    ended, is_over = not left and bool(rollouts), is_current(resource)
    if ended:
        found |= {"currentRevision": revision, "currentDigest": template_digest(resource)}
    else:
        known = {"currentRevision": current, "currentDigest": resource.current_digest}
        found |= {name: each for name, each in known.items() if each}
    found |= canary_status(resource, turns.canary, now, is_over=ended or is_over)
    if not ended and not is_over and turns.waves and (waves := turns.waves.status(now)):
        found["waves"] = waves
    if runs:
        began = old or _begun(turns.failed or current, revision, now)
        turn = _turn(began, rollouts, left, turns, history, now)
        found["rollout"] = _plan(began, left, turns, turn, progressing, now)
        found["rollout"]["digest"] = applied_digest(resource)
    return found | turns.failures.status()


def _result(old: Raw, revision: str, left: Sequence[NodeRollout], progressing: str) -> str:
    """Of the *old* rollout; one whose template was withdrawn, or replaced, is never complete."""
    if old["toRevision"] == revision and not left:
        return "Complete"
    return progressing if left and progressing in ENDED else "Superseded"


def _updated(rollouts: Sequence[NodeRollout], old: Raw) -> int:
    """How many nodes have been updated since the *old* rollout began."""
    began = time_of(old["startedAt"])
    times = (each.baseline.updated for each in rollouts if each.baseline)
    return sum(began is not None and at is not None and at >= began for at in times)


def _is_behind(rollout: NodeRollout) -> bool:
    """Not one that is attached again after a drain."""
    return rollout.phase in (Phase.OUTDATED, Phase.DETACHING)


def _begun(current: str, revision: str, now: datetime) -> Raw:
    return {"fromRevision": current, "toRevision": revision, "startedAt": rfc3339(now)}


def _plan(
    began: Raw,
    left: Sequence[NodeRollout],
    turns: Turns,
    turn: float,
    progressing: str,
    now: datetime,
) -> dict[str, Any]:
    nodes, limit = max(began.get("nodes", 0), len(left)), max(1, turns.limit)
    done, waves = nodes - len(left), ceil(nodes / limit)
    plan = {
        **{name: began[name] for name in ("fromRevision", "toRevision", "startedAt")},
        "nodes": nodes,
        "nodesLeft": len(left),
        "atATime": limit,
        "wave": min(waves, done // limit + 1),
        "waves": waves,
        "nextNodes": [each.node.name for each in turns.upcoming[:NEXT_NODES]],
    }
    if turns.waves:
        plan |= {"wave": turns.waves.number, "waves": len(turns.waves.groups)}
    if turns.closed and turns.closed.opens_at:
        plan["windowOpensAt"] = rfc3339(turns.closed.opens_at)
    if progressing in BLOCKED:
        return plan
    if (end := _end(plan, left, turns, turn, now)) is None:
        return plan
    return plan | {"estimatedEnd": _rewritten(began.get("estimatedEnd", ""), end, now)}


def _end(plan: Raw, left: Sequence[NodeRollout], turns: Turns, turn: float, now: datetime) -> datetime | None:
    """None, too, while a node takes far longer than a *turn*."""
    if any(_spent(each, now) > LATE * turn for each in left if each.in_flight):
        return None
    seconds = sum(_seconds_left(each, plan["atATime"], turn, now) for each in turns.parts(left))
    seconds += turns.waits(now).total_seconds()
    return end_of(turns.window, now, seconds) if turns.window else now + timedelta(seconds=seconds)


def _turn(
    began: Raw,
    rollouts: Sequence[NodeRollout],
    left: Sequence[NodeRollout],
    turns: Turns,
    history: Sequence[Raw],
    now: datetime,
) -> float:
    """Seconds that a node takes; what others let it wait for shows in how long rollouts have taken."""
    since = time_of(began["startedAt"]) or now
    turn = seconds_of_turn(left[0], seconds_of_pods(rollouts, since))
    if turns.window or not waits_for_others(left[0]):
        return turn
    nodes, limit = max(began.get("nodes", 0), len(left)), max(1, turns.limit)
    if (done := nodes - len(left)) >= limit:
        in_flight = sum(each.in_flight for each in left)
        took = now - turns.waited(now) - since
        return max(turn, float(took.total_seconds() * limit / (done + in_flight / 2)))
    whole = (each for each in history if each["result"] == "Complete" and each["nodes"])
    if (last := next(whole, None)) is None or turns.waves:
        return turn
    return max(turn, float(last["seconds"] / ceil(last["nodes"] / max(1, last["atATime"]))))


def _seconds_left(left: Sequence[NodeRollout], limit: int, turn: float, now: datetime) -> float:
    """Each of *limit* places gets free after the turn of its node, and takes the next one that waits."""
    busy = [_residual(each, turn, now) for each in left if each.in_flight]
    waiting = sum(not each.in_flight for each in left)
    places = sorted([*busy, *[0.0] * (limit - len(busy))])[:limit]
    ends = [free + turn * len(range(place, waiting, limit)) for place, free in enumerate(places)]
    return max([*ends, *busy])


def _residual(rollout: NodeRollout, turn: float, now: datetime) -> float:
    return max(turn - _spent(rollout, now), turn * OVERDUE)


def _spent(rollout: NodeRollout, now: datetime) -> float:
    """Seconds since its turn began."""
    began = [mark.at for mark in (rollout.deployment_mark, rollout.node_mark) if mark]
    return (now - min(began, default=now)).total_seconds()


def _rewritten(before: str, end: datetime, now: datetime) -> str:
    """*end* rounded up, or the estimate *before* while it is nearly as good."""
    old = time_of(before)
    if old and old > now:
        tolerated = max(STEP, TOLERANCE * (old - now).total_seconds())
        if abs((end - old).total_seconds()) <= tolerated:
            return before
    seconds = ceil(end.timestamp() / STEP) * STEP
    return rfc3339(datetime.fromtimestamp(seconds, now.tzinfo))


def _entry(old: Raw, result: str, nodes: int, now: datetime) -> dict[str, Any]:
    """Of a rollout that ended: how many *nodes* it updated, and in how many seconds."""
    began = time_of(old["startedAt"]) or now
    return {
        **{name: old[name] for name in ("fromRevision", "toRevision", "startedAt")},
        "endedAt": rfc3339(now),
        "result": result,
        "nodes": nodes,
        "seconds": max(0, round((now - began).total_seconds())),
        "atATime": old["atATime"],
    }


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
