"""Pods that a super node accepts and never starts: what is taken for it, and where their replacements go."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from api.elasticity import GATE
from controllers.elasticity.nodes import sorted_out
from controllers.elasticity.pods import PodSpec, decode
from controllers.elasticity.super_nodes import plan as plan_super_nodes
from kube.resources import EVENTS
from kube.selectors import selects
from kube.types import INSTANCE_TYPE, SUPER_NODE, Node
from settings import ElasticitySettings
from settings.elasticity import HomeFailover
from tests import cli
from tests.elasticity_world import AWAY, HOME, World, node, raw_of, raw_pod, super_node
from tests.factories import NOW
from tests.tables import table

OTHER = "eklet-subnet-2"
ON = ElasticitySettings(
    enabled=True, home_failover=HomeFailover.model_validate({"enabled": True, "homeAfter": "5m"})
)
TWO = sorted_out(
    [node(HOME), *(super_node(name, {"kubernetes.io/hostname": "eklet-0"}) for name in (AWAY, OTHER))]
)
"""Registered by eklet, under the name of the machine that it runs on."""
ONE = sorted_out([node(HOME), super_node()])
WAITS = {"name": "app", "restartCount": 0, "lastState": {}}
BOUND = NOW + timedelta(seconds=10)
SCHEDULED = {"type": "PodScheduled", "status": "True", "lastTransitionTime": BOUND.isoformat()}


# What is taken for it


def waiting(reason: str) -> dict[str, Any]:
    return {"containerStatuses": [{**WAITS, "state": {"waiting": {"reason": reason}}}]}


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
            {"phase": "Pending", "initContainerStatuses": [{**WAITS, "state": {"running": {}}}]},
            False,
        ),
        "a container has run": (
            {"phase": "Pending", "containerStatuses": [{**WAITS, "lastState": {"terminated": {}}}]},
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


def test_nothing_is_avoided_any_more_when_it_is_switched_off() -> None:
    world, name = unstarted()
    world.leader.nodes = ONE
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
