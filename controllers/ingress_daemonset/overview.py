"""What a status says of a rollout as a whole: its plan while it runs, and how the last ones ended.

A rollout is the update of nodes that have pods of another template, or a changed one. It ends as its Events say:
complete, paused or halted; a new template ends it, too. New nodes and drains are no part of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import ceil
from typing import Any

from api.ingress_daemonset.pacing import Window
from api.ingress_daemonset.types import IngressDaemonSet, time_of
from controllers.ingress_daemonset.canary import Canary, canary_status
from controllers.ingress_daemonset.closed_window import ClosedWindow
from controllers.ingress_daemonset.desired import applied_digest, is_current, revision_of, template_digest
from controllers.ingress_daemonset.failures import NO_FAILURES, ROLLING, Failures
from controllers.ingress_daemonset.node_rollout import NodeRollout, Phase
from controllers.ingress_daemonset.pace import seconds_of_pods, seconds_of_turn, waits_for_others
from controllers.ingress_daemonset.waves import Waves
from kube.types import rfc3339
from settings.windows import end_of

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
