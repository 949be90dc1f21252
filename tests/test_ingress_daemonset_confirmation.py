"""No pod is replaced before the health checkers of its node say that they have answered 503 for the whole grace."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from api.health_checks import State
from controllers.ingress_daemonset.detachment import Reading, detach_doubt, doubt_of
from tests.ingress_daemonset_world import World, raw_resource
from tests.tables import table

PORT, GRACE, TIMEOUT = 10080, 20, 60
CONFIRMED = State(503, "to be updated", uid="u1", scheduled="mark", detached_seconds=GRACE)


def world(*nodes: str, limit: int = 1, ports: tuple[int, ...] = (PORT,), **rolling: Any) -> World:
    parts = {"maxUnavailableNodes": limit, "annotateDeploymentToDetach": {"gracePeriodSeconds": GRACE}}
    here = World(raw_resource(healthCheckNodePorts=list(ports), rolling=parts | rolling), *nodes)
    here.settle()
    return here


def cut_off(*nodes: str) -> World:
    """A rollout begins while the health checker of n1 sees nothing."""
    here = world(*nodes)
    here.cut_off("n1")
    here.retemplate("proxy:2")
    return here


def reading(state: State | None, port: int = PORT, error: str | None = None) -> Reading:
    return Reading("10.0.0.1", port, state, error)


@pytest.mark.parametrize(
    ("readings", "said"),
    [
        ([], "the health checker on port 10080 has not been read yet"),
        ([reading(None, error="timed out")], "10.0.0.1:10080 cannot be read: timed out"),
        ([Reading("fd00::1", PORT, error="x")], "at [fd00::1]:10080 cannot be read: x"),
        ([reading(State(200, uid="u1"))], "answers 200: it has not seen"),
        (
            [reading(State(503, "1 of 2 replicas", uid="u1", detached_seconds=99))],
            "answers 503, but not for this detachment: 1 of 2 replicas",
        ),
        (
            [reading(State(503, "x", uid="u1", scheduled="before", detached_seconds=99))],
            "not for this detachment",
        ),
        (
            [reading(State(503, "x", uid="u0", scheduled="mark", detached_seconds=99))],
            "not for this detachment",
        ),
        (
            [reading(State(503, "x", uid="u1", scheduled="mark", detached_seconds=GRACE - 0.5))],
            "has not answered 503 for the whole grace of 20 s",
        ),
        ([reading(CONFIRMED)], ""),
        ([reading(CONFIRMED, 1)], "port 10080 has not been read"),
    ],
)
def test_why_a_health_checker_does_not_confirm(readings: list[Reading], said: str) -> None:
    doubt = doubt_of([PORT], readings, partial(detach_doubt, "u1", "mark", GRACE))

    assert said in (doubt or "")
    assert bool(said) is bool(doubt)


def images(where: World) -> set[str]:
    return {where.image_on(name) for name in where.nodes}


@pytest.mark.parametrize("how", ["unread", "cut off"])
def test_a_node_whose_checker_does_not_confirm_keeps_its_pods(how: str) -> None:
    here = world("n1", "n2")
    if how == "unread":
        here.unread = {"n1"}
    else:
        here.cut_off("n1")
    here.retemplate("proxy:2")
    here.settle()
    here.later(99999)
    planned = here.turn()

    assert images(here) == {"proxy:1"}
    assert here.conditions()["Progressing"]["reason"] == "WaitingForDetachment"
    assert (
        "its detachment is not confirmed: the health checker at 10.0.0.1:10080"
        in here.conditions()["Progressing"]["message"]
    )
    assert "set confirm to preferred or off" in here.conditions()["Progressing"]["message"]
    (waiting,) = planned.unconfirmed
    assert (waiting.node, waiting.patience) == ("n1", TIMEOUT)

    here.unread, here.blind = set(), {}
    here.settle()
    assert images(here) == {"proxy:2"}


def test_one_that_is_only_preferred_goes_on_after_its_time() -> None:
    here = world("n1", confirm="preferred", confirmTimeoutSeconds=30)
    here.unread = {"n1"}
    here.retemplate("proxy:2")
    here.turn()
    begun = here.now
    here.later(GRACE)
    assert here.turn().requeue_at == begun + timedelta(seconds=GRACE + 30)
    assert images(here) == {"proxy:1"}
    assert f"{here.now + timedelta(seconds=30):%H:%M:%SZ}" in here.conditions()["Progressing"]["message"]

    here.later(30)
    here.turn()
    assert images(here) == {"proxy:2"}


@table("parts", {"confirmations are off": {"confirm": "off"}, "no health checks": {"ports": ()}})
def test_without_confirmations_the_grace_alone_counts(parts: dict[str, Any]) -> None:
    here = world("n1", **parts)
    here.unread = {"n1"}
    here.retemplate("proxy:2")
    here.settle()

    assert images(here) == {"proxy:2"}


def test_a_status_that_waits_for_a_confirmation_stays_the_same() -> None:
    here = cut_off("n1")
    here.settle()
    here.later(1)
    here.raw["status"] = here.status()
    here.later(600)

    assert here.status() == here.raw["status"]
    assert here.plan().actions == ()


def test_a_checker_that_learned_of_the_detachment_late_holds_the_pods_for_the_whole_grace() -> None:
    here = cut_off("n1")
    here.turn()
    here.later(GRACE)
    here.turn()
    assert images(here) == {"proxy:1"}

    annotations = here.deployments["web-n1"]["metadata"]["annotations"]
    late = State(503, "x", uid="uid-web-n1", scheduled=annotations["drawbridge.io/update-scheduled"])
    here.reported["n1"] = late
    here.turn()
    assert images(here) == {"proxy:1"}
    assert "for the whole grace" in here.conditions()["Progressing"]["message"]


def test_a_new_leader_says_nothing_of_checkers_that_it_has_not_read_yet_and_touches_no_pod() -> None:
    here = world("n1")
    here.retemplate("proxy:2")
    here.turn()
    here.later(99999)
    here.unasked = {"n1"}

    assert here.turn().unconfirmed == ()
    assert here.conditions()["Progressing"]["reason"] == "RollingOut"
    assert images(here) == {"proxy:1"}
