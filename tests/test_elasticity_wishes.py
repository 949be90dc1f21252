"""What a pod asks for itself: ordinals, pins, its own tolerations, and super nodes."""

from __future__ import annotations

from typing import Any

import pytest

from api.elasticity import BURST, COST, MODE, OUR_COST, PLACEMENT, TAINT_KEY
from controllers.elasticity.nodes import sorted_out
from controllers.elasticity.snapshot import Workload
from settings import ElasticitySettings
from settings.elasticity import MaxSuperPods
from tests.elasticity_world import HOME, World, fleet, raw_pod, super_node

TOLERANT = {"tolerations": [{"operator": "Exists"}]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
EKLET = {"node.kubernetes.io/instance-type": "eklet"}
PORT = {"containers": [{"name": "app", "image": "app", "ports": [{"containerPort": 61000}]}]}
REASON = "drawbridge.io/placement-reason"


def placed(world: World, name: str) -> str:
    return world.annotations(name).get(PLACEMENT, "")


def is_kept_off(world: World, name: str) -> bool:
    affinity = world.cluster.pods[name]["spec"].get("affinity", {}).get("nodeAffinity", {})
    terms = affinity.get(REQUIRED, {}).get("nodeSelectorTerms", [])
    return any(each.get("operator") == "NotIn" for term in terms for each in term["matchExpressions"])


# Where nothing would take it


def test_a_pod_that_no_super_node_matches_stays_local_and_says_why() -> None:
    world = World()
    *_, last = world.create(3, spec={"nodeSelector": {"gpu": "yes"}})
    world.leader.settle()

    assert world.placements() == {"local": 3}
    assert world.annotations(last)[REASON] == (
        "global=unset local=unset LOCAL_REPLICAS=2, 2 local: stays local, no super node has gpu=yes"
    )
    assert world.leader.recorder.reasons == ["NoMatchingSuperNode"]


def test_a_volume_of_another_node_keeps_its_pod_local() -> None:
    world = World()
    spec = {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]}
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [HOME]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    volume = {"hostPath": {"path": "/data"}, "nodeAffinity": {"required": terms}}
    world.cluster.others = {
        ("persistentvolumes", "pv"): {"metadata": {"name": "pv"}, "spec": volume},
        ("persistentvolumeclaims", "data"): {"metadata": {"name": "data"}, "spec": {"volumeName": "pv"}},
    }
    (name,) = world.create(1, n="0", spec=spec)
    stuck = world.stuck(spec=spec)
    world.leader.settle()

    assert placed(world, name) == "local"
    assert "reaches volume pv of claim data" in world.annotations(name)[REASON]
    assert "tolerations" not in world.cluster.pods[stuck]["spec"]
    assert world.leader.recorder.reasons == ["NoMatchingSuperNode"] * 2


def test_a_pod_without_room_that_no_super_node_matches_waits_until_one_does() -> None:
    world = World()
    name = world.stuck(spec={"nodeSelector": {"gpu": "yes"}})
    world.leader.settle()
    assert BURST not in world.annotations(name)
    assert world.leader.recorder.events == [
        ("NoMatchingSuperNode", "No local node has room, and no super node has gpu=yes: it waits")
    ]
    world.leader.nodes = fleet(super_node("eklet-gpu", {"gpu": "yes"}))
    world.leader.settle()

    assert world.annotations(name)[BURST] == "allowed"


# The cost comes with the leave


def test_a_burst_pod_costs_less_before_it_has_a_node() -> None:
    world = World()
    name = world.stuck()
    world.leader.settle()

    assert (world.annotations(name)[COST], world.annotations(name)[OUR_COST]) == ("-100", "-100")
    assert world.cluster.writes == [name]


# StatefulSets by ordinal


def db(world: World, *ordinals: int, n: str = "2", revision: str = "1") -> list[str]:
    names = []
    for number in ordinals:
        raw = raw_pod(f"db-{number}", "db", world.clock(), n=n, kind="StatefulSet")
        raw["metadata"]["uid"] = f"uid-db-{number}-{revision}"
        raw["metadata"]["labels"] = {
            "controller-revision-hash": revision,
            "apps.kubernetes.io/pod-index": str(number),
        }
        world.cluster.put(raw)
        names.append(f"db-{number}")
    return names


def local(world: World) -> set[str]:
    return {pod.metadata.name for pod in world.cluster.decoded() if pod.placed == "local"}


def test_the_first_ordinals_are_local_also_after_an_update_that_begins_with_the_last() -> None:
    world = World()
    world.cluster.workloads["owner-db"] = Workload()
    db(world, *range(5))
    world.leader.settle()
    assert local(world) == {"db-0", "db-1"}
    world.bind_all()
    for number in (4, 3, 2, 1, 0):
        world.cluster.remove(f"db-{number}")
        db(world, number, revision="2")
        world.leader.settle()
        world.bind_all()
    assert local(world) == {"db-0", "db-1"}
    for number in (4, 3, 2):
        world.cluster.remove(f"db-{number}")
    world.leader.settle()

    assert local(world) == {"db-0", "db-1"}


def test_a_stateful_set_that_is_not_known_yet_is_waited_for_but_not_for_good() -> None:
    world = World()
    db(world, 0)
    world.leader.hear()
    world.leader.turn()
    assert world.leader.queue == []
    world.leader.settle()

    assert local(world) == {"db-0"}


# Pin and prefer


def test_the_first_n_are_pinned_where_that_is_asked_for() -> None:
    world = World(settings=ElasticitySettings(enabled=True, placement="pin"))
    first, _, last = world.create(3)
    (preferring,) = world.create(1, "other", annotations={MODE: "prefer"})
    world.leader.settle()

    assert (is_kept_off(world, first), is_kept_off(world, last), is_kept_off(world, preferring)) == (
        True,
        False,
        False,
    )
    assert placed(world, last) == "super"


def test_a_pinned_pod_without_room_waits_and_says_so() -> None:
    world = World()
    (name,) = world.create(1, annotations={MODE: "pin"})
    world.leader.settle()
    world.no_room(name)
    world.leader.settle()

    assert BURST not in world.annotations(name)
    assert world.leader.recorder.events == [
        ("KeptLocal", "No local node has room, and its affinity keeps it off super nodes: it waits")
    ]


def test_a_mode_that_is_none_counts_as_not_set_and_is_reported() -> None:
    world = World()
    (name,) = world.create(1, annotations={MODE: "maybe"})
    world.leader.settle()

    assert not is_kept_off(world, name)
    assert world.leader.recorder.events == [
        ("BadPlacementMode", f'{MODE} is \'maybe\', neither "prefer" nor "pin", and counts as not set')
    ]


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


# Pods that tolerate super nodes by themselves


def test_a_pod_that_tolerates_super_nodes_and_breaks_no_rule_runs_where_the_scheduler_likes() -> None:
    world = World(switch=False)
    (name,) = world.create(1, n=None, spec=TOLERANT)
    world.leader.settle()

    assert placed(world, name) == "any"
    assert "affinity" not in world.cluster.pods[name]["spec"]


def test_a_pod_that_tolerates_super_nodes_and_breaks_a_rule_is_kept_off_them() -> None:
    world = World()
    (name,) = world.create(1, n=None, spec={**TOLERANT, **PORT})
    world.leader.settle()

    assert (placed(world, name), is_kept_off(world, name)) == ("local", True)
    assert world.leader.recorder.reasons == ["NotEligibleForSuperNode"]


def test_pods_that_tolerate_super_nodes_count_under_the_cap_until_they_run_elsewhere() -> None:
    world = World(settings=ElasticitySettings(enabled=True, max_super_pods=MaxSuperPods(total=1)))
    first, second = world.create(2, n=None, spec=TOLERANT)
    world.leader.settle()
    assert (placed(world, first), placed(world, second)) == ("any", "local")
    assert is_kept_off(world, second)
    assert world.leader.recorder.reasons == ["SuperNodeCapReached"]
    world.bind(first, HOME)
    (third,) = world.create(1, n=None, spec=TOLERANT)
    world.leader.settle()

    assert placed(world, third) == "any"


# Pods that ask for super nodes


@pytest.mark.parametrize("spec", [{"nodeSelector": EKLET}, {"nodeSelector": EKLET, **TOLERANT}])
def test_the_wish_for_super_nodes_wins_over_the_first_n(spec: dict[str, Any]) -> None:
    world = World()
    names = world.create(3, spec=spec)
    world.leader.settle()

    assert world.placements() == {"super": 3}
    assert not any(is_kept_off(world, name) for name in names)
    assert world.annotations(names[0])[REASON] == (
        "global=unset local=unset LOCAL_REPLICAS=2, it asks for super nodes itself: to super node"
    )


def test_a_wish_that_cannot_be_met_now_is_left_to_the_scheduler() -> None:
    world = World(nodes=sorted_out([super_node(unschedulable=True)]))
    tolerations = [{"key": TAINT_KEY, "operator": "Exists"}]
    (name,) = world.create(1, spec={"nodeSelector": EKLET, "tolerations": tolerations})
    world.leader.settle()

    assert (placed(world, name), is_kept_off(world, name)) == ("any", False)
    assert world.leader.recorder.reasons == ["NoMatchingSuperNode"]


def test_a_wish_does_not_outweigh_a_switch_that_forbids_it() -> None:
    world = World(switch=False)
    (name,) = world.create(1, spec={"nodeSelector": EKLET})
    world.leader.settle()

    assert placed(world, name) == "local"
