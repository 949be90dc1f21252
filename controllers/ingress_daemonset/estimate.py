"""When a rollout will end: the one rule by which that is predicted.

How long a node takes are its graces as they are configured now, and its pods as they have taken. What other programs
let it wait for shows in how long rollouts have taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from math import ceil
from statistics import median

from api.ingress_daemonset.status import EndedRollout, Result, RolloutStatus
from controllers.ingress_daemonset.canary import pause_of
from controllers.ingress_daemonset.children import LONG_AGO
from controllers.ingress_daemonset.nodes import NodeRollout
from controllers.ingress_daemonset.rollout import Rollout
from settings.windows import end_of

ASSUMED = 30.0
"""Seconds that pods take to be replaced, where no rollout was measured; minReadySeconds come on top."""
OVERDUE = 0.25
"""Of a turn: what a node still takes that has had its time."""
LATE = 3
"""Turns after which it is not known when a node that is under way will be done."""
STEP = 10
"""Seconds to which an estimate is rounded up."""
TOLERANCE = 0.1
"""Of the time that is left: a better estimate that differs by less is not worth a write."""


def estimated_end(
    status: RolloutStatus, rollout: Rollout, left: Sequence[NodeRollout], history: Sequence[EndedRollout]
) -> datetime | None:
    """When all nodes that are *left* are done; None while a node takes far longer than its turn.

    The estimate before, in *status*, stays while it is nearly as good.
    """
    now, waves, window = rollout.now, rollout.waves, rollout.window
    turn = _turn(status, rollout, left, history)
    if any(_spent(node, now) > LATE * turn for node in left if node.in_flight):
        return None
    parts = (waves.left() if waves else None) or [[*left]]
    seconds = sum(_seconds_left(part, status.at_a_time, turn, now) for part in parts)
    seconds += waves.still_paused(now).total_seconds() if waves else 0
    end = end_of(window, now, seconds) if window else now + timedelta(seconds=seconds)
    return None if end is None else _rewritten(status.estimated_end, end, now)


def measured(rollouts: Iterable[NodeRollout], since: datetime = LONG_AGO) -> list[int]:
    """Seconds that the pods of each node took in its last update, of those that were updated *since* then."""
    baselines = (node.baseline for node in rollouts if node.baseline)
    return [
        each.took for each in baselines if each.took is not None and each.updated and each.updated >= since
    ]


def seconds_of_pods(rollouts: Sequence[NodeRollout], since: datetime = LONG_AGO) -> float:
    """Until the pods of a node are replaced: by those that were *since* then, else by earlier ones, else assumed."""
    ready = max((node.resource.spec.min_ready_seconds for node in rollouts), default=0)
    times = measured(rollouts, since) or measured(rollouts)
    return max(ready, median(times)) if times else ASSUMED + ready


def _turn(
    status: RolloutStatus, rollout: Rollout, left: Sequence[NodeRollout], history: Sequence[EndedRollout]
) -> float:
    """Seconds that a node takes."""
    since, rolling, waves = status.started_at or rollout.now, rollout.rolling, rollout.waves
    ways = (rolling.deployment_annotation, rolling.node_annotation, rolling.weights, rolling.timestamp)
    graces = max((each.grace_period_seconds for each in ways if each), default=0)
    turn = graces + seconds_of_pods(rollout.nodes, since) + rolling.attach_grace_period_seconds
    if rollout.window or not (rolling.timestamp or rolling.connections or rolling.weights):
        return turn
    limit = status.at_a_time
    if (done := status.nodes - len(left)) >= limit:
        in_flight = sum(node.in_flight for node in left)
        paused = pause_of(rollout.resource) + (waves.paused_for(rollout.now) if waves else timedelta())
        took = rollout.now - paused - since
        return max(turn, float(took.total_seconds() * limit / (done + in_flight / 2)))
    whole = (each for each in history if each.result == Result.COMPLETE and each.nodes)
    if (last := next(whole, None)) is None or waves:
        return turn
    return max(turn, float(last.seconds / ceil(last.nodes / max(1, last.at_a_time))))


def _seconds_left(left: Sequence[NodeRollout], limit: int, turn: float, now: datetime) -> float:
    """Each of *limit* places gets free after the turn of its node, and takes the next one that waits."""
    busy = [_seconds_of(node, turn, now) for node in left if node.in_flight]
    waiting = sum(not node.in_flight for node in left)
    places = sorted([*busy, *[0.0] * (limit - len(busy))])[:limit]
    ends = [free + turn * len(range(place, waiting, limit)) for place, free in enumerate(places)]
    return max([*ends, *busy])


def _seconds_of(node: NodeRollout, turn: float, now: datetime) -> float:
    """Until its turn is over; the mark of one that was attached begins with that."""
    if node.settled_at:
        return max(0.0, (node.settled_at - now).total_seconds())
    return max(turn - _spent(node, now), turn * OVERDUE)


def _spent(node: NodeRollout, now: datetime) -> float:
    """Seconds since its turn began."""
    began = [mark.at for mark in (node.deployment_mark, node.node_mark) if mark]
    return (now - min(began, default=now)).total_seconds()


def _rewritten(before: datetime | None, end: datetime, now: datetime) -> datetime:
    """*end* rounded up, or the estimate *before*."""
    if before and before > now:
        tolerated = max(STEP, TOLERANCE * (before - now).total_seconds())
        if abs((end - before).total_seconds()) <= tolerated:
            return before
    return datetime.fromtimestamp(ceil(end.timestamp() / STEP) * STEP, now.tzinfo)
