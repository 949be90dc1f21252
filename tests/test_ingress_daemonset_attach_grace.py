"""An attached node counts against the budget until the load balancer has had its time to send it traffic."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from api.health_checks import SCHEDULED, State
from api.ingress_daemonset import TO_BE_UPDATED
from kube.types import rfc3339
from tests.ingress_daemonset_world import DETACHED, World, raw_resource

GRACE = 30
BY_NODE = {"annotateNodeToDetach": {"key": DETACHED, "value": "true"}}


def attached(*nodes: str, grace: int = GRACE, **spec: Any) -> World:
    """The first node has just been updated, and attached."""
    rolling = {"maxUnavailableNodes": 1, "attachGracePeriodSeconds": grace, **BY_NODE}
    here = World(raw_resource(rolling=rolling, **spec), *nodes)
    here.settle()
    here.retemplate("proxy:2")
    here.turn()
    here.turn()
    go_on(here)
    assert here.image_on("n1") == "proxy:2"
    return here


def go_on(here: World) -> None:
    """One round, between two of the Deployment controller's."""
    here.run_pods("n1")
    here.turn()
    here.run_pods("n1")


def test_the_next_node_is_detached_when_the_grace_of_the_attached_one_is_over() -> None:
    here = attached("n1", "n2")
    begin = here.now

    assert here.off() == set()
    assert TO_BE_UPDATED not in here.annotations_on("n1")
    assert here.plan().actions == ()
    assert here.plan().requeue_at == begin + timedelta(seconds=GRACE)
    until = rfc3339(begin + timedelta(seconds=GRACE))
    said = f"it is attached; the load balancer has until {until} to send traffic"
    assert here.waiting()["n1"]["phase"] == "Attaching"
    assert here.waiting()["n1"]["reason"] == said
    status = here.status()
    assert (status["detachedNodes"], status["unavailableNodes"]) == (0, 1)

    here.later(GRACE - 1)
    here.turn()
    assert here.off() == set()
    here.later(1)
    go_on(here)
    go_on(here)
    assert SCHEDULED not in here.annotations_on("n1")
    assert here.off() == {"n2"}

    here.settle()
    assert here.image_on("n2") == "proxy:2"
    assert [each for each in here.nodes if SCHEDULED in here.annotations_on(each)] == []


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (State(503, "its annotation"), "answers 503: its annotation"),
        (State(200, generation=1), "has not seen yet that the node is attached"),
    ],
)
def test_the_next_node_waits_for_the_health_checks_of_the_attached_one_as_long_as_for_a_confirmation(
    state: State, said: str
) -> None:
    for is_late in (True, False):
        here = attached("n1", "n2", grace=0, healthCheckNodePorts=[10080])
        here.reported["n1"] = state
        here.turn()
        checker = "the health checker at 10.0.0.1:10080"
        assert here.waiting()["n1"]["phase"] == "Attaching"
        assert here.waiting()["n1"]["reason"] == f"it is attached, and waits for traffic: {checker} {said}"
        here.later(59)
        go_on(here)
        assert here.off() == set()
        if is_late:
            del here.reported["n1"]
        else:
            here.later(1)
        go_on(here)
        go_on(here)
        assert here.off() == {"n2"}


def test_another_template_in_the_grace_detaches_the_node_again_for_all_of_its_time() -> None:
    here = attached("n1")
    here.retemplate("proxy:3")
    here.turn()

    assert TO_BE_UPDATED in here.annotations_on("n1")
    assert here.off() == {"n1"}
    here.settle()
    assert here.image_on("n1") == "proxy:3"
    assert here.off() == set()
    assert SCHEDULED not in here.annotations_on("n1")


def test_a_node_that_loses_pods_in_the_grace_stays_attached_and_halts_the_rollout() -> None:
    here = attached("n1", "n2")
    here.deployments["web-n1"]["status"] |= {"availableReplicas": 0, "readyReplicas": 0}
    here.later(GRACE)
    here.turn()
    here.turn()

    assert here.off() == set()
    assert here.waiting()["n1"]["phase"] == "Updating"
    here.settle()
    assert here.image_on("n2") == "proxy:2"


def test_nodes_that_are_not_detached_have_no_such_grace() -> None:
    here = World(raw_resource(rolling={"attachGracePeriodSeconds": GRACE}), "n1", "n2")
    here.settle()
    begin = here.now
    here.retemplate("proxy:2")
    here.settle()

    assert {here.image_on("n1"), here.image_on("n2")} == {"proxy:2"}
    assert here.now == begin
