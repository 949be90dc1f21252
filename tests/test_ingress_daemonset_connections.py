"""After the detachment, the controllers wait until few connections are open, bounded in time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from controllers.ingress_daemonset.health_checks import daemon_sets
from controllers.ingress_daemonset.readers import checkers_of
from controllers.ingress_daemonset.reporter import Reporter
from controllers.ingress_daemonset.status import Undrained
from tests.factories import NOW
from tests.fakes import FakeRecorder
from tests.ingress_daemonset_leader import Leader, outdated
from tests.ingress_daemonset_world import CHECKER, World, raw_resource, resource

PORT, GRACE, TIMEOUT = 10080, 20, 300
WAITING = {
    "maxUnavailableNodes": 1,
    "annotateDeploymentToDetach": {"gracePeriodSeconds": GRACE},
    "waitForConnections": {"max": 5, "timeoutSeconds": TIMEOUT, "ports": [80]},
}


def world(**rolling: Any) -> World:
    here = World(raw_resource(healthCheckNodePorts=[PORT], rolling=WAITING | rolling), "n1")
    here.settle()
    here.retemplate("proxy:2")
    return here


def detached(connections: int | str | None, **rolling: Any) -> World:
    """Whose graces are over."""
    here = world(**rolling)
    if connections is not None:
        here.connections["n1"] = connections
    here.turn()
    here.later(GRACE)
    here.turn()
    return here


@pytest.mark.parametrize("confirm", ["required", "preferred", "off"])
def test_pods_stay_while_more_connections_are_open_than_may_be(confirm: str) -> None:
    here = detached(6, confirm=confirm)
    assert here.image_on("n1") == "proxy:1"
    assert (
        "6 connections are open, and at most 5 may be; its pods are replaced at"
        in here.waiting()["n1"]["reason"]
    )

    here.connections["n1"] = 5
    planned = here.turn()
    assert here.image_on("n1") == "proxy:2"
    assert not planned.undrained


@pytest.mark.parametrize(
    ("connections", "said"),
    [
        (6, "6 connections are open"),
        ("there is no metric up", "it is not known how many connections are open: there is no metric up"),
        (None, "it is not known how many connections are open: no health checker has reported them"),
    ],
    ids=["open", "not counted", "an older health checker"],
)
def test_the_update_goes_on_after_the_timeout_and_says_so(connections: int | str | None, said: str) -> None:
    here = detached(connections)
    assert said in here.waiting()["n1"]["reason"]
    planned = here.plan()
    assert planned.requeue_at
    here.now = planned.requeue_at - timedelta(seconds=1)
    here.turn()
    assert here.image_on("n1") == "proxy:1"

    here.later(1)
    (undrained,) = here.turn().undrained
    assert here.image_on("n1") == "proxy:2"
    assert said in undrained.why
    assert undrained.known == isinstance(connections, int)


def test_connections_are_not_waited_for_before_the_detachment_is_confirmed() -> None:
    here = world()
    here.connections["n1"] = 0
    here.unread = {"n1"}
    here.turn()
    here.later(GRACE + TIMEOUT + 1)
    here.turn()

    assert here.image_on("n1") == "proxy:1"
    assert "its detachment is not confirmed" in here.waiting()["n1"]["reason"]


def test_without_the_field_nothing_is_waited_for_and_health_checkers_are_as_before() -> None:
    here = detached(6, waitForConnections=None)

    assert here.image_on("n1") == "proxy:2"
    assert said({}) == {}


def said(rolling: dict[str, Any]) -> dict[str, str]:
    """What health checkers get to know of connections."""
    (made,) = daemon_sets(resource(healthCheckNodePorts=[PORT], rolling=rolling), CHECKER)
    (container,) = made["spec"]["template"]["spec"]["containers"]
    return {each["name"]: each["value"] for each in container["env"] if "CONNECTION" in each["name"]}


def test_ports_or_a_metric_are_named_to_the_health_checkers() -> None:
    metric = {"endpoint": {"port": 9113, "metric": "nginx_connections_active"}}

    assert said(WAITING) == {"CONNECTION_PORTS": "80"}
    assert said(WAITING | {"waitForConnections": metric}) == {
        "CONNECTION_METRIC": "9113 /metrics nginx_connections_active"
    }


def test_health_checkers_are_read_for_connections_even_where_they_need_not_confirm() -> None:
    here = detached(6, confirm="off")

    assert [each.node for each in checkers_of(here.plan().rollouts)] == ["n1"]


def test_each_detachment_has_one_event() -> None:
    recorder = FakeRecorder()
    reporter, owner = Reporter(recorder), resource().metadata  # type: ignore[arg-type]
    first = Undrained("n1", NOW, "6 connections are open", known=True)
    again = Undrained("n1", NOW + timedelta(hours=1), "it is not known", known=False)
    for found in ([first], [first], [], [again], [again]):
        reporter.undrained(owner, found)

    assert recorder.reasons == ["ConnectionsOpen"] * 2


def detaching(connections: int | None, confirm: str = "required") -> Leader:
    """Whose node is to get a new template."""
    here = outdated("n1", healthCheckNodePorts=[10080], rolling={**WAITING, "confirm": confirm})
    here.connections["n1"] = connections
    return here


def test_a_leader_that_ends_leaves_the_rest_of_the_time_to_the_next() -> None:
    here = detaching(6)
    here.steps(GRACE + TIMEOUT // 2)
    other = Leader(here.api, before=here)
    other.connections["n1"] = 6
    other.steps(TIMEOUT // 2 - 5)
    assert other.images() == {"proxy:1"}

    other.steps(10)
    assert other.images() == {"proxy:2"}
    assert other.recorder.reasons.count("ConnectionsOpen") == 1


def test_a_count_from_before_the_health_checker_was_lost_does_not_release_pods() -> None:
    here = detaching(0, confirm="off")
    here.steps(GRACE - 5)
    here.unread.add("n1")
    here.steps(TIMEOUT - 10)
    assert here.images() == {"proxy:1"}

    here.steps(30)
    assert here.images() == {"proxy:2"}
