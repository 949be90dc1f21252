"""Which pods a smaller number of replicas removes, and which IPs that reserves."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cmp_to_key
from typing import Any

from api.elasticity import COST
from api.ingress_daemonset.types import time_of
from cli.explain.snapshot import Snapshot
from cli.output import Document, Part, Table, title
from cli.simulate import removal
from cli.simulate.removal import Removal

Raw = Mapping[str, Any]
PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


@dataclass(frozen=True)
class ScaleInFacts:
    """*replicas* are those before and after, *pods* the workload's; *counted* reservations are of pods that are gone.

    *first_ordinal* is a StatefulSet's, and None of a Deployment.
    """

    workload: str
    replicas: tuple[int, int]
    pods: Sequence[Raw]
    first_ordinal: int | None
    snapshot: Snapshot
    counted: int


class Going(Document, frozen=True):
    """A pod that is removed, the first ones first, and what puts it before others."""

    pod: str
    node: str
    why: str


class ScaleIn(Document, frozen=True):
    workload: str
    before: int
    after: int
    going: tuple[Going, ...]
    removal: Removal


def scale_in(facts: ScaleInFacts) -> ScaleIn:
    (before, after), active = facts.replicas, [each for each in facts.pods if _is_active(each)]
    number = max(0, len(active) - after)
    if facts.first_ordinal is None:
        going = in_order(active, facts.snapshot.now)[:number]
        why = _why_of(active)
    else:
        last = facts.first_ordinal + after - 1
        going = sorted((each for each in active if _ordinal(each) > last), key=_ordinal, reverse=True)
        why = {_uid(each): f"ordinal {_ordinal(each)}" for each in active}
    what = f"Scaling {facts.workload} from {before} to {after}"
    return ScaleIn(
        workload=facts.workload,
        before=before,
        after=after,
        going=tuple(Going(removal.key_of(each), _node(each), why[_uid(each)]) for each in going),
        removal=removal.removal_of(what, going, facts.snapshot, facts.counted),
    )


def parts(found: ScaleIn) -> Iterator[Part]:
    yield from removal.parts(found.removal)
    yield title("In this order")
    rows = [(each.pod, each.node, each.why) for each in found.going]
    yield Table(("REMOVED", "NODE", "BECAUSE OF"), rows, empty="No pod is removed.")


def in_order(pods: Sequence[Raw], now: datetime) -> list[Raw]:
    """As the ReplicaSet controller removes them: `ActivePodsWithRanks.Less` in Kubernetes,
    pkg/controller/controller_utils.go, with its defaults since 1.22 (PodDeletionCost, LogarithmicScaleDown)."""
    ranks = Counter(map(_node, pods))

    def compared(one: Raw, other: Raw) -> int:
        for first, second in zip(_key(one, ranks), _key(other, ranks), strict=True):
            if first != second:
                return -1 if first < second else 1
        return (
            _by_age(one, other, [_ready_at(one), _ready_at(other)], now)
            or _restarts(other) - _restarts(one)
            or _by_age(one, other, [_created_at(one), _created_at(other)], now)
        )

    return sorted(pods, key=cmp_to_key(compared))


def _key(pod: Raw, ranks: Mapping[str, int]) -> tuple[int, ...]:
    """Not scheduled, Pending, not ready, cheap, and with others of the ReplicaSet on its node: these go first."""
    is_scheduled, phase = bool(_node(pod)), PHASES.get(pod["status"].get("phase", ""), 0)
    return int(is_scheduled), phase, int(_ready_at(pod) is not None), _cost(pod), -ranks[_node(pod)]


def _by_age(one: Raw, other: Raw, since: Sequence[datetime | None], now: datetime) -> int:
    """The younger one goes first, but an age counts by its power of two; of the same one, the lower uid."""
    first, second = since
    if first is None or second is None or first == second:
        return 0
    difference = _magnitude(first, now) - _magnitude(second, now)
    return difference or (-1 if _uid(one) < _uid(other) else 1)


def _magnitude(since: datetime, now: datetime) -> int:
    nanoseconds = (now - since).total_seconds() * 1e9
    return int(math.log2(nanoseconds)) if nanoseconds > 0 else -1


def _why_of(pods: Sequence[Raw]) -> dict[str, str]:
    ranks = Counter(map(_node, pods))
    return {_uid(each): "; ".join(_reasons(each, ranks)) for each in pods}


def _reasons(pod: Raw, ranks: Mapping[str, int]) -> Iterator[str]:
    node, phase = _node(pod), pod["status"].get("phase", "")
    if not node:
        yield "not scheduled"
    if phase != "Running":
        yield phase
    elif _ready_at(pod) is None:
        yield "not ready"
    if cost := _cost(pod):
        yield f"deletion cost {cost}"
    if node and ranks[node] > 1:
        yield f"{ranks[node]} replicas on its node"
    if since := _ready_at(pod):
        yield f"ready since {since:%Y-%m-%dT%H:%M:%SZ}"


def _is_active(pod: Raw) -> bool:
    is_finished = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return not is_finished and "deletionTimestamp" not in pod["metadata"]


def _node(pod: Raw) -> str:
    return str(pod["spec"].get("nodeName", ""))


def _uid(pod: Raw) -> str:
    return str(pod["metadata"].get("uid", ""))


def _cost(pod: Raw) -> int:
    """0 for one that is no number, as the controller takes it."""
    text = (pod["metadata"].get("annotations") or {}).get(COST, "0")
    try:
        return int(text)
    except ValueError:
        return 0


def _ready_at(pod: Raw) -> datetime | None:
    for each in pod["status"].get("conditions", ()):
        if (each["type"], each["status"]) == ("Ready", "True"):
            return time_of(each.get("lastTransitionTime", "")) or _created_at(pod)
    return None


def _created_at(pod: Raw) -> datetime | None:
    return time_of(pod["metadata"].get("creationTimestamp", ""))


def _restarts(pod: Raw) -> int:
    return max(
        (each.get("restartCount", 0) for each in pod["status"].get("containerStatuses", ())), default=0
    )


def _ordinal(pod: Raw) -> int:
    text = pod["metadata"]["name"].rpartition("-")[2]
    return int(text) if text.isdecimal() else -1
