"""A full cap holds up no rollout; where nothing can be done about it, the pod says what its rollout waits for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from controllers.elasticity.pods import decode
from controllers.elasticity.rollouts import PATIENCE, Standstills, stands_still
from settings import ElasticitySettings
from settings.elasticity import MaxSuperPods
from tests.elasticity_world import AWAY, World, raw_of, raw_pod
from tests.factories import NOW
from tests.fakes import FakeClock
from tests.tables import table
from webhook.elasticity import PLACEMENT, REASON

READY = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
ONLY_SUPER = {"nodeSelector": {"node.kubernetes.io/instance-type": "eklet"}}
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
            [pod("old", ready=True, ends=-PATIENCE), WAITS],
            (),
            False,
        ),
        "only its own are ready": ([pod("new", ready=True), WAITS], (), False),
        "its own are ready, too": ([OLD, pod("new", ready=True), WAITS], (), True),
        "one of its own starts": ([OLD, pod("new"), WAITS], (), False),
        "another one starts": ([OLD, pod("old"), WAITS], (), True),
        "one is being decided on": ([OLD, WAITS], ("uid-new-1",), False),
        "one leaves": ([OLD, pod("old", ends=0), WAITS], (), False),
        "one should have left a moment ago": ([OLD, pod("old", ends=1 - PATIENCE), WAITS], (), False),
        "one should have left long ago": ([OLD, pod("old", ends=-PATIENCE), WAITS], (), True),
        "one that leaves is over": ([OLD, pod("old", ends=0, phase="Failed"), WAITS], (), True),
    },
)
def test_when_a_rollout_stands_still(pods: list[Any], deciding: tuple[str, ...], expected: bool) -> None:
    assert stands_still([decode(raw_of(each)) for each in pods], NEW, deciding, NOW) is expected


def test_a_standstill_counts_from_when_it_was_seen_and_is_forgotten_when_something_moves() -> None:
    clock = FakeClock(0.0)
    standstills = Standstills(clock)
    seen = [standstills.observe(NEW, is_still=True)]
    for is_still in (True, False, True):
        clock.advance(9.0)
        seen.append(standstills.observe(NEW, is_still=is_still))

    assert seen == [0.0, 9.0, 0.0, 0.0]


@table(
    "spec, has_room, placement, why",
    {
        "it is local instead": ({}, True, "local", "so would its rollout: stays local"),
        "there is no room either": (
            {},
            False,
            "local",
            "No local node has room, and maxSuperPods.total is 3",
        ),
        "it can run on super nodes alone": (
            ONLY_SUPER,
            True,
            "",
            "waits, maxSuperPods.total is 3, and as many pods are on super nodes; so does its rollout",
        ),
    },
)
def test_the_first_pod_of_a_new_revision_says_what_becomes_of_it_under_a_full_cap(
    spec: Any, has_room: bool, placement: str, why: str
) -> None:
    world = World(settings=ElasticitySettings(enabled=True, max_super_pods=MaxSuperPods(total=3)))
    world.create(3, "web-1", n="0", spec=spec)
    world.leader.settle()
    world.bind_all()
    for name in world.cluster.pods:
        world.cluster.edit(name, {"status": READY})
    (name,) = world.create(1, "web-2", n="0", revision="2", spec=spec)
    world.leader.settle(int(PATIENCE))
    if not has_room:
        world.no_room(name)
        world.leader.settle()

    assert world.annotations(name).get(PLACEMENT, "") == placement
    assert why in world.annotations(name)[REASON]
    assert world.cluster.sent() == 3
