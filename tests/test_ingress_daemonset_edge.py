"""What the load balancer has at every second, whatever becomes of the pods."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.ingress_daemonset_edge import NODES, Edge, Image
from webhook.ingress_daemonset import UPDATE_NOW

DEADLINE = 60
GRACE = {"annotateDeploymentToDetach": {"gracePeriodSeconds": 10}}


def crashing(rolling: dict[str, Any] | None = None, **spec: Any) -> Edge:
    """A template whose pods become available, and crash 15 seconds later, again and again."""
    images = {"proxy:2": Image(starts=5, lasts=15)}
    here = Edge(images=images, rolling=GRACE | (rolling or {}), progressDeadlineSeconds=DEADLINE, **spec)
    here.world.retemplate("proxy:2")
    return here


def test_pods_that_crash_after_they_were_available_reach_no_further_node_and_halt_the_rollout() -> None:
    here = crashing()
    here.pass_time(300)

    assert here.fewest >= len(NODES) - 2
    assert here.with_image("proxy:2") <= {"n1", "n2"}
    assert "Complete" not in here.reasons
    assert len({each["currentRevision"] for each in here.statuses}) == 1
    assert here.reason == "Halted"
    assert "n1: it has lost pods with the new template" in here.condition("Progressing")["message"]


def test_a_cordoned_node_stays_attached_while_others_fail_with_the_template() -> None:
    """It counts against the budget whether it is detached or not."""
    here = crashing()
    here.play(lambda: "failures" in here.status)
    cordoned = max(here.serving())
    here.world.nodes[cordoned]["spec"]["unschedulable"] = True
    for _ in range(DEADLINE):
        here.turn()
        assert cordoned in here.serving()
        assert cordoned not in here.marked()
    here.play(lambda: here.reason == "Halted")


def test_pods_that_crash_after_they_were_available_return_all_nodes_to_the_template_before() -> None:
    here = crashing({"autoRollback": True})
    here.play(lambda: here.reason == "RolledBack")

    assert here.fewest >= len(NODES) - 2
    assert here.serving() == set(NODES)
    assert here.with_image("proxy:1") == set(NODES)
    assert "n1: it has lost pods with the new template" in here.status["rollback"]["reason"]


def test_no_serving_node_is_detached_while_others_lack_their_pods() -> None:
    here = Edge(rolling=GRACE, progressDeadlineSeconds=DEADLINE)
    here.room = dict.fromkeys(("n4", "n5", "n6"), 1)
    here.pass_time(1)
    here.world.retemplate("proxy:2")
    here.pass_time(120)

    assert here.serving() == {"n1", "n2", "n3"}
    assert here.reason == "Halted"
    assert here.status["unavailableNodes"] == 3

    here.room = {}
    here.play(lambda: here.reason == "Complete")
    assert here.with_image("proxy:2") == here.serving() == set(NODES)


@pytest.mark.parametrize("size", [{"podsPerNode": 3}, {"minReadySeconds": 30}, {"podsPerNode": 1}], ids=str)
def test_another_number_of_pods_reaches_one_node_after_the_other(size: dict[str, int]) -> None:
    here = Edge("n1", "n2", "n3", "n4", rolling=GRACE)
    here.world.raw["spec"] |= size
    here.play(lambda: here.reason == "Complete" and here.rollout == {} and len(here.served) > 3)

    wanted = {"podsPerNode": 2, "minReadySeconds": 0} | size
    held = [each["spec"] for each in here.world.deployments.values()]
    assert [(each["replicas"], each["minReadySeconds"]) for each in held] == [(*wanted.values(),)] * 4
    assert here.fewest == 3
    assert len(here.serving()) == 4


def test_a_pod_that_never_fits_takes_no_more_nodes_off_than_the_budget_and_the_way_back_is_short() -> None:
    here = Edge("n1", "n2", "n3", "n4", rolling=GRACE, progressDeadlineSeconds=DEADLINE)
    here.room = dict.fromkeys(here.world.nodes, 2)
    here.world.raw["spec"]["podsPerNode"] = 3
    here.pass_time(150)
    assert (here.fewest, here.reason, here.status["readyNodes"]) == (3, "Halted", 3)

    here.world.raw["spec"]["podsPerNode"] = 2
    here.pass_time(5)
    assert (here.reason, len(here.serving())) == ("Complete", 4)


@pytest.mark.parametrize(("replicas", "fewest"), [(1, 5), (0, 0)])
def test_a_number_of_pods_that_another_writer_changed_is_restored_where_nothing_serves_or_in_turn(
    replicas: int, fewest: int
) -> None:
    here = Edge(rolling=GRACE)
    for name in here.world.nodes:
        here.pods_on[f"web-{name}"][replicas:] = []
        here.world.edit(
            f"web-{name}", {"spec": {"replicas": replicas}, "status": {"availableReplicas": replicas}}
        )
    here.play(lambda: {each["spec"]["replicas"] for each in here.world.deployments.values()} == {2})
    here.play(lambda: here.reason == "Complete" and len(here.serving()) == 6)

    assert here.fewest == fewest


@pytest.mark.parametrize("rolls_back", [True, False])
def test_a_template_that_the_api_server_refuses_keeps_its_node_detached_for_the_deadline_at_most(
    rolls_back: bool,
) -> None:
    here = Edge(rolling=GRACE | {"autoRollback": rolls_back}, progressDeadlineSeconds=DEADLINE)
    here.world.refused = "proxy:2"
    here.world.retemplate("proxy:2")
    here.pass_time(30)
    assert (here.reason, len(here.serving())) == ("WaitingForNodes", 5)
    assert (
        "n1: the API server refuses to change Deployment web-n1" in here.condition("Progressing")["message"]
    )
    assert "estimatedEnd" not in here.rollout

    here.pass_time(DEADLINE)
    assert here.serving() == set(NODES)
    assert here.reason == ("RolledBack" if rolls_back else "Halted")
    assert (
        "no such image here (403 Forbidden), for progressDeadlineSeconds"
        in here.condition("Progressing")["message"]
    )
    here.served.clear()
    here.pass_time(2 * DEADLINE)
    assert here.fewest == 6

    here.world.refused = None
    here.world.raw["spec"]["paused"] = True
    here.pass_time(2)
    here.world.raw["spec"]["paused"] = False
    here.play(lambda: here.reason == ("RolledBack" if rolls_back else "Complete"))
    assert here.with_image("proxy:1" if rolls_back else "proxy:2") == set(NODES)


@pytest.mark.parametrize("seconds", [1, 4])
def test_a_node_whose_label_comes_back_keeps_its_place_until_it_serves(seconds: int) -> None:
    here = Edge(rolling=GRACE | {"maxUnavailableNodes": 2})
    here.world.retemplate("proxy:2")
    here.pass_time(5)
    for _ in range(4):
        name = min(here.world.nodes.keys() - here.serving())
        here.world.nodes[name]["metadata"]["labels"] = {"node.kubernetes.io/instance-type": "eklet"}
        here.pass_time(seconds)
        here.world.nodes[name]["metadata"]["labels"] = {}
        here.served.clear()
        here.pass_time(6)
        assert here.fewest >= 4
    here.play(lambda: here.reason == "Complete")
    assert here.with_image("proxy:2") == here.serving() == set(NODES)


CANARY = {"canary": {"nodes": 1, "pause": {"durationSeconds": 30}}}
OTHERS = {"canary": {"nodeSelector": {"zone": "a"}, "pause": {"durationSeconds": 30}}}
WAVES = {"waves": {"byLabel": "zone", "pause": {"durationSeconds": 0}}}


def zones(here: Edge) -> None:
    for number, each in enumerate(here.world.nodes.values()):
        each["metadata"]["labels"] = {"zone": "ba"[number % 2]}


@pytest.mark.parametrize(
    ("pacing", "loses"),
    [
        pytest.param(OTHERS, "detached", id="a canary of other nodes, while it is detached"),
        pytest.param(CANARY, "before", id="a canary"),
        pytest.param(WAVES, "detached", id="waves, while it is detached"),
        pytest.param(WAVES, "before", id="waves"),
    ],
)
def test_a_node_that_lost_pods_gets_the_correction_though_others_come_first(
    pacing: dict[str, Any], loses: str
) -> None:
    here = Edge("n1", "n2", "n3", "n4", rolling=GRACE)
    if loses == "before":
        here.room["n1"] = 1
        here.pass_time(1)
    else:
        here.world.retemplate("proxy:2")
        here.pass_time(3)
        here.room["n1"] = 1
        here.pass_time(1)
    zones(here)
    here.world.raw["spec"]["updateStrategy"]["rollingUpdate"] |= pacing
    here.world.retemplate("proxy:3")
    here.play(lambda: here.with_image("proxy:3") == {"n1"})
    here.room.clear()
    here.play(lambda: here.reason == "Complete")

    assert here.fewest >= 3
    assert here.with_image("proxy:3") == here.serving() == here.world.nodes.keys()


PORTS = {"name": "proxy", "image": "proxy:1", "ports": [{"containerPort": 80}]}
CLOSED = {"window": {"days": ["Sat"], "start": "10:00", "durationSeconds": 3600}}
"""The tests begin on a Friday."""


def crowded(here: Edge) -> set[str]:
    """The nodes whose template lists no ports."""
    held = {name: here.world.deployments[f"web-{name}"]["spec"]["template"] for name in here.world.nodes}
    return {name for name, each in held.items() if "ports" not in each["spec"]["containers"][0]}


@pytest.mark.parametrize(
    ("pacing", "first"), [(CLOSED, [set()]), (CANARY, [{"n1"}]), (WAVES, [{"n2"}, {"n4"}, {"n1"}, {"n3"}])]
)
def test_a_template_that_is_derived_from_an_unchanged_one_is_paced_like_any_other(
    pacing: dict[str, Any], first: list[set[str]]
) -> None:
    pod = {"hostNetwork": True, "containers": [PORTS]}
    here = Edge("n1", "n2", "n3", "n4", rolling=GRACE | pacing, pod=pod, podsPerNode=1)
    zones(here)
    here.world.raw["spec"]["podsPerNode"] = 2
    steps = [crowded(here)]
    for _ in range(40 if pacing is CANARY else 120):
        here.turn()
        if crowded(here) != steps[-1]:
            steps.append(crowded(here))

    assert [after - before for before, after in pairwise(steps)] == [each for each in first if each]
    assert here.reason == {0: "WaitingForWindow", 1: "CanaryPaused", 4: "Complete"}[len(steps) - 1]
    assert here.fewest >= 3


def test_another_number_of_pods_waits_for_the_window_and_for_no_canary() -> None:
    here = Edge("n1", "n2", rolling=GRACE | CLOSED | CANARY)
    here.world.raw["spec"]["podsPerNode"] = 3
    here.pass_time(30)
    assert (here.reason, len(here.serving())) == ("WaitingForWindow", 2)
    assert {each["spec"]["replicas"] for each in here.world.deployments.values()} == {2}

    here.world.raw["metadata"].setdefault("annotations", {})[UPDATE_NOW] = here.rollout["digest"]
    here.play(lambda: here.reason == "Complete")
    assert {each["spec"]["replicas"] for each in here.world.deployments.values()} == {3}
