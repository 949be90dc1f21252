"""When a rollout stands still, and since when."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from controllers.elasticity.planner import STANDSTILL, stands_still
from controllers.elasticity.pods import decode
from tests.elasticity_world import AWAY, World, cap_of, raw_of, raw_pod
from tests.factories import NOW
from tests.tables import table

GRACE = 30
LONG = GRACE + STANDSTILL
READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
NEW = "shop/owner-new/1"


def pod(owner: str, *, gated: bool = False, ready: bool = False, leaves: bool = False, **status: Any) -> Any:
    raw = raw_pod(f"{owner}-1", owner, gated=gated)
    raw["status"] = (READY if ready else raw["status"]) | status
    raw["spec"] |= {"nodeName": AWAY} if ready else {}
    if leaves:
        raw["metadata"] |= {"deletionTimestamp": NOW.isoformat(), "deletionGracePeriodSeconds": GRACE}
    return raw


OLD, LEAVES, WAITS = pod("old", ready=True), pod("old", leaves=True), pod("new", gated=True)


@table(
    "pods, deciding, leaving, expected",
    {
        "one waits for others": ([OLD, WAITS], (), 0, True),
        "no others are ready": ([pod("old"), WAITS], (), 0, True),
        "others wait, too": ([pod("old", gated=True), WAITS], (), 0, False),
        "the only other one that is ready leaves": (
            [pod("old", ready=True, leaves=True), WAITS],
            (),
            LONG,
            False,
        ),
        "only its own are ready": ([pod("new", ready=True), WAITS], (), 0, False),
        "its own are ready, too": ([OLD, pod("new", ready=True), WAITS], (), 0, True),
        "one of its own starts": ([OLD, pod("new"), WAITS], (), 0, False),
        "another one starts": ([OLD, pod("old"), WAITS], (), 0, True),
        "one is being decided on": ([OLD, WAITS], ("uid-new-1",), 0, False),
        "one leaves": ([OLD, LEAVES, WAITS], (), 0, False),
        "one should have left a moment ago": ([OLD, LEAVES, WAITS], (), LONG - 1, False),
        "one should have left long ago": ([OLD, LEAVES, WAITS], (), LONG, True),
        "one that leaves is over": ([OLD, pod("old", leaves=True, phase="Failed"), WAITS], (), 0, True),
    },
)
def test_when_a_rollout_stands_still(
    pods: list[Any], deciding: tuple[str, ...], leaving: float, expected: bool
) -> None:
    found = [decode(raw_of(each)) for each in pods]

    assert stands_still(found, NEW, deciding, {each.metadata.uid: leaving for each in found}) is expected


def test_a_standstill_counts_from_when_it_was_seen_and_is_forgotten_when_something_moves() -> None:
    world = World(settings=cap_of(1))
    (old,) = world.create(1, "web-a", revision="a", n="0")
    world.leader.settle(1)
    world.bind_all()
    world.cluster.edit(old, {"status": READY})
    world.create(1, "web-b", revision="b", n="0")
    world.leader.settle(11)
    (leaving,) = world.create(1, "web-c", revision="c", n="1")
    at = {"deletionTimestamp": NOW.isoformat(), "deletionGracePeriodSeconds": GRACE}
    world.cluster.edit(leaving, {"metadata": at})
    world.leader.settle(1)
    world.cluster.remove(leaving)
    world.leader.settle(11)
    assert world.placements("web-b") == {"": 1}

    world.leader.settle(2)
    assert world.placements("web-b") == {"local": 1}
    assert world.leader.recorder.reasons[-1] == "LocalForRollout"


@pytest.mark.parametrize("ahead", [0.0, 300.0, -300.0])
def test_a_pod_leaves_for_a_minute_beyond_its_grace_period_whatever_the_clock_says(ahead: float) -> None:
    """After that, a standstill begins, which takes another minute."""
    world = World(settings=cap_of(1), ahead=ahead)
    leaving, old = world.create(2, "web-a", revision="a", n="1")
    world.leader.settle(1)
    world.bind_all()
    world.cluster.edit(old, {"status": READY})
    ends = (NOW + timedelta(seconds=world.clock() + GRACE)).isoformat()
    world.cluster.edit(
        leaving, {"metadata": {"deletionTimestamp": ends, "deletionGracePeriodSeconds": GRACE}}
    )
    world.create(1, "web-b", revision="b", n="0")
    world.pass_by(LONG + STANDSTILL - 10.0)
    assert world.placements("web-b") == {"": 1}

    world.leader.settle(4)
    assert world.placements("web-b") == {"local": 1}
