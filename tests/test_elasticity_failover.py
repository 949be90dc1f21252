"""Pods that super nodes do not take: those that are not ready, have no room, or accept pods and never start them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from api.elasticity import GATE
from controllers.elasticity.nodes import Nodes, sorted_out
from controllers.elasticity.pods import PodSpec, decode
from controllers.elasticity.super_nodes import plan as plan_super_nodes
from dev.fake_api import Reply, Request
from kube.resources import EVENTS
from kube.selectors import selects
from kube.types import INSTANCE_TYPE, SUPER_NODE, Node
from settings import ElasticitySettings
from settings.elasticity import HomeFailover
from tests import cli
from tests.elasticity_world import AWAY, HOME, World, cap_of, fleet, node, raw_of, raw_pod, super_node
from tests.factories import NOT_READY, NOW
from tests.tables import table

# Super nodes that are not ready

OUT = sorted_out([node(HOME), super_node(taints=[NOT_READY])])
ONE_AWAY = cap_of(1)
WAITS = "waits for 60 s at most, no super node is without taint node.kubernetes.io/not-ready:NoSchedule"


def pass_by(world: World, seconds: float, nodes: Nodes) -> None:
    """The leader takes a turn every five *seconds*."""
    world.leader.set_nodes(nodes)
    world.pass_by(seconds)


def full(world: World) -> list[str]:
    """A pod that has the only place on super nodes, and one that has waited for it for long."""
    first, second = world.create(2, n="0")
    pass_by(world, 300.0, fleet())
    assert world.cluster.names(lambda pod: pod.gated) == [second]
    return [first, second]


def is_gated(world: World, name: str) -> bool:
    return world.cluster.pod(name).gated


def reason(world: World, name: str) -> str:
    return world.annotations(name)["drawbridge.io/placement-reason"]


@pytest.mark.parametrize("ahead", [0.0, 300.0, -300.0])
def test_a_new_pod_waits_a_minute_and_is_local_then(ahead: float) -> None:
    world = World(nodes=OUT, ahead=ahead)
    pass_by(world, 120.0, OUT)
    (name,) = world.create(1, n="0")
    pass_by(world, 55.0, OUT)
    assert is_gated(world, name)
    assert any(message.endswith(WAITS) for _, message in world.leader.recorder.events)
    pass_by(world, 15.0, OUT)

    assert world.placements() == {"local": 1}
    assert "stays local, no super node is without taint" in reason(world, name)


def test_a_pod_that_has_waited_for_its_place_for_long_waits_for_super_nodes_too() -> None:
    world = World(settings=ONE_AWAY)
    first, second = full(world)
    pass_by(world, 30.0, OUT)
    assert is_gated(world, second)
    world.cluster.remove(first)
    pass_by(world, 10.0, fleet())

    assert world.placements() == {"super": 1}


def test_each_time_they_are_not_ready_counts_by_itself() -> None:
    world = World(settings=ONE_AWAY)
    _, second = full(world)
    for _ in range(3):
        pass_by(world, 40.0, OUT)
        pass_by(world, 10.0, fleet())

    assert is_gated(world, second)


def test_of_several_super_nodes_the_one_that_is_not_ready_for_the_shortest_time_counts() -> None:
    world = World(settings=ONE_AWAY)
    _, second = full(world)
    other = super_node("eklet-subnet-2", taints=[NOT_READY])
    pass_by(world, 50.0, OUT)
    pass_by(world, 40.0, sorted_out([*OUT.super, *OUT.local, other]))
    assert is_gated(world, second)
    pass_by(world, 30.0, sorted_out([*OUT.super, *OUT.local, other]))

    assert not is_gated(world, second)


def test_a_pod_that_does_not_fit_them_when_they_are_ready_does_not_wait() -> None:
    world = World(nodes=OUT)
    (name,) = world.create(1, n="0", spec={"nodeSelector": {"gpu": "yes"}})
    pass_by(world, 5.0, OUT)

    assert world.placements() == {"local": 1}
    assert "has gpu=yes" in reason(world, name)


# Failover to local nodes

ON = ElasticitySettings(home_failover=HomeFailover.model_validate({"enabled": True, "homeAfter": "5m"}))


def stranded(behind: float = 0.0, **parts: object) -> tuple[World, str]:
    world = World(settings=ON)
    (name,) = world.create(1, n="0", **parts)
    world.leader.settle()
    world.no_room(name, behind)
    world.leader.settle(1)
    return world, name


@pytest.mark.parametrize("behind", [0.0, 300.0, -300.0])
def test_it_is_given_up_after_a_while_and_its_successor_stays_local(behind: float) -> None:
    world, name = stranded(behind)
    world.clock.advance(299.0 - 10.0)
    world.leader.settle(1)
    assert name in world.cluster.pods
    world.leader.settle(2)
    assert name not in world.cluster.pods
    (successor,) = world.create(1, n="0")
    world.leader.settle()

    assert world.annotations(successor)["drawbridge.io/placement"] == "local"
    assert world.leader.recorder.reasons == ["AllowedHomeAgain"] * 2


def test_super_nodes_are_tried_again_later() -> None:
    world, _ = stranded()
    world.clock.advance(300.0)
    world.leader.settle()
    world.clock.advance(300.0)
    world.create(1, n="0")
    world.leader.settle()

    assert world.placements() == {"super": 1}


@table(
    "parts",
    {
        "nothing would replace it": {"owned": False},
        "its replacement could run nowhere else": {"spec": {"nodeSelector": {INSTANCE_TYPE: SUPER_NODE}}},
    },
)
def test_these_are_never_deleted(parts: dict[str, object]) -> None:
    world, name = stranded(**parts)
    world.clock.advance(3600.0)
    world.leader.settle()

    assert name in world.cluster.pods
    assert world.leader.recorder.reasons == ["NotTakenBySuperNode"]


def test_a_pod_that_found_its_place_meanwhile_is_not_deleted() -> None:
    world, name = stranded()
    world.clock.advance(300.0)
    world.leader.decide()
    world.bind(name, AWAY)
    world.leader.let_go()
    world.leader.settle()

    assert name in world.cluster.pods


def test_a_pod_of_another_revision_that_takes_the_name_of_one_that_is_given_up_is_placed() -> None:
    world, name = stranded(kind="StatefulSet")
    world.clock.advance(300.0)
    world.leader.decide()
    world.replace(name, n="0")
    world.leader.let_go()
    world.pass_by(30.0)

    assert not is_gated(world, name)


# Pods that a super node accepts and never starts

OTHER = "eklet-subnet-2"
TWO = sorted_out(
    [node(HOME), *(super_node(name, {"kubernetes.io/hostname": "eklet-0"}) for name in (AWAY, OTHER))]
)
"""Registered by eklet, under the name of the machine that it runs on."""
CONTAINER = {"name": "app", "restartCount": 0, "lastState": {}}
BOUND = NOW + timedelta(seconds=10)
SCHEDULED = {"type": "PodScheduled", "status": "True", "lastTransitionTime": BOUND.isoformat()}


# What is taken for it


def waiting(reason: str) -> dict[str, Any]:
    return {"containerStatuses": [{**CONTAINER, "state": {"waiting": {"reason": reason}}}]}


@table(
    "status, expected",
    {
        "nothing is said of it": ({"phase": "Pending", "conditions": [SCHEDULED]}, True),
        "nothing at all": ({}, True),
        "it is being created": (
            {"phase": "Pending", "conditions": [SCHEDULED], **waiting("ContainerCreating")},
            True,
        ),
        "its image is not there": ({"phase": "Pending", **waiting("ErrImagePull")}, False),
        "its ConfigMap is not there": ({"phase": "Pending", **waiting("CreateContainerConfigError")}, False),
        "an undocumented reason": ({"phase": "Pending", **waiting("Magic")}, False),
        "it has an IP": ({"phase": "Pending", "podIP": "10.0.0.1"}, False),
        "it has a sandbox": (
            {"phase": "Pending", "conditions": [{"type": "PodReadyToStartContainers", "status": "True"}]},
            False,
        ),
        "an init container runs": (
            {"phase": "Pending", "initContainerStatuses": [{**CONTAINER, "state": {"running": {}}}]},
            False,
        ),
        "a container has run": (
            {"phase": "Pending", "containerStatuses": [{**CONTAINER, "lastState": {"terminated": {}}}]},
            False,
        ),
        "it runs": ({"phase": "Running"}, False),
        "it has ended": ({"phase": "Failed"}, False),
    },
)
def test_a_bound_pod_has_not_started_while_nothing_says_that_a_machine_has_it(
    status: dict[str, Any], expected: bool
) -> None:
    raw = raw_pod("web-1", gated=False, spec={"nodeName": AWAY}) | {"status": status}

    assert decode(raw_of(raw)).unstarted is expected


# Where their replacements go


def bound(world: World, name: str, at: str, behind: float = 0.0) -> None:
    """As the scheduler does, whose clock is so many seconds *behind* the leader's."""
    now = (NOW + timedelta(seconds=world.clock() - behind)).isoformat()
    status = {"conditions": [{**SCHEDULED, "lastTransitionTime": now}]}
    world.cluster.edit(name, {"spec": {"nodeName": at}, "status": status})


def unstarted(settings: ElasticitySettings = ON, behind: float = 0.0, **parts: Any) -> tuple[World, str]:
    """A world with a pod that a super node accepts and does not start."""
    world = World(settings=settings, nodes=TWO)
    (name,) = world.create(1, **{"n": "0"} | parts)
    world.leader.settle(1)
    bound(world, name, AWAY, behind)
    return world, name


def ends(world: World, *names: str) -> bool:
    """Whether these are deleted; then the provider has ended them."""
    if any(world.cluster.pod(name).active for name in names):
        return False
    for name in names:
        world.cluster.remove(name)
    return True


def event(world: World, name: str, reason: str, message: str = "") -> None:
    about = {"kind": "Pod", "name": name, "namespace": "shop", "uid": f"uid-{name}"}
    metadata = {"name": f"{name}.{reason}", "namespace": "shop"}
    raw = {
        "metadata": metadata,
        "involvedObject": about,
        "reason": reason,
        "message": message,
        "type": "Warning",
    }
    world.cluster.api.put(EVENTS, {**raw, "lastTimestamp": NOW.isoformat()})


def open_to(world: World, name: str) -> list[str]:
    """The nodes that its affinity allows."""
    required = msgspec.convert(world.cluster.pods[name]["spec"], PodSpec).required
    nodes = [each.metadata for each in (*TWO.super, *TWO.local)]
    return [each.name for each in nodes if required and selects(required, each.name, each.labels)]


@pytest.mark.parametrize("behind", [300.0, -300.0])
def test_the_clock_of_the_scheduler_does_not_count(behind: float) -> None:
    world, name = unstarted(behind=behind)
    world.pass_by(290.0)
    assert not ends(world, name)
    world.pass_by(15.0)
    assert ends(world, name)


def test_a_pod_that_is_bound_before_its_placement_is_answered_counts_from_then() -> None:
    world = World(settings=ON, nodes=TWO)
    (name,) = world.create(1, n="0")
    world.leader.decide()
    carry_out = world.cluster.carry_out

    def overtaken(call: Request) -> Reply:
        world.cluster.carry_out = carry_out  # type: ignore[method-assign]
        reply = carry_out(call)
        bound(world, name, AWAY)
        world.leader.decide()
        return reply

    world.cluster.carry_out = overtaken  # type: ignore[method-assign]
    world.leader.let_go()
    world.pass_by(290.0)
    assert not ends(world, name)
    world.pass_by(20.0)
    assert ends(world, name)


def test_its_replacement_goes_to_another_super_node_and_home_when_there_is_none() -> None:
    world, name = unstarted()
    event(world, name, "FailedCreate", "sold out")
    world.pass_by(290.0)
    assert not ends(world, name)
    world.pass_by(15.0)
    assert ends(world, name)
    why = f"{AWAY} did not start it for 300 s (FailedCreate: sold out): its replacement avoids it"
    assert world.leader.recorder.events == [("NotStartedBySuperNode", why)]

    (second,) = world.create(1, n="0")
    world.leader.settle(1)
    assert world.annotations(second)["drawbridge.io/placement"] == "super"
    assert open_to(world, second) == [OTHER]

    bound(world, second, OTHER)
    world.pass_by(310.0)  # until then AWAY was avoided
    assert ends(world, second)
    (third,) = world.create(1, n="0")
    world.leader.settle(1)
    assert world.annotations(third)["drawbridge.io/placement"] == "super"
    assert open_to(world, third) == [AWAY]


def test_a_replacement_that_asks_for_super_nodes_does_not_avoid_the_first_one_for_ever() -> None:
    asking = {"n": "0", "spec": {"nodeSelector": {INSTANCE_TYPE: SUPER_NODE}}}
    world, name = unstarted(**asking)
    world.pass_by(310.0)
    assert ends(world, name)
    (second,) = world.create(1, **asking)
    world.leader.settle(1)
    assert open_to(world, second) == [OTHER]
    assert f"avoids {AWAY}" in world.annotations(second)["drawbridge.io/placement-reason"]

    world.no_room(second)
    world.pass_by(310.0)

    assert second not in world.cluster.pods


def test_each_time_the_node_is_avoided_for_twice_as_long() -> None:
    world, name = unstarted()
    deleted = 0
    for _ in range(1440):  # for two hours, and the scheduler knows only one node
        world.pass_by(5.0)
        if ends(world, name):
            deleted += 1
            (name,) = world.create(1, n="0")
            world.leader.settle(1)
            bound(world, name, AWAY)

    assert deleted == 5  # after 5, 10, 20, 40 and 80 minutes


@table(
    "reason",
    {each: each for each in ("Pulling", "Failed", "BackOff", "FailedMount", "FailedAttachVolume", "Created")},
)
def test_a_pod_that_a_machine_has_is_left(reason: str) -> None:
    world, name = unstarted()
    event(world, name, reason)
    world.pass_by(900.0)

    assert not ends(world, name)
    assert world.leader.recorder.events == []


@table(
    "parts, events",
    {
        "no controller": ({"owned": False}, ["NotTakenBySuperNode"]),
        "of a Job": ({"kind": "Job", "spec": {"restartPolicy": "Never"}}, ["NotTakenBySuperNode"]),
        "of a Workflow": (
            {"kind": "Workflow", "spec": {"restartPolicy": "OnFailure"}},
            ["NotTakenBySuperNode"],
        ),
        "tolerates super nodes itself": (
            {"n": None, "spec": {"tolerations": [{"operator": "Exists"}]}},
            [],
        ),
    },
)
def test_these_are_left_and_say_so_once(parts: dict[str, Any], events: list[str]) -> None:
    world, name = unstarted(**parts)
    world.pass_by(900.0)

    assert not ends(world, name)
    assert world.leader.recorder.reasons == events


def test_nothing_is_read_or_deleted_while_it_is_off() -> None:
    world, name = unstarted(ElasticitySettings(enabled=True))
    reads = world.leader.client.reads
    world.pass_by(900.0)

    assert not ends(world, name)
    assert world.leader.client.reads == reads


def test_a_node_that_did_not_start_pods_is_the_last_choice_for_a_while() -> None:
    world, name = unstarted()
    world.pass_by(310.0)
    assert ends(world, name)
    avoided = world.leader.parts.avoided()
    assert AWAY in avoided
    assert OTHER not in avoided
    subnets = [{"id": each.removeprefix("eklet-"), "zone": "z-1"} for each in (AWAY, OTHER)]
    settings = ElasticitySettings.model_validate({"enabled": True, "subnets": subnets})
    first, second = (action.body for action in plan_super_nodes([], settings, NOW, avoided))
    taint = {"key": "drawbridge.io/not-starting", "effect": "PreferNoSchedule"}
    assert taint in first["spec"]["taints"]
    assert taint not in second["spec"]["taints"]

    world.clock.advance(300.0)
    again = msgspec.convert({**first, "metadata": {**first["metadata"], "uid": "1"}}, Node)
    changed, _ = plan_super_nodes([again], settings, NOW, world.leader.parts.avoided())
    assert taint not in changed.body["spec"]["taints"]


def test_what_is_avoided_is_read_and_forgotten_while_nothing_is_decided() -> None:
    world, name = unstarted()
    world.pass_by(310.0)
    assert ends(world, name)
    parts, asked = world.leader.parts, list[bool]()

    def clock() -> float:
        asked.append(parts._deciding.locked())
        return world.clock()

    parts._unstarted._clock = clock
    parts.upkeep()
    assert AWAY in parts.avoided()

    assert asked
    assert all(asked)


def test_nothing_is_avoided_any_more_when_it_is_switched_off() -> None:
    world, name = unstarted()
    world.leader.set_nodes(fleet())
    world.pass_by(310.0)
    assert ends(world, name)
    pending = world.stuck()
    world.leader.settle(1)
    assert "drawbridge.io/burst" not in world.annotations(pending)

    world.leader.settings = ElasticitySettings(enabled=True)
    (second,) = world.create(1, n="0")
    world.leader.settle(1)

    assert "drawbridge.io/burst" in world.annotations(pending)
    assert world.annotations(second)["drawbridge.io/placement"] == "super"
    assert AWAY not in world.leader.parts.avoided()


def test_commands_call_no_pod_late_that_others_hold() -> None:
    api = cli.installed("elasticity")
    for name, gates in (("late", [GATE]), ("queued", [GATE, "kueue.x-k8s.io/admission"])):
        spec = {"schedulingGates": [{"name": gate} for gate in gates]}
        api.put(cli.resource("Pod"), raw_pod(name, at=-90.0, gated=False, spec=spec))

    said = str(cli.shown(api, "status"))
    assert "shop/late is gated for over a minute" in said
    assert "queued" not in said


def test_commands_show_a_pod_that_has_not_started_for_long() -> None:
    api = cli.installed("elasticity")
    labels = {"node.kubernetes.io/instance-type": "eklet"}
    api.put(cli.resource("Node"), {"metadata": {"name": AWAY, "labels": labels}})
    for name, minutes in (("old", 11), ("new", 9)):
        at = {**SCHEDULED, "lastTransitionTime": (NOW - timedelta(minutes=minutes)).isoformat()}
        raw = raw_pod(name, gated=False, spec={"nodeName": AWAY})
        api.put(cli.resource("Pod"), raw | {"status": {"phase": "Pending", "conditions": [at]}})

    listed = cli.shown(api, "elasticity", "list", "-A")["placements"]
    assert [(each["pod"], each["place"]) for each in listed] == [("new", "starting"), ("old", "starting")]
    said = str(cli.shown(api, "status"))
    assert "shop/old has not started on a super node for over ten minutes" in said
    assert "shop/new" not in said


def test_commands_count_no_pod_that_has_ended() -> None:
    api = cli.installed("elasticity")
    labels = {"node.kubernetes.io/instance-type": "eklet"}
    api.put(cli.resource("Node"), {"metadata": {"name": AWAY, "labels": labels}})
    for where in (HOME, AWAY):
        for phase in ("Running", "Succeeded", "Failed"):
            raw = raw_pod(f"{where}-{phase.lower()}", gated=False, spec={"nodeName": where})
            api.put(cli.resource("Pod"), raw | {"status": {"phase": phase}})

    found = cli.shown(api, "status")["elasticity"]
    assert (found["local"], found["onSuperNodes"]) == (1, 1)
