"""The status of an IngressDaemonSet: counts, conditions, which nodes it waits for, and why; its rollout as a whole.

A rollout is the update of nodes that have pods of another template, or a changed one. It ends as its Events say:
complete, paused or halted; a new template ends it, too. New nodes and drains are no part of it. Its plan is there while
it runs, and how the last ones ended. Its end is estimated: to play the planner forward, as a forecast does, takes a
plan for each step of each node, and a leader plans all the time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from math import ceil
from statistics import median

from msgspec.structs import replace

from api.ingress_daemonset import FINALIZER
from api.ingress_daemonset.status import (
    CONDITIONS,
    LEAVING,
    Available,
    CanaryStatus,
    Degraded,
    EndedRollout,
    FailuresStatus,
    Phase,
    Progressing,
    Promotion,
    Result,
    RollbackStatus,
    RolloutStatus,
    Status,
    WaitingNode,
)
from api.ingress_daemonset.types import suspended_until
from controllers.ingress_daemonset.children import LONG_AGO, target
from controllers.ingress_daemonset.nodes import NodeRollout, open_connections, why
from controllers.ingress_daemonset.pacing import FORMER, LOST, ROLLING, promoted, stored_canary
from controllers.ingress_daemonset.rollout import Rollout
from kube.types import NEVER, Condition, after, rfc3339
from settings.windows import end_of

ASSUMED = 30.0
"""Seconds that pods take to be replaced, where no rollout was measured; minReadySeconds come on top."""
OVERDUE = 0.25
"""Of a turn: what a node still takes that has had its time."""
LATE = 3
"""Turns after which it is not known when a node that is under way will be done."""
STEP = 10
"""Seconds to which an estimate is rounded up, so that a better one is worth a write."""


@dataclass(frozen=True)
class Pace:
    """Seconds that a node takes beside its graces: until others let it be updated, and then for its pods.

    By the last update of so many *measured* nodes; without any it is assumed.
    """

    pods: float
    waits: float = 0.0
    measured: int = 0


def pace_of(rollouts: Sequence[NodeRollout], since: datetime = LONG_AGO) -> Pace:
    """By the nodes that were updated *since* then, else by earlier updates."""
    ready = max((node.resource.spec.min_ready_seconds for node in rollouts), default=0)
    ended = [node.baseline for node in rollouts if node.baseline and node.baseline.took is not None]
    found = [each for each in ended if each.updated and each.updated >= since] or ended
    if not found:
        return Pace(ASSUMED + ready)
    pods, waits = median(each.took or 0 for each in found), median(each.waited for each in found)
    return Pace(max(ready, pods), waits, len(found))


def estimated_end(status: RolloutStatus, rollout: Rollout, left: Sequence[NodeRollout]) -> datetime | None:
    """When all nodes that are *left* are done; None while that is open.

    So it is while a node takes far longer than its turn, and before a canary that is not promoted by time alone.
    """
    now, rolling, window = rollout.now, rollout.rolling, rollout.window
    pace = pace_of(rollout.nodes, status.started_at or now)
    turn = rolling.grace_seconds + pace.waits + pace.pods + rolling.attach_grace_period_seconds
    if any(_spent(node, now) > LATE * turn for node in left if node.in_flight):
        return None
    if rollout.canary and (rollout.canary.metric or not rollout.canary.pause):
        return None
    end = now
    for pause, nodes in _stages(rollout, left):
        seconds = _seconds_left(nodes, status.at_a_time, turn, now)
        # What is under way is completed while the window is closed, too.
        begins = window if any(not node.in_flight for node in nodes) else None
        start = after(end, pause)
        found = end_of(begins, start, seconds) if begins else after(start, ceil(seconds))
        if found in (None, NEVER):
            return None
        end = found
    rounded = after(LONG_AGO, ceil(end.timestamp() / STEP) * STEP)
    return None if rounded == NEVER else rounded


def _stages(rollout: Rollout, left: Sequence[NodeRollout]) -> Iterator[tuple[float, Collection[NodeRollout]]]:
    """The canary and the waves that are not over: the pause before each, and the nodes that are *left* there."""
    canary, pause, first = rollout.canary, 0.0, set[NodeRollout]()
    if canary:
        first, pause = canary.nodes, canary.still_paused(rollout.now)
        yield 0.0, first.intersection(left)
    waves = list(rollout.waves.left(rollout.now)) if rollout.waves else []
    for before, nodes in waves or [(0.0, [*left])]:
        yield pause + before, [node for node in nodes if node not in first]
        pause = 0.0


def _seconds_left(left: Collection[NodeRollout], limit: int, turn: float, now: datetime) -> float:
    """Each of *limit* places gets free after the turn of its node, and takes the next one that waits."""
    busy = [_seconds_of(node, turn, now) for node in left if node.in_flight]
    waiting = sum(not node.in_flight for node in left)
    limit = min(limit, max(1, len(left)))  # of a budget of billions, no place is listed that no node takes
    places = sorted([*busy, *[0.0] * (limit - len(busy))])[:limit]
    ends = [free + turn * len(range(place, waiting, limit)) for place, free in enumerate(places)]
    return max([*ends, *busy])


def _seconds_of(node: NodeRollout, turn: float, now: datetime) -> float:
    """Until its turn is over; the mark of one that was attached begins with that."""
    if node.settled_at:
        return max(0.0, (node.settled_at - now).total_seconds())
    return max(turn - _spent(node, now), turn * OVERDUE)


def _spent(node: NodeRollout, now: datetime) -> float:
    """Seconds since its turn began; none where that is uncertain."""
    return (now - node.marked_at).total_seconds() if node.marked_at > LONG_AGO else 0.0


HISTORY_SIZE = 10
NEXT_NODES = 5
FAILED = 5
"""Nodes that a rollback names at most."""
SHOWN = 10
"""Nodes that a status names at most."""
NOT_UPDATED = (Phase.UNMANAGED, Phase.ALTERED, Phase.DETACHING, Phase.OUTDATED)
ENDED = (Progressing.COMPLETE, Progressing.PAUSED, Progressing.HALTED, Progressing.ROLLED_BACK)
BLOCKED = (Progressing.WAITING_FOR_NODES, Progressing.WAITING_FOR_DETACHMENT, Progressing.CANARY_DEGRADED)
"""Reasons of Progressing whose end is not known."""
UNTRUE = (*ENDED, Available.NO_NODES, Available.NODES_WITHOUT_PODS, Degraded.AS_DESIRED)
"""Reasons of conditions that do not hold."""
Reason = tuple[Available | Progressing | Degraded, str]
"""Of the condition that the enumeration is for, and its message."""


def status_of(rollout: Rollout) -> Status:
    resource, nodes, now = rollout.resource, rollout.nodes, rollout.now
    progressing = _progressing(rollout)
    reasons = (_available(nodes), progressing, _degraded(rollout))
    return replace(
        _overview(rollout, progressing[0]),
        observed_generation=resource.metadata.generation,
        desired_nodes=len(nodes),
        updated_nodes=sum(not each.absent and each.phase not in NOT_UPDATED for each in nodes),
        ready_nodes=sum(each.has_its_pods for each in nodes),
        detached_nodes=sum(each.detached for each in nodes),
        unavailable_nodes=sum(each.unavailable for each in nodes),
        degraded_nodes=sum(each.degraded for each in nodes),
        conditions=tuple(_condition(resource.stored, each, now) for each in reasons),
        waiting_for=tuple(islice(_waiting_for(rollout), SHOWN)),
        rollback=_rollback(rollout),
    )


def _overview(rollout: Rollout, progressing: str) -> Status:
    """The rollout as a whole; *progressing* is the reason of that condition."""
    stored, now = rollout.resource.stored, rollout.now
    old, history, version = stored.rollout, stored.history, rollout.version
    failed = rollout.rollback.stored.revision if rollout.rollback.stored else ""
    failing = rollout.failures.nodes
    left = [node for node in rollout.nodes if node.phase in ROLLING or node.node.name in failing]
    # A node that is attached again after a drain is not behind.
    behind = any(node.phase in (Phase.OUTDATED, Phase.DETACHING) for node in left)
    runs = bool(left) and progressing not in ENDED and (old is not None or behind)
    if old and not (runs and old.to_revision == version.revision):
        result = Result(progressing) if left and progressing in ENDED else Result.SUPERSEDED
        if failed == old.to_revision:
            result = Result.ROLLED_BACK
        elif old.to_revision == version.revision and not left:
            result = Result.COMPLETE
        ended = _ended(old, result, rollout)
        # Templates that no node got would displace what did happen.
        is_kept = ended.nodes or ended.result not in (Result.COMPLETE, Result.SUPERSEDED)
        history, old = ((ended, *history)[:HISTORY_SIZE] if is_kept else history), None
    # One without a Deployment gets the template before first, like any that joins.
    is_lacking = any(node.absent and not node.unmanaged for node in rollout.nodes)
    is_done = bool(rollout.nodes) and not (left or is_lacking)
    found = Status(
        current_revision=version.revision if is_done else stored.current_revision,
        current_digest=version.template if is_done else stored.current_digest,
        history=history,
        failures=FailuresStatus(version.all, dict(failing)) if failing else None,
    )
    if not (is_done or version.is_current):
        waves = rollout.waves.status(now) if rollout.waves and not rollout.canary else None
        found = replace(found, canary=_canary(rollout), waves=waves if waves and waves.digest else None)
    if not runs:
        return found
    former = history[0].to_revision if rollout.returns and history else stored.current_revision
    began = RolloutStatus(failed or former, version.revision, started_at=now.replace(microsecond=0))
    status = _so_far(old or began, left, rollout)
    end = None if progressing in BLOCKED else estimated_end(status, rollout, left)
    return replace(found, rollout=replace(status, digest=version.all, estimated_end=end))


def _canary(rollout: Rollout) -> CanaryStatus | None:
    """None without one."""
    if rollout.canary:
        return rollout.canary.status(rollout.version, rollout.now)
    wanted, old = rollout.rolling.canary, stored_canary(rollout.resource, rollout.version)
    return promoted(old, Promotion.BY_HAND, rollout.now) if wanted and old.id else None


def _rollback(rollout: Rollout) -> RollbackStatus | None:
    """None while nothing has failed."""
    resource, canary, now = rollout.resource, rollout.canary, rollout.now
    if rollout.rollback.stored:
        return rollout.rollback.stored
    if not rollout.rollback.is_possible or resource.spec.paused:
        return None
    if rollout.halting:
        what = next(iter(rollout.halting.values()))
        names = [name for name, each in rollout.halting.items() if each == what]
        reason = f"{', '.join(names[:FAILED])}: {what}"
    elif canary and canary.failure:
        reason = f"the canary failed: {canary.failure}"
    elif canary and canary.fails_at and canary.fails_at <= now:
        reason = f"the canary failed for progressDeadlineSeconds: {canary.refusing[0]}"
    else:
        return None
    versions = (rollout.version.revision, resource.stored.current_revision)
    return RollbackStatus(*versions, now.replace(microsecond=0), reason)


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


def _ended(old: RolloutStatus, result: Result, rollout: Rollout) -> EndedRollout:
    began = old.started_at or rollout.now
    times = (node.updated_at for node in rollout.nodes)
    nodes = sum(at is not None and at >= began for at in times)
    if result is not Result.COMPLETE:
        # Fewer may be left only because nodes have left the cluster.
        nodes = min(nodes, old.nodes - old.nodes_left)
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
    timeout = rollout.rolling.confirm_timeout_seconds
    for left in rollout.departures:
        if left.doubt and left.safe_at:
            yield Unconfirmed(left.held.node, left.safe_at, left.doubt, timeout)
    for node in rollout.nodes:
        if node.lacks_timestamp and node.node_mark:
            yield Unconfirmed(node.node.name, node.node_mark.at, why(node, rollout.now))
        elif node.is_doubted(rollout.now) and (safe_at := node.safe_at):
            yield Unconfirmed(node.node.name, safe_at, why(node, rollout.now), timeout)


def undrained(rollout: Rollout) -> Iterator[Undrained]:
    """Nodes whose pods are replaced now although connections are open, or may be."""
    for node in rollout.nodes:
        mark = node.deployment_mark or node.node_mark
        if mark and node.is_detaching and node.has_connections and node.is_released(rollout.now):
            is_known = node.connections is not None
            yield Undrained(node.node.name, mark.at, open_connections(node), is_known)


def _waiting_for(rollout: Rollout) -> Iterator[WaitingNode]:
    """Deployments whose node has left, then the nodes that are not up to date, the most urgent ones first."""
    for left in rollout.departures:
        name, at = left.held.metadata.name, rfc3339(left.goes_at) if left.goes_at else ""
        reason = f"the node has left: health checks fail, and Deployment {name} is deleted at {at}"
        if left.doubt:
            when = f"Deployment {name} is deleted {f'at {at}' if at else 'when it is'}"
            reason = f"the node has left, and its detachment is not confirmed: {left.doubt}; {when}"
        if at or left.doubt:
            yield WaitingNode(left.held.node, LEAVING, reason)
    urgency = [*Phase]
    waiting = [each for each in rollout.nodes if each.phase is not Phase.CURRENT]
    for each in sorted(waiting, key=lambda each: urgency.index(each.phase))[:SHOWN]:
        mark = each.node_mark or each.deployment_mark
        since = mark.at.replace(microsecond=0) if mark else None
        yield WaitingNode(each.node.name, each.phase, why(each, rollout.now), since)


def _available(rollouts: Sequence[NodeRollout]) -> Reason:
    if not rollouts:
        return Available.NO_NODES, "no node matches the template"
    serving = sum(each.available_pods > 0 for each in rollouts)
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
    message = f"{len(nodes) - len({*behind, *others})} of {len(nodes)} nodes are updated and in service"
    if rollback := rollout.rollback.stored:
        message += f"; template {rollback.revision} of the spec has failed: {rollback.reason}"
    # Without nodes, none has a new template: those that join get the one before first, and abort returns to that.
    if not behind and (nodes or rollout.version.revision == rollout.resource.stored.current_revision):
        return Progressing.ROLLED_BACK if rollback else Progressing.COMPLETE, message
    if rollback and not rollout.rollback.is_possible:
        lost = (
            f"template {rollback.to_revision}, to which nodes return, is not kept: correct that of the spec"
        )
        return Progressing.PAUSED, f"{message}; {lost}"
    if rollout.resource.spec.paused:
        until = suspended_until(rollout.resource, now)
        return Progressing.PAUSED, f"{message}; suspended until {rfc3339(until)}" if until else message
    if not nodes:
        return Progressing.WAITING_FOR_NODES, f"{message}; no node matches, to which the template could go"
    for reason, what in _standstills(rollout, behind):
        return reason, f"{message}; {what}"
    return Progressing.ROLLING_BACK if rollback else Progressing.ROLLING_OUT, message


def _standstills(rollout: Rollout, behind: Sequence[NodeRollout]) -> Iterator[tuple[Progressing, str]]:
    """Why it does not go on, the most important one first."""
    nodes, now = rollout.nodes, rollout.now
    if rollout.is_halted:
        yield Progressing.HALTED, _listed(rollout.halting)
    for node in nodes:
        if node.lacks_timestamp or node.is_doubted(now):
            yield Progressing.WAITING_FOR_DETACHMENT, f"{node.node.name}: {why(node, now)}"
    updating = [node for node in behind if node.phase is not Phase.DRAINING]
    if not updating:
        yield Progressing.DRAINING, f"{len(behind)} are detached, to be drained"
    if rollout.canary and (paused := rollout.canary.standstill()):
        yield paused
    if rollout.closed and (text := rollout.closed.standstill(nodes)):
        yield Progressing.WAITING_FOR_WINDOW, text
    if rollout.waves and (text := rollout.waves.standstill(now)):
        yield Progressing.WAVE_PAUSED, text
    metadata = rollout.resource.metadata
    refusal = rollout.writes.refusal(target("IngressDaemonSet", metadata))
    if refusal and FINALIZER not in metadata.finalizers:
        yield Progressing.WAITING_FOR_NODES, refusal
    for node in nodes:
        if node.refusal:
            yield Progressing.WAITING_FOR_NODES, f"{node.node.name}: {node.refusal}"
    if text := _blocking(rollout):
        yield Progressing.WAITING_FOR_NODES, text
    if all(node.cannot_go_on for node in updating):
        yield Progressing.WAITING_FOR_NODES, f"{updating[0].node.name}: {why(updating[0], now)}"


def _blocking(rollout: Rollout) -> str | None:
    """The nodes that use up the budget; None while one of them is being updated, or may be."""
    waiting = any(node.phase is Phase.OUTDATED for node in rollout.nodes)
    under_way = any(node.in_flight and node.node.ready and not node.draining for node in rollout.nodes)
    others = [f"{node.node.name} is {_hindrance(node, rollout)}" for node in rollout.counting]
    if not (waiting or rollout.failures.nodes) or under_way or not others or rollout.updates():
        return None
    field = "maxUnavailableNodes" if rollout.rolling.detaches else "maxDegradedNodes"
    return f"these also count against {field}: {', '.join(others[:SHOWN])}"


def _hindrance(node: NodeRollout, rollout: Rollout) -> str:
    failure = rollout.failures.nodes.get(node.node.name)
    if failure and failure.reason not in (LOST, FORMER):
        return f"not updated: {failure.reason}"
    if failure and not node.lost:
        trusted = rfc3339(rollout.failures.ends_at(node.node.name) or LONG_AGO)
        return f"not trusted before {trusted}, since it lost pods"
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
    for name in rollout.checkers.unmanaged:
        taken = f"{name}, a name for health checks, is not managed by Drawbridge: rename one"
        return Degraded.UNMANAGED_OBJECT, taken
    if rollout.halting:
        return Degraded.ROLLOUT_STUCK, _listed(rollout.halting)
    if rollout.altered:
        first, others = rollout.altered[0], len(rollout.altered) - 1
        more = f" and {others} others" if others else ""
        return Degraded.TEMPLATE_ALTERED, (
            f"{first.kind} {first.name}{more}: changed again in the same way after it was restored, and left as it is:"
            " Event TemplateAltered names the field and its manager"
        )
    lost = [node for node in rollout.nodes if node.phase is Phase.OUTDATED and node.lost]
    short = lost + [node for node in rollout.nodes if node.phase is Phase.DEGRADED or node.cannot_start]
    if short:
        message = f"{len(short)} nodes lack pods; {short[0].node.name}: {why(short[0], LONG_AGO)}"
        return Degraded.PODS_UNAVAILABLE, message
    return Degraded.AS_DESIRED, "no node has lost pods"


def _listed(halting: Mapping[str, str]) -> str:
    return "; ".join([f"{name}: {each}" for name, each in halting.items()][:SHOWN])


def _condition(stored: Status, found: Reason, now: datetime) -> Condition:
    """Its time changes only with its status."""
    reason, message = found
    kind, status = CONDITIONS[type(reason)], str(reason not in UNTRUE)
    old = stored.condition(kind)
    since = old.last_transition_time if old.status == status else None
    return Condition(kind, status, reason, message, since or now.replace(microsecond=0))
