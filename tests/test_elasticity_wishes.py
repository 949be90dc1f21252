"""What a pod asks for, where it goes, and what it says: decided by a leader, and written."""

from __future__ import annotations

from typing import Any

import msgspec

from api.elasticity import BURST, COST, MODE, OUR_COST, PLACEMENT, SWITCH, TAINT_KEY
from controllers.elasticity.nodes import sorted_out
from controllers.elasticity.rules import CBS_DRIVER
from controllers.elasticity.snapshot import Workload
from kube.selectors import REQUIRED
from kube.types import NodeStatus
from settings import ElasticitySettings
from settings.elasticity import HomeFailover
from tests.elasticity_world import AWAY, HOME, World, cap_of, fleet, node, raw_pod, super_node
from tests.tables import table

HOSTNAME = "kubernetes.io/hostname"
TOLERANT = {"tolerations": [{"operator": "Exists"}]}
OF_SUPER_NODES = {"tolerations": [{"key": TAINT_KEY, "operator": "Exists"}]}
EKLET = {"nodeSelector": {"node.kubernetes.io/instance-type": "eklet"}}
GPU = {"nodeSelector": {"gpu": "yes"}}
PORT = {
    "containers": [{"name": "app", "image": "app", "ports": [{"containerPort": 61000}, {"hostPort": 65534}]}]
}
CLAIMING = {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "none"}}]}
FAILOVER = ElasticitySettings(enabled=True, home_failover=HomeFailover(enabled=True))
OUT = sorted_out([node(HOME), msgspec.structs.replace(super_node(), status=NodeStatus())])
CLOSED = {"nodes": sorted_out([super_node(unschedulable=True)])}
PINNING = {"settings": ElasticitySettings(enabled=True, placement="pin")}
REASON = "drawbridge.io/placement-reason"
NO_GPU = "no super node has gpu=yes"
KEEPS = "super nodes reserve ports 61000-65534"


def placed(world: World, name: str) -> str:
    return world.annotations(name).get(PLACEMENT, "")


def is_kept_off(world: World, name: str) -> bool:
    affinity = world.cluster.pods[name]["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get(REQUIRED, {}).get("nodeSelectorTerms", [])
    return any(each.get("operator") == "NotIn" for term in terms for each in term["matchExpressions"])


@table(
    "parts, of, expected",
    {
        "no super node matches it": ({}, {"n": "0", "spec": GPU}, "local, NoMatchingSuperNode"),
        "its claim is never created": ({}, {"n": "0", "spec": CLAIMING}, "local, NotEligibleForSuperNode"),
        "a switch keeps it": ({"switch": False}, {"n": "0"}, "local"),
        "none would take it": ({"settings": FAILOVER, "nodes": OUT}, {"n": "0"}, "local, AllowedHomeAgain"),
        "its number is gone": ({}, {"n": None}, "local"),
        "its number is a word": ({}, {"n": "many"}, "local, BadLocalReplicas"),
        "all are pinned": (PINNING, {}, "local, kept off"),
        "all are pinned, and it is beyond the first N": (PINNING, {"n": "0"}, "super"),
        "all are pinned, and it prefers": (PINNING, {"annotations": {MODE: "prefer"}}, "local"),
        "a switch that is none": ({}, {"n": "0", "annotations": {SWITCH: "maybe"}}, "super, BadSwitch"),
        "a mode that is none": ({}, {"annotations": {MODE: "maybe"}}, "local, BadPlacementMode"),
        "it tolerates super nodes": ({"switch": False}, {"n": None, "spec": TOLERANT}, "any"),
        "it tolerates super nodes and breaks a rule": (
            {},
            {"n": None, "spec": {**TOLERANT, **PORT}},
            "local, kept off, NotEligibleForSuperNode",
        ),
        "it asks for super nodes": ({}, {"spec": EKLET}, "super"),
        "it asks for super nodes and tolerates all": ({}, {"spec": {**EKLET, **TOLERANT}}, "super"),
        "it asks for super nodes, which take none now": (
            CLOSED,
            {"spec": {**EKLET, **OF_SUPER_NODES}},
            "any, NoMatchingSuperNode",
        ),
        "it asks for what a switch forbids": ({"switch": False}, {"spec": EKLET}, "local"),
    },
)
def test_where_a_gated_pod_goes(parts: dict[str, Any], of: dict[str, Any], expected: str) -> None:
    world = World(**parts)
    (name,) = world.create(1, **of)
    world.leader.settle()

    kept_off = ["kept off"] * is_kept_off(world, name)
    assert ", ".join([placed(world, name), *kept_off, *world.leader.recorder.reasons]) == expected


def test_a_pod_is_judged_as_it_will_be() -> None:
    """Bound to super nodes, or allowed there: then a topology spread counts local nodes, too."""
    world = World()
    (there,) = world.create(1, gated=False)
    world.bind(there, AWAY)
    like_it = {"labelSelector": {"matchLabels": {"pod-template-hash": "1"}}}
    constraint = {"maxSkew": 1, "topologyKey": HOSTNAME, "whenUnsatisfiable": "DoNotSchedule", **like_it}
    spread = {"topologySpreadConstraints": [constraint]}
    stuck = world.stuck("stuck", spec=spread)
    beyond, asking = (*world.create(1, n="0", spec=spread), *world.create(1, spec={**spread, **EKLET}))
    world.leader.settle()

    assert (placed(world, beyond), placed(world, asking)) == ("super", "super")
    assert BURST not in world.annotations(stuck)


NO_ROOM = "No local node has room, and"
SENT = ("SentToSuperNode", "No local node has room, global=true local=unset: it may go to a super node")


@table(
    "switch, of, reason, message",
    {
        "nothing keeps it": (True, {}, *SENT),
        "the switches keep it": (
            False,
            {},
            "KeptLocal",
            f"{NO_ROOM} global=false local=unset: it must stay local",
        ),
        "no super node matches it": (
            None,
            {"spec": GPU},
            "NoMatchingSuperNode",
            f"{NO_ROOM} {NO_GPU}: it waits",
        ),
        "all rules that it breaks are named": (
            None,
            {"spec": PORT, "namespace": "kube-system"},
            "NotEligibleForSuperNode",
            "It cannot run on super nodes: namespace kube-system is one of excludedNamespaces (kube-system,"
            f" tke-eni-ip-webhook); container app: containerPort is 61000: {KEEPS}; container app: hostPort is"
            f" 65534: {KEEPS}",
        ),
    },
)
def test_what_becomes_of_a_pod_without_local_room(
    switch: bool | None, of: dict[str, Any], reason: str, message: str
) -> None:
    """It is allowed on super nodes in place, by one write, which has its deletion cost, too."""
    world = World(switch=switch)
    name = world.stuck(**of)
    world.leader.settle()

    goes, annotations = reason == SENT[0], world.annotations(name)
    assert world.leader.recorder.events == [(reason, message)]
    assert world.cluster.writes == [name] * goes
    wanted = ("allowed", "-100", "-100") if goes else (None, None, None)
    assert (annotations.get(BURST), annotations.get(COST), annotations.get(OUR_COST)) == wanted
    tolerations = world.cluster.pods[name]["spec"].get("tolerations", ())
    assert any(each["key"] == TAINT_KEY for each in tolerations) is goes


def test_a_pod_without_room_that_no_super_node_matches_waits_until_one_does() -> None:
    world = World()
    name = world.stuck(spec=GPU)
    world.leader.settle()
    world.leader.set_nodes(fleet(super_node("eklet-gpu", {"gpu": "yes"})))
    world.leader.settle()

    assert world.annotations(name)[BURST] == "allowed"


def test_a_pinned_pod_without_room_waits_and_says_so() -> None:
    world = World()
    (name,) = world.create(1, annotations={MODE: "pin"})
    world.leader.settle()
    world.no_room(name)
    world.leader.settle()

    assert BURST not in world.annotations(name)
    assert world.leader.recorder.events == [
        ("KeptLocal", f"{NO_ROOM} its affinity keeps it off super nodes: it waits")
    ]


@table(
    "of, goes",
    {
        "the first waits": ({}, ["web-2"]),
        "both are": ({"n": "2"}, []),
        "by their ordinals": ({"kind": "StatefulSet"}, ["web-1", "web-2"]),
        "an ordinal is below N": ({"kind": "StatefulSet", "n": "2"}, ["web-2"]),
        "they could run nowhere else": ({"spec": EKLET}, ["web-1", "web-2"]),
        "the first may go, too": ({"annotations": {MODE: "prefer"}}, ["web-1", "web-2"]),
    },
)
def test_the_first_are_pinned_also_when_no_webhook_server_saw_them(
    of: dict[str, Any], goes: list[str]
) -> None:
    """They have no affinity, and were counted as local: so those beyond N are others."""
    world = World(**PINNING)
    for _ in range(2):
        world.stuck(**{"n": "1"} | of)
        world.clock.advance(1.0)
    world.leader.settle()
    world.leader.settle()

    assert [name for name in ("web-1", "web-2") if BURST in world.annotations(name)] == goes
    waits = [message for reason, message in world.leader.recorder.events if reason == "KeptLocal"]
    number = of.get("n", "1")
    assert waits == [f"{NO_ROOM} it is one of the first {number}, which are pinned: it waits"] * (
        2 - len(goes)
    )


OF_HOME = [{"key": HOSTNAME, "operator": "In", "values": [HOME]}]
VOLUME = {
    "hostPath": {"path": "/data"},
    "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": OF_HOME}]}},
}
CLASS = {
    "provisioner": CBS_DRIVER,
    "volumeBindingMode": "WaitForFirstConsumer",
    "allowedTopologies": [{"matchLabelExpressions": [{"key": HOSTNAME, "values": [HOME]}]}],
}
TO_COME = {"ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "cbs"}}}}


@table(
    "volume, claim, missed",
    {
        "bound": (
            {"persistentVolumeClaim": {"claimName": "data"}},
            {"volumeName": "pv"},
            "reaches volume pv of claim data",
        ),
        "not bound yet": (
            {"persistentVolumeClaim": {"claimName": "data"}},
            {"storageClassName": "cbs"},
            "reaches storage class cbs of claim data",
        ),
        "to be claimed for the pod": (TO_COME, {}, "reaches storage class cbs of claim web-1-d"),
    },
)
def test_a_volume_of_another_node_keeps_its_pod_local(
    volume: dict[str, Any], claim: dict[str, Any], missed: str
) -> None:
    world = World()
    spec = {"volumes": [{"name": "d", **volume}]}
    world.cluster.others.update(
        {
            ("persistentvolumes", "pv"): {"metadata": {"name": "pv"}, "spec": VOLUME},
            ("storageclasses", "cbs"): {"metadata": {"name": "cbs"}, **CLASS},
            ("persistentvolumeclaims", "data"): {"metadata": {"name": "data"}, "spec": claim},
        }
    )
    (name,) = world.create(1, n="0", spec=spec)
    stuck = world.stuck(spec=spec)
    world.leader.settle()

    assert placed(world, name) == "local"
    assert missed in world.annotations(name)[REASON]
    assert "tolerations" not in world.cluster.pods[stuck]["spec"]
    assert world.leader.recorder.reasons == ["NoMatchingSuperNode"] * 2


# StatefulSets by ordinal


def db(world: World, *ordinals: int) -> None:
    for number in ordinals:
        raw = raw_pod(f"db-{number}", "db", world.clock(), kind="StatefulSet")
        raw["metadata"]["labels"]["apps.kubernetes.io/pod-index"] = str(number)
        world.cluster.put(raw)


def local(world: World) -> set[str]:
    return {pod.metadata.name for pod in world.cluster.decoded() if pod.placed == "local"}


def test_ordinals_count_from_the_first_of_the_stateful_set() -> None:
    world = World()
    world.cluster.workloads["owner-db"] = Workload(first=5)
    db(world, 5, 6, 7)
    world.leader.settle()

    assert local(world) == {"db-5", "db-6"}


def test_a_stateful_set_that_is_not_known_yet_is_waited_for_but_not_for_good() -> None:
    world = World()
    db(world, 0)
    world.leader.decide()
    assert world.leader.queue == []
    world.leader.settle()

    assert local(world) == {"db-0"}


# Shortfalls


def test_fewer_local_ones_than_wanted_are_made_up_for_by_the_next_pod_and_that_is_reported() -> None:
    world = World()
    first, *_ = world.create(4)
    world.leader.settle()
    world.bind_all()
    world.cluster.remove(first)
    (following,) = world.create(1)
    world.leader.settle()

    assert placed(world, following) == "local"
    assert world.leader.recorder.events == [
        (
            "LocalReplicasRestored",
            "global=unset local=unset LOCAL_REPLICAS=2, 1 local, 2 on super nodes: stays local, to make up for the"
            " missing local ones",
        )
    ]


def test_pods_that_tolerate_super_nodes_count_under_the_cap_until_they_run_elsewhere() -> None:
    world = World(settings=cap_of(1))
    first, second = world.create(2, n=None, spec=TOLERANT)
    world.leader.settle()
    assert (placed(world, first), placed(world, second)) == ("any", "local")
    assert is_kept_off(world, second)
    assert world.leader.recorder.reasons == ["SuperNodeCapReached"]
    world.bind(first, HOME)
    (third,) = world.create(1, n=None, spec=TOLERANT)
    world.leader.settle()

    assert placed(world, third) == "any"


def test_pods_that_tolerate_and_ask_for_super_nodes_wait_for_the_cap_while_none_is_open_too() -> None:
    world = World(settings=cap_of(1), nodes=sorted_out([node(HOME), super_node(unschedulable=True)]))
    first, second = world.create(2, n=None, spec=OF_SUPER_NODES | EKLET)
    world.leader.settle(1)

    assert (placed(world, first), placed(world, second)) == ("any", "")
    assert world.leader.recorder.reasons == ["NoMatchingSuperNode", "SuperNodeCapReached"]
