"""No pod is replaced before its node's backends have read weight 0, and each gets its former weight again."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from controllers.ingress_daemonset.children import Target
from controllers.ingress_daemonset.forecast import forecast
from controllers.ingress_daemonset.rollout import Snapshot
from controllers.ingress_daemonset.status import Pace
from kube.leader_election import LeadershipLost
from tests.ingress_daemonset_clb_world import BALANCER, ROLLING, TASK, WEIGHT, ClbLeader, rolling
from tests.ingress_daemonset_leader import KEY

Raw = dict[str, Any]
LATE = 120


def weighing(grace: int) -> Raw:
    return {"setWeightToDetach": {"loadBalancers": [BALANCER], "gracePeriodSeconds": grace}}


def waiting_for(here: ClbLeader) -> str:
    return " ".join(each["reason"] for each in here.status.get("waitingFor", ()))


def test_each_node_is_weighed_0_before_its_pods_are_replaced_and_gets_its_weights_again() -> None:
    here = rolling("n1", "n2", "n3")
    here.run(lambda: here.has("proxy:2"))
    here.run(lambda: here.is_restored)

    assert here.status["detachedNodes"] == 0


def test_the_grace_begins_when_weight_0_is_read_back() -> None:
    here = rolling("n1", rolling=weighing(20))
    here.run(lambda: not any(here.weight_by_key.values()))
    off_at = here.clock()
    here.run(lambda: here.has("proxy:2"))

    assert 20 <= here.clock() - off_at <= 20 + 2 * TASK + 10


@pytest.mark.parametrize(
    ("action", "code"), [("DescribeTargets", "throttled"), ("BatchModifyTargetWeight", "never")]
)
def test_a_cloud_that_does_not_answer_keeps_the_pods(action: str, code: str) -> None:
    here = rolling("n1")
    here.cloud.fault = lambda asked: code if asked == action else ""
    for _ in range(200):
        here.step()
    assert not here.has("proxy:2")
    assert BALANCER in waiting_for(here)

    here.cloud.fault = lambda asked: ""
    here.run(lambda: here.has("proxy:2") and here.is_restored)


def test_a_detachment_that_is_only_preferred_goes_on_after_its_time() -> None:
    here = rolling("n1", rolling={"confirm": "preferred", "confirmTimeoutSeconds": 30})
    here.cloud.fault = lambda asked: "throttled"
    began = here.clock()
    while not here.has("proxy:2"):
        here.steps(1)

    assert 30 <= here.clock() - began <= 30 + 2 * 5 + 2


@pytest.mark.parametrize("fault", ["lost", "late", "twice"])
def test_weights_return_when_writes_are_lost_or_come_late_or_twice(fault: str) -> None:
    here = rolling("n1")
    faults = iter([fault, "", fault, ""])
    here.cloud.fault = lambda asked: next(faults, "") if asked == "BatchModifyTargetWeight" else ""
    steps = 0
    while not (here.has("proxy:2") and here.is_restored):
        here.step()
        steps += 1
        if steps % 40 == 0:
            with suppress(Exception):
                here.cloud.deliver_late()
        assert steps < 2000
    here.cloud.deliver_late()


def test_a_late_write_of_0_after_the_node_was_attached_is_repaired() -> None:
    here = rolling("n1")
    faults = iter(["late"])
    here.cloud.fault = lambda asked: next(faults, "") if asked == "BatchModifyTargetWeight" else ""
    here.run(lambda: here.cloud.late)
    here.run(lambda: here.has("proxy:2"))
    here.run(lambda: {*here.weight_by_key.values()} == {WEIGHT})
    here.clock.advance(LATE / 2)
    here.cloud.deliver_late()
    here.clock.advance(TASK)
    assert {*here.weight_by_key.values()} == {0}

    here.run(lambda: here.is_restored)


@pytest.mark.parametrize("stop", range(1, 40, 3))
def test_a_leader_that_ends_before_any_write_leaves_the_rest_to_the_next(stop: int) -> None:
    here = rolling("n1", "n2")
    left = stop

    def check() -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            raise LeadershipLost("another leads")

    here.before_write = check
    with suppress(LeadershipLost):
        for _ in range(600):
            here.step()
    other = ClbLeader(here.api, before=here)
    other.api.deliver()
    other.run(lambda: other.has("proxy:2") and other.is_restored)


@pytest.mark.parametrize("change", ["paused", "no longer named", "no longer allowed", "deleted"])
def test_weights_return_when_the_node_is_not_to_be_detached_any_more(change: str) -> None:
    here = rolling("n1", rolling=weighing(600))
    here.run(lambda: not any(here.weight_by_key.values()))
    if change == "paused":
        here.api.change("IngressDaemonSet", KEY, {"spec": {"paused": True}})
    elif change == "no longer named":
        strategy = {"rollingUpdate": {"setWeightToDetach": None}}
        here.api.change("IngressDaemonSet", KEY, {"spec": {"updateStrategy": strategy}})
    elif change == "no longer allowed":
        clb = here.settings.clb.model_copy(update={"load_balancers": ()})
        here.settings = here.settings.model_copy(update={"clb": clb})
    else:
        here.api.remove("IngressDaemonSet", KEY)
        here.api.deliver()
    while not here.is_restored:
        here.weigh()
        with suppress(Exception):
            super(ClbLeader, here).look()
        here.api.deliver()
        here.clock.advance(1.0)

    # What is no longer asked for is no longer waited for.
    assert here.has("proxy:2") == (change == "no longer named")


GONE = {"node.kubernetes.io/instance-type": "eklet"}


def leave(here: ClbLeader, how: str) -> None:
    """n1 does."""
    if how == "deleted":
        here.api.remove("Node", "n1")
        here.api.deliver()
    else:
        here.api.change("Node", "n1", {"metadata": {"labels": GONE}})


def settled(*nodes: str, **parts: Any) -> ClbLeader:
    """No rollout is under way."""
    here = rolling(*nodes, **parts)
    here.run(lambda: here.has("proxy:2") and here.is_restored)
    return here


def test_the_status_and_an_event_say_that_the_pods_of_a_node_that_leaves_wait_for_weight_0() -> None:
    here = settled("n1", "n2")
    here.cloud.fault = lambda asked: "throttled"
    leave(here, "unlabelled")
    for _ in range(100):
        here.step()
    assert "n1" in here.image_by_node()
    assert f"its detachment is not confirmed: load balancer {BALANCER}" in waiting_for(here)
    assert "DetachmentUnconfirmed" in here.recorder.reasons


@pytest.mark.parametrize("how", ["unlabelled", "deleted"])
def test_a_node_that_has_left_gets_its_weights_again_with_its_pods(how: str) -> None:
    here = rolling("n1", "n2", rolling=weighing(5))
    here.run(lambda: here.weights_of("n1") == {0})
    node = here.api.objects["Node", "n1"]
    leave(here, how)
    here.run(lambda: "n1" not in here.image_by_node())
    for _ in range(2 * LATE):
        here.step()
        assert here.weights_of("n1") == {0}
    assert here.weigh() is None

    here.api.put("Node", node)
    here.api.deliver()
    while here.weights_of("n1") == {0}:
        served = here.api.objects.get(("Deployment", "edge/web-n1"), {}).get("status", {})
        here.step()
    assert served["availableReplicas"] == 2
    here.run(lambda: here.is_restored)


def add_dns(here: ClbLeader, **rolling: Any) -> None:
    """Another IngressDaemonSet, whose pods run on all nodes."""
    known: Raw = here.api.objects["IngressDaemonSet", KEY]
    metadata = {**known["metadata"], "name": "dns", "uid": "uid-dns", "finalizers": []}
    spec = {**known["spec"], "updateStrategy": {"rollingUpdate": rolling}}
    here.api.put("IngressDaemonSet", {"metadata": metadata, "spec": spec})
    here.api.deliver()
    here.reconciler.reconcile("edge/dns")
    here.run_pods()
    here.api.deliver()


def test_a_node_that_has_left_gets_no_weight_for_pods_behind_another_load_balancer() -> None:
    here = settled("n1", "n2")
    add_dns(here)
    leave(here, "unlabelled")
    here.run(lambda: ("Deployment", "edge/web-n1") not in here.api.objects)
    assert ("Deployment", "edge/dns-n1") in here.api.objects
    for _ in range(LATE):
        here.step()
        assert here.weights_of("n1") == {0}


def test_a_node_that_has_left_gets_no_weight_for_pods_that_only_name_the_uid() -> None:
    """Of another namespace, which may not use the load balancer."""
    here = settled("n1", "n2")
    held: Raw = here.api.objects["Deployment", "edge/web-n1"]
    leave(here, "unlabelled")
    here.run(lambda: ("Deployment", "edge/web-n1") not in here.api.objects)
    here.api.put("Deployment", {**held, "metadata": {**held["metadata"], "namespace": "team"}})
    for _ in range(LATE):
        here.step()
        assert here.weights_of("n1") == {0}


def test_a_load_balancer_that_only_another_one_names_gives_back_the_weights_of_pods_that_stay() -> None:
    here = rolling("n1", "n2", rolling=weighing(600))
    here.run(lambda: here.weights_of("n1") == {0})
    add_dns(here, **ROLLING)
    here.api.remove("Deployment", "edge/dns-n1")
    strategy = {"rollingUpdate": {"setWeightToDetach": None}}
    here.api.change("IngressDaemonSet", KEY, {"spec": {"updateStrategy": strategy}})
    for _ in range(2 * LATE):
        here.weigh()
        here.clock.advance(1.0)

    assert here.is_restored


def test_an_instance_that_joins_under_another_name_gets_the_weights_of_the_node_that_left() -> None:
    here = rolling("n1", "n2", rolling=weighing(5))
    here.run(lambda: here.weights_of("n1") == {0})
    node = here.api.objects["Node", "n1"]
    leave(here, "deleted")
    here.run(lambda: "n1" not in here.image_by_node())
    renamed = node["metadata"] | {"name": "other", "uid": "uid-other", "annotations": {}}
    here.api.put("Node", node | {"metadata": renamed})
    here.api.deliver()
    here.run(lambda: here.has("proxy:2") and here.is_restored)


@pytest.mark.parametrize("registered", ["10.0.0.1", "fd00::1"], ids=["IPv4", "IPv6"])
def test_a_node_with_two_ip_families_is_weighed_by_whichever_is_registered(registered: str) -> None:
    here = rolling("n1")
    addresses = [{"type": "InternalIP", "address": each} for each in ("fd00::1", "10.0.0.1")]
    here.api.change("Node", "n1", {"status": {"addresses": addresses}})
    here.api.deliver()
    known = here.cloud.world.load_balancers[BALANCER].values()
    here.cloud.world.put_load_balancer(
        BALANCER, [replace(each, instance="", address=registered) for each in known]
    )
    here.run(lambda: not any(here.weight_by_key.values()))
    here.run(lambda: here.has("proxy:2") and here.is_restored)


def test_a_backend_that_had_weight_0_before_keeps_it() -> None:
    here = rolling("n1")
    (one, _) = sorted(here.weight_by_key)
    known = here.cloud.world.load_balancers[BALANCER]
    known[one] = replace(known[one], weight=0)
    here.run(lambda: here.has("proxy:2"))
    here.run(lambda: not here.store.memory(BALANCER) and sum(here.weight_by_key.values()) == WEIGHT)

    assert here.weight_by_key[one] == 0


ZONE = "zone"
GRACE = 20
WEIGHTS = weighing(GRACE)


def in_waves(zones: dict[str, str], pause: int) -> ClbLeader:
    waves = {"byLabel": ZONE, "pause": {"durationSeconds": pause}}
    here = rolling(*zones, rolling={**WEIGHTS, "waves": waves})
    for name, zone in zones.items():
        here.api.change("Node", name, {"metadata": {"labels": {ZONE: zone}}})
    here.api.deliver()
    return here


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


def test_a_forecast_has_waves_and_the_grace_at_load_balancers() -> None:
    here = in_waves({"n1": "b", "n2": "a"}, pause=60)
    nodes, deployments = here.cache.list("Node"), here.cache.in_namespace("Deployment", "edge")
    resource = here.cache.get(Target("IngressDaemonSet", "edge", "web"))
    found = forecast(Snapshot(resource, nodes, deployments, here.now()), Pace(5))

    first, second = found.steps
    assert (first.node, second.node) == ("n2", "n1")
    assert all(each.replaced_at for each in found.steps)
    assert all(
        (each.replaced_at - each.begins_at).seconds == GRACE for each in found.steps if each.replaced_at
    )
    assert first.ends_at
    assert second.begins_at - first.ends_at > timedelta(seconds=59)
