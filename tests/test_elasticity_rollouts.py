"""When a rollout stands still, and since when."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from controllers.elasticity.planner import STANDSTILL, stands_still
from controllers.elasticity.pods import decode
from settings import ElasticitySettings
from settings.elasticity import MaxSuperPods
from tests.elasticity_world import AWAY, World, raw_of, raw_pod
from tests.factories import NOW
from tests.tables import table

READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
NEW = "owner-new/1"


def pod(
    owner: str, *, gated: bool = False, ready: bool = False, ends: float | None = None, **status: Any
) -> Any:
    raw = raw_pod(f"{owner}-1", owner, gated=gated)
    raw["status"] = (READY if ready else raw["status"]) | status
    raw["spec"] |= {"nodeName": AWAY} if ready else {}
    if ends is not None:
        raw["metadata"]["deletionTimestamp"] = (NOW + timedelta(seconds=ends)).isoformat()
    return raw


OLD, WAITS = pod("old", ready=True), pod("new", gated=True)


@table(
    "pods, deciding, expected",
    {
        "one waits, and others are ready": ([OLD, WAITS], (), True),
        "no others are ready": ([pod("old"), WAITS], (), False),
        "the only other one that is ready leaves": (
            [pod("old", ready=True, ends=-STANDSTILL), WAITS],
            (),
            False,
        ),
        "only its own are ready": ([pod("new", ready=True), WAITS], (), False),
        "its own are ready, too": ([OLD, pod("new", ready=True), WAITS], (), True),
        "one of its own starts": ([OLD, pod("new"), WAITS], (), False),
        "another one starts": ([OLD, pod("old"), WAITS], (), True),
        "one is being decided on": ([OLD, WAITS], ("uid-new-1",), False),
        "one leaves": ([OLD, pod("old", ends=0), WAITS], (), False),
        "one should have left a moment ago": ([OLD, pod("old", ends=1 - STANDSTILL), WAITS], (), False),
        "one should have left long ago": ([OLD, pod("old", ends=-STANDSTILL), WAITS], (), True),
        "one that leaves is over": ([OLD, pod("old", ends=0, phase="Failed"), WAITS], (), True),
    },
)
def test_when_a_rollout_stands_still(pods: list[Any], deciding: tuple[str, ...], expected: bool) -> None:
    assert stands_still([decode(raw_of(each)) for each in pods], NEW, deciding, NOW) is expected


def test_a_standstill_counts_from_when_it_was_seen_and_is_forgotten_when_something_moves() -> None:
    world = World(settings=ElasticitySettings(enabled=True, max_super_pods=MaxSuperPods(total=1)))
    (old,) = world.create(1, "web-a", revision="a", n="0")
    world.leader.settle(1)
    world.bind_all()
    world.cluster.edit(old, {"status": READY})
    world.create(1, "web-b", revision="b", n="0")
    world.leader.settle(11)
    world.cluster.edit(old, {"status": {"conditions": []}})
    world.leader.settle(1)
    world.cluster.edit(old, {"status": READY})
    world.leader.settle(11)
    assert world.placements("web-b") == {"": 1}

    world.leader.settle(2)
    assert world.placements("web-b") == {"local": 1}
    assert world.leader.recorder.reasons[-1] == "LocalForRollout"
