"""Outside of its window, no node begins to get a new template, and what has begun is completed."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from api.ingress_daemonset import PROMOTE, UPDATE_NOW
from api.ingress_daemonset.status import status_of
from api.ingress_daemonset.types import time_of
from controllers.ingress_daemonset.reporter import news
from tests.factories import NOW
from tests.ingress_daemonset_rolling import NODES, Rolling

Raw = dict[str, Any]
HOUR = 3600


def window(hours: float, seconds: int = HOUR, **parts: Any) -> Raw:
    """It opens every day, so many hours after NOW."""
    return {"start": f"{NOW + timedelta(hours=hours):%H:%M}", "durationSeconds": seconds, **parts}


def begun(hours: float = 2, seconds: int = HOUR, **rolling: Any) -> Rolling:
    here = Rolling(rolling={"window": window(hours, seconds), **rolling})
    here.roll_out()
    return here


def progressing(here: Rolling) -> Raw:
    return next(each for each in here.status["conditions"] if each["type"] == "Progressing")


def reason(here: Rolling) -> str:
    return str(progressing(here)["reason"])


def updated(here: Rolling, image: str = "proxy:2") -> set[str]:
    return {name for name in here.world.nodes if here.world.image_on(name) == image}


def opens(hours: float) -> datetime:
    return (NOW + timedelta(hours=hours)).replace(second=0, microsecond=0)


def annotate(here: Rolling, **annotations: str) -> None:
    here.world.raw["metadata"].setdefault("annotations", {}).update(annotations)


def later(here: Rolling, hours: float) -> None:
    here.world.now = opens(hours)


def closed_again() -> Rolling:
    """With some nodes that were updated while it was open."""
    here = begun(seconds=60, maxUnavailableNodes=1)
    later(here, 1.9)
    here.play(lambda: reason(here) != "WaitingForWindow")
    here.play(lambda: reason(here) == "WaitingForWindow")
    return here


def turns(here: Rolling, number: int = 50) -> None:
    for _ in range(number):
        here.turn()


def test_no_node_begins_before_the_window_opens() -> None:
    here = begun()
    here.turn()
    assert reason(here) == "WaitingForWindow"
    assert f"the window opens at {opens(2):%Y-%m-%dT%H:%M:%SZ}" in progressing(here)["message"]
    assert time_of(here.rollout["windowOpensAt"]) == opens(2)
    assert here.world.plan().requeue_at == opens(2)

    later(here, 1.9)
    here.play(lambda: here.world.off())
    assert opens(2) <= here.world.now < opens(2) + timedelta(seconds=10)
    assert "windowOpensAt" not in here.rollout
    here.finish()
    assert updated(here) == {*NODES}


def test_nodes_under_way_when_it_closes_are_completed_and_the_others_wait_for_the_next_day() -> None:
    here = closed_again()
    first = updated(here)
    assert {"n1"} <= first < {*NODES}
    assert here.world.off() == set()

    later(here, 25.9)
    turns(here, 20)
    assert updated(here) == first
    here.play(lambda: here.world.off())
    assert opens(26) <= here.world.now < opens(26.1)


def test_the_end_is_estimated_by_the_time_in_which_it_is_open() -> None:
    here = begun()
    here.turn()
    ends = time_of(here.rollout["estimatedEnd"])
    assert ends
    assert opens(2) < ends < opens(3)


def test_an_urgent_template_does_not_wait_and_the_next_one_does() -> None:
    here = begun()
    here.turn()
    annotate(here, **{UPDATE_NOW: here.rollout["digest"]})
    here.finish()
    assert here.world.now < opens(2)
    assert updated(here) == {*NODES}

    here.roll_out("proxy:3")
    turns(here)
    assert updated(here, "proxy:3") == set()


def test_the_way_back_waits_for_no_window_and_what_another_writer_changed_does() -> None:
    here = closed_again()
    here.world.retemplate("proxy:1")
    here.play(lambda: not updated(here) and not here.rollout)
    assert here.world.now < opens(3)

    here.world.edit("web-n1", {"spec": {"template": {"spec": {"hostname": "other"}}}})
    turns(here)
    assert here.world.deployments["web-n1"]["spec"]["template"]["spec"].get("hostname") == "other"
    assert reason(here) == "WaitingForWindow"
    later(here, 25.9)
    here.play(lambda: "hostname" not in here.world.deployments["web-n1"]["spec"]["template"]["spec"])
    assert here.world.now >= opens(26)


def test_drains_and_new_nodes_wait_for_no_window() -> None:
    here = begun()
    here.world.nodes["n2"]["spec"]["taints"] = [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]
    turns(here, 20)
    assert here.world.off() == {"n2"}
    assert updated(here) == set()
    here.world.nodes["n2"]["spec"]["taints"] = []
    turns(here, 20)

    assert (here.world.off(), updated(here)) == (set(), set())


def test_a_node_that_is_drained_while_it_is_open_gets_its_template_then() -> None:
    here = begun(maxUnavailableNodes=1)
    later(here, 2.1)
    here.world.nodes["n2"]["spec"]["taints"] = [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]
    here.play(lambda: "n2" in updated(here))

    assert here.world.now < opens(3)


def test_a_canary_that_was_promoted_outside_is_followed_in_the_window() -> None:
    here = begun(seconds=60, canary={"nodes": 1})
    later(here, 1.9)
    here.play(lambda: reason(here) == "CanaryPaused")
    here.world.now = opens(4)
    annotate(here, **{PROMOTE: here.status["canary"]["id"]})
    here.play(lambda: reason(here) == "WaitingForWindow")
    turns(here)
    assert updated(here) == {"n1"}

    later(here, 25.9)
    here.play(lambda: here.world.off())
    assert here.world.now >= opens(26)


def test_a_zone_that_is_not_known_updates_nothing_and_says_so() -> None:
    here = Rolling(rolling={"window": window(0, timeZone="Moon/Crater")})
    here.roll_out()
    turns(here)

    assert updated(here) == set()
    assert "time zone Moon/Crater is not known" in progressing(here)["message"]
    assert "estimatedEnd" not in here.rollout


def test_an_event_says_that_it_waits_once() -> None:
    here = begun()
    here.turn()
    later(here, 1.9)
    here.finish()
    pairs = zip(here.statuses, here.statuses[1:], strict=False)
    reasons = [reason_ for old, new in pairs for reason_, _, _ in news(status_of(old), status_of(new))]

    assert [each for each in reasons if each == "WaitingForWindow"] == ["WaitingForWindow"]
