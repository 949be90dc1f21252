"""Canaries, waves and windows decide which nodes are next; weights decide when one is detached, and attached again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from controllers.ingress_daemonset.children import Target, Writes
from controllers.ingress_daemonset.forecast import forecast
from controllers.ingress_daemonset.rollout import Snapshot
from tests.factories import NOW
from tests.ingress_daemonset_clb_world import BALANCER, KEY, WEIGHT, ClbLeader, rolling

Raw = dict[str, Any]
ZONE = "zone"
GRACE = 20
WEIGHTS = {"setWeightToDetach": {"loadBalancers": [BALANCER], "gracePeriodSeconds": GRACE}}


def in_waves(zones: dict[str, str], pause: int = 0) -> ClbLeader:
    waves = {"byLabel": ZONE, "pause": {"durationSeconds": pause}}
    here = rolling(*zones, rolling={**WEIGHTS, "waves": waves})
    for name, zone in zones.items():
        here.api.change("Node", name, {"metadata": {"labels": {ZONE: zone}}})
    here.api.deliver()
    return here


def status(here: ClbLeader) -> Raw:
    found: Raw = here.api.objects["IngressDaemonSet", KEY]["status"]
    return found


def test_a_wave_begins_when_the_weights_of_the_one_before_are_back() -> None:
    here = in_waves({"n1": "b", "n2": "a"})
    here.run(lambda: here.image_by_node()["n2"] == "proxy:2")
    here.cloud.fault = lambda asked: "throttled" if asked == "BatchModifyTargetWeight" else ""
    for _ in range(60):
        here.step()
    assert (here.weights_of("n2"), here.weights_of("n1")) == ({0}, {WEIGHT})
    assert status(here)["waves"]["current"] == "a"
    assert "waits for traffic" in status(here)["waitingFor"][0]["reason"]

    here.cloud.fault = lambda asked: ""
    here.run(lambda: here.has("proxy:2") and here.is_restored)


@pytest.mark.parametrize("by", ["waves", "canary"])
def test_a_pause_begins_when_the_weights_are_back(by: str) -> None:
    canary = {"nodes": 1, "pause": {"durationSeconds": 300}}
    if by == "canary":
        here = rolling("n1", "n2", rolling={**WEIGHTS, "canary": canary})
    else:
        here = in_waves({"n1": "a", "n2": "b"}, pause=300)
    here.run(lambda: here.weights_of("n1") == {0})
    here.run(lambda: here.weights_of("n1") == {WEIGHT})
    restored_at = here.clock()
    here.run(lambda: here.weights_of("n2") == {0})

    assert here.clock() - restored_at >= 300


def test_a_node_of_a_later_wave_gets_its_weights_again_when_another_template_begins_with_the_first() -> None:
    here = in_waves({"n1": "a", "n2": "b"})
    here.run(lambda: here.weights_of("n2") == {0})
    assert here.image_by_node()["n2"] == "proxy:1"
    here.retemplate("proxy:3")
    here.run(lambda: here.weights_of("n2") == {WEIGHT})
    assert {*here.image_by_node().values()} == {"proxy:1", "proxy:2"}

    here.run(lambda: here.has("proxy:3") and here.is_restored)


def test_a_node_that_has_weight_0_when_its_window_closes_is_completed_and_no_other_begins() -> None:
    start, open_for = NOW - timedelta(hours=1), 10
    window = {"start": f"{start:%H:%M}", "durationSeconds": 3600 + open_for}
    here = rolling("n1", "n2", rolling={**WEIGHTS, "window": window})
    here.run(lambda: here.clock() - here.began > open_for)
    (begun,) = (name for name in ("n1", "n2") if here.weights_of(name) == {0})
    here.run(lambda: here.image_by_node()[begun] == "proxy:2" and here.is_restored)
    for _ in range(100):
        here.step()

    assert not here.has("proxy:2")
    assert here.is_restored


def test_the_estimated_end_has_the_grace_at_load_balancers() -> None:
    long = {"setWeightToDetach": {"loadBalancers": [BALANCER], "gracePeriodSeconds": 1000}}
    here = rolling("n1", "n2", rolling=long)
    here.run(lambda: "estimatedEnd" in status(here).get("rollout", {}))

    assert status(here)["rollout"]["estimatedEnd"] >= f"{NOW + timedelta(seconds=2000):%Y-%m-%dT%H:%M:%SZ}"


def test_a_forecast_has_waves_and_the_grace_at_load_balancers() -> None:
    here = in_waves({"n1": "b", "n2": "a"}, pause=60)
    nodes, deployments = here.cache.list("Node"), here.cache.in_namespace("Deployment", "edge")
    resource = here.cache.get(Target("IngressDaemonSet", "edge", "web"))
    found = forecast(Snapshot(resource, nodes, deployments, here.now(), Writes(), {}), 5)

    first, second = found.steps
    assert (first.node, second.node) == ("n2", "n1")
    assert all(each.replaced_at for each in found.steps)
    assert all(
        (each.replaced_at - each.begins_at).seconds == GRACE for each in found.steps if each.replaced_at
    )
    assert first.ends_at
    assert second.begins_at - first.ends_at >= timedelta(seconds=60)
