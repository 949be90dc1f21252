"""Outside of its window, no node begins to get a new template, and what has begun is completed."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from api.ingress_daemonset import PROMOTE, UPDATE_NOW
from kube.types import rfc3339
from tests.factories import NOW
from tests.ingress_daemonset_rolling import NODES, Rolling, at

Raw = dict[str, Any]
HOUR = 3600


def window(hours: float, seconds: int = HOUR, **parts: Any) -> Raw:
    """It opens every day, so many hours after NOW."""
    return {"start": f"{NOW + timedelta(hours=hours):%H:%M}", "durationSeconds": seconds, **parts}


def begun(hours: float = 2, seconds: int = HOUR, **rolling: Any) -> Rolling:
    here = Rolling(rolling={"window": window(hours, seconds), **rolling})
    here.roll_out()
    return here


def opens(hours: float) -> datetime:
    return (NOW + timedelta(hours=hours)).replace(second=0, microsecond=0)


def later(here: Rolling, hours: float) -> None:
    here.world.now = opens(hours)


def closed_again() -> Rolling:
    """With some nodes that were updated while it was open."""
    here = begun(seconds=60, maxUnavailableNodes=1)
    later(here, 1.9)
    here.play(lambda: here.reason != "WaitingForWindow")
    here.play(lambda: here.reason == "WaitingForWindow")
    return here


def test_no_node_begins_before_the_window_opens() -> None:
    here = begun()
    here.turn()
    assert here.reason == "WaitingForWindow"
    assert f"the window opens at {rfc3339(opens(2))}" in here.message
    assert at(here.rollout["windowOpensAt"]) == opens(2)
    assert here.world.plan().requeue_at == opens(2)

    later(here, 1.9)
    here.play(lambda: here.world.off())
    assert opens(2) <= here.world.now < opens(2) + timedelta(seconds=10)
    assert "windowOpensAt" not in here.rollout
    here.finish()
    assert here.updated() == {*NODES}


def test_nodes_under_way_when_it_closes_are_completed_and_the_others_wait_for_the_next_day() -> None:
    here = closed_again()
    first = here.updated()
    assert {"n1"} <= first < {*NODES}
    assert here.world.off() == set()

    later(here, 25.9)
    here.turns(10)
    assert here.updated() == first
    here.play(lambda: here.world.off())
    assert opens(26) <= here.world.now < opens(26.1)


def test_the_end_is_estimated_by_the_time_in_which_it_is_open() -> None:
    here = begun()
    here.turn()
    ends = at(here.rollout["estimatedEnd"])
    assert opens(2) < ends < opens(3)


def test_nodes_under_way_when_it_closes_do_not_end_when_it_is_open_again() -> None:
    here = begun(seconds=60, maxUnavailableNodes=6)
    later(here, 1.99)
    here.play(here.updated)
    here.world.now = opens(2) + timedelta(seconds=61)
    here.turn()

    assert here.rollout["nodesLeft"] == 6
    assert at(here.rollout["estimatedEnd"]) < opens(2.1)


def test_an_urgent_template_does_not_wait_and_the_next_one_does() -> None:
    here = begun()
    here.turn()
    here.annotate(**{UPDATE_NOW: here.rollout["digest"]})
    here.finish()
    assert here.world.now < opens(2)
    assert here.updated() == {*NODES}

    here.roll_out("proxy:3")
    here.turns()
    assert here.updated("proxy:3") == set()


def test_the_way_back_waits_for_no_window_and_what_another_writer_changed_does() -> None:
    here = closed_again()
    here.world.retemplate("proxy:1")
    here.play(lambda: not here.updated() and not here.rollout)
    assert here.world.now < opens(3)

    here.world.edit("web-n1", {"spec": {"template": {"spec": {"hostname": "other"}}}})
    here.turns()
    assert here.world.deployments["web-n1"]["spec"]["template"]["spec"].get("hostname") == "other"
    assert here.reason == "WaitingForWindow"
    later(here, 25.9)
    here.play(lambda: "hostname" not in here.world.deployments["web-n1"]["spec"]["template"]["spec"])
    assert here.world.now >= opens(26)


def test_drains_and_new_nodes_wait_for_no_window() -> None:
    here = begun()
    here.world.taint("n2", "karpenter.sh/disrupted")
    here.turns(20)
    assert here.world.off() == {"n2"}
    assert here.updated() == set()
    here.world.taint("n2")
    here.turns(20)

    assert (here.world.off(), here.updated()) == (set(), set())


def test_a_node_that_is_drained_while_it_is_open_gets_its_template_then() -> None:
    here = begun(maxUnavailableNodes=1)
    later(here, 2.1)
    here.world.taint("n2", "karpenter.sh/disrupted")
    here.play(lambda: "n2" in here.updated())

    assert here.world.now < opens(3)


def test_a_canary_that_was_promoted_outside_is_followed_in_the_window() -> None:
    here = begun(seconds=60, canary={"nodes": 1})
    later(here, 1.9)
    here.play(lambda: here.reason == "CanaryPaused")
    here.world.now = opens(4)
    here.annotate(**{PROMOTE: here.status["canary"]["id"]})
    here.play(lambda: here.reason == "WaitingForWindow")
    here.turns()
    assert here.updated() == {"n1"}

    later(here, 25.9)
    here.play(lambda: here.world.off())
    assert here.world.now >= opens(26)


def test_a_zone_that_is_not_known_updates_nothing_and_says_so() -> None:
    here = Rolling(rolling={"window": window(0, timeZone="Moon/Crater")})
    here.roll_out()
    here.turns()

    assert here.updated() == set()
    assert "time zone Moon/Crater is not known" in here.message
    assert "estimatedEnd" not in here.rollout


def test_an_event_says_that_it_waits_once() -> None:
    here = begun()
    here.turn()
    later(here, 1.9)
    here.finish()

    assert [reason for reason, _ in here.events()].count("WaitingForWindow") == 1
