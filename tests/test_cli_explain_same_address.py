"""`drawbridge explain` shows which pod an address is promised to, `simulate drain` which pods get theirs back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
import yaml

from calico.ipam_config import CONFIGURATIONS
from calico.segment import Record, body
from cli.simulate.reader import STATEFUL_SETS
from dev.fake_api import BUILT_IN, FakeAPI, Kind
from kube.resources import CONFIG_MAPS, NAMESPACES, NODES, PODS
from tests.calico_pools import Raw
from tests.charts import helm_needed, render
from tests.cli import run, shown
from tests.explained import VALUES, installed
from tests.factories import NOW, raw_pod
from tests.test_cli_explain import RESERVATIONS
from webhook.ip_reservation import RESERVE
from webhook.ip_reservation.same_address import IP_ADDRS, SAME_ADDRESS, SAME_ADDRESS_FROM, Promise

pytestmark = helm_needed
PROMISE = Promise("uid-former", ("10.0.0.1",))
CONFIGURATION = Kind(CONFIGURATIONS[0], "IPAMConfiguration")


@pytest.fixture
def api() -> FakeAPI:
    """A record of a former redis-0."""
    api = installed(FakeAPI(now=lambda: NOW), render(VALUES))
    labels = {"kubernetes.io/metadata.name": "redis", "ip-reserve": "enabled"}
    api.put(NAMESPACES, {"metadata": {"name": "redis", "labels": labels}})
    held = Record("10.0.0.1/32", NOW, "redis", "redis-0", "uid-former", owner_uid="uid-redis", ended=NOW)
    made = body([held])
    made["metadata"] |= {"name": "drawbridge-a", "labels": {"app.kubernetes.io/managed-by": "drawbridge"}}
    api.put(RESERVATIONS, made)
    return api


def explained(api: FakeAPI, **parts: Any) -> Raw:
    api.put(PODS, raw_pod("redis-0", **parts))
    found: Raw = shown(api, "explain", "pod", "redis-0", "-n", "redis")
    return found


def test_a_pod_that_is_created_now_would_be_promised_its_address(api: FakeAPI) -> None:
    [create] = [each for each in explained(api)["questions"] if each["action"] == "create"]

    effects = {each["webhook"]: each["effect"] for each in create["webhooks"]}
    assert effects["same-address.drawbridge.io"] == "allowed; promised: 10.0.0.1"


def test_a_reservation_that_waits_for_the_pod_says_so(api: FakeAPI) -> None:
    found = explained(api, ip="", metadata={"annotations": dict(PROMISE.annotations)})

    assert found["annotations"] == {
        IP_ADDRS: json.dumps(["10.0.0.1"]),
        SAME_ADDRESS_FROM: 'uid-former=["10.0.0.1"]',
    }
    [reserved] = found["reservations"]
    assert reserved["release"].startswith("it waits for the pod that takes the place of its pod")
    assert "it waits for the pod" in run(api, "explain", "pod", "redis-0", "-n", "redis").stdout


def test_a_reservation_whose_address_the_pod_has_is_about_to_end(api: FakeAPI) -> None:
    [reserved] = explained(api, metadata={"annotations": dict(PROMISE.annotations)})["reservations"]

    assert "has it: the leader ends it" in reserved["release"]


def test_any_other_pod_of_the_name_leaves_it_its_time(api: FakeAPI) -> None:
    [reserved] = explained(api)["reservations"]

    assert reserved["release"].startswith("in ")


# Until when


def waiting(**parts: Any) -> dict[str, Any]:
    """Parts of a pod that asks for the address, created 20 seconds ago."""
    created = (NOW - timedelta(seconds=20)).isoformat()
    metadata = {"annotations": dict(PROMISE.annotations), "creationTimestamp": created}
    return {"ip": "", "metadata": metadata, **parts}


def scheduled(seconds: int) -> dict[str, Any]:
    at = (NOW - timedelta(seconds=seconds)).isoformat()
    return {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": at}]}


@pytest.mark.parametrize(
    "command", [("pod", "redis-0", "-n", "redis"), ("ip", "10.0.0.1")], ids=["pod", "ip"]
)
def test_it_is_said_to_whom_an_ip_is_promised_and_until_when(api: FakeAPI, command: Sequence[str]) -> None:
    api.put(PODS, raw_pod("redis-0", **waiting(status=scheduled(15))))
    found = shown(api, "explain", *command)

    [promised] = found["promised"]
    assert (promised["pod"], promised["node"], promised["ips"]) == ("redis/redis-0", "node-1", ["10.0.0.1"])
    left = datetime.fromisoformat(promised["until"]) - NOW
    assert left == timedelta(seconds=45)
    [reserved] = found["reservations"]
    assert reserved["release"].startswith("it waits for the pod that takes the place of its pod")
    printed = " ".join(run(api, "explain", *command).stdout.split())
    assert "Promised to pod redis/redis-0 on node node-1: 10.0.0.1, of its predecessor." in printed
    assert "60s after it got its node, or a little later: then it gets any IP" in printed


def test_a_promised_ip_is_found_however_it_is_written(api: FakeAPI) -> None:
    held = Record("fd00::1/128", NOW, "redis", "redis-0", "uid-former", owner_uid="uid-redis", ended=NOW)
    made = body([held])
    made["metadata"] |= {"name": "drawbridge-b", "labels": {"app.kubernetes.io/managed-by": "drawbridge"}}
    api.put(RESERVATIONS, made)
    promise = Promise("uid-former", ("fd00::1",))
    api.put(PODS, raw_pod("redis-0", ip="", metadata={"annotations": dict(promise.annotations)}))

    [promised] = shown(api, "explain", "ip", "fd00:0::0001")["promised"]
    assert promised["ips"] == ["fd00::1"]


def test_a_pod_without_a_node_asks_for_the_time_of_a_reservation(api: FakeAPI) -> None:
    [promised] = explained(api, **waiting(spec={"nodeName": ""}))["promised"]

    left = datetime.fromisoformat(promised["until"]) - NOW
    assert left == timedelta(minutes=39, seconds=40)
    assert "40m without a node" in promised["ends"]


def test_a_promise_whose_time_is_over_is_about_to_end(api: FakeAPI) -> None:
    [promised] = explained(api, **waiting(status=scheduled(90)))["promised"]

    assert promised["until"] is None
    assert promised["ends"].startswith("Its time is over: the leader ends it in its next run")


def test_what_is_promised_when_the_feature_is_switched_off_ends_by_hand_only(api: FakeAPI) -> None:
    switched_off(api)
    [promised] = explained(api, **waiting())["promised"]

    assert promised["until"] is None
    assert "sameAddress is off" in promised["ends"]


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param({"ip": "10.0.0.1"}, id="it has it"),
        pytest.param({"metadata": {}}, id="nothing was promised"),
        pytest.param({"status": {"phase": "Failed"}}, id="it has ended"),
    ],
)
def test_there_is_no_promise_to_a_pod_that_waits_for_nothing(api: FakeAPI, parts: dict[str, Any]) -> None:
    api.put(PODS, raw_pod("redis-0", **waiting(**parts)))

    assert shown(api, "explain", "ip", "10.0.0.1")["promised"] == []
    assert shown(api, "explain", "pod", "redis-0", "-n", "redis")["promised"] == []


def test_a_reservation_of_another_workload_costs_no_read_of_successors(api: FakeAPI) -> None:
    held = Record("10.0.0.2/32", NOW, "redis", "web-1", "uid-web", ended=NOW)
    made = body([held])
    made["metadata"] |= {"name": "drawbridge-b", "labels": {"app.kubernetes.io/managed-by": "drawbridge"}}
    api.put(RESERVATIONS, made)
    run(api, "explain", "ip", "10.0.0.2")

    assert sum(each.path.endswith("/pods/web-1") for each in api.calls) == 1, "for its life alone"


# Before it goes


def test_a_drain_says_which_pods_get_their_ips_back(api: FakeAPI) -> None:
    api.put(NODES, {"metadata": {"name": "node-1"}})
    api.put(PODS, raw_pod("redis-0"))
    api.put(PODS, raw_pod("redis-1", ip="10.0.0.2", metadata={"annotations": {SAME_ADDRESS: "false"}}))
    api.put(
        PODS,
        raw_pod("web-1", ip="10.0.0.3", metadata={"ownerReferences": [], "annotations": {RESERVE: "true"}}),
    )

    found = {each["pod"]: each for each in shown(api, "simulate", "drain", "node-1")["returning"]}

    assert set(found) == {"redis/redis-0", "redis/redis-1"}
    assert (found["redis/redis-0"]["promised"], found["redis/redis-0"]["ips"]) == (True, ["10.0.0.1"])
    assert found["redis/redis-1"]["promised"] is False
    assert "pod-did-not-opt-out" in found["redis/redis-1"]["why"]
    rows = [line.split() for line in run(api, "simulate", "drain", "node-1").stdout.splitlines()]
    assert ["redis/redis-0", "10.0.0.1", "its", "own", "it", "is", "promised", "to", "it"] in rows


def test_a_deletion_says_so_too_and_a_smaller_number_of_replicas_brings_nothing_back(api: FakeAPI) -> None:
    api.put(PODS, raw_pod("redis-0"))
    workload = {
        "metadata": {"name": "redis", "namespace": "redis", "uid": "uid-redis"},
        "spec": {"replicas": 1},
    }
    api.put(STATEFUL_SETS, workload)

    [found] = shown(api, "simulate", "delete", "redis-0", "-n", "redis")["returning"]
    assert found["promised"]
    scaled = shown(api, "simulate", "scale", "sts/redis", "0", "-n", "redis")["removal"]
    assert ([each["ip"] for each in scaled["reserved"]], scaled["returning"]) == (["10.0.0.1"], [])


def test_a_pod_that_has_come_back_once_comes_back_again(api: FakeAPI) -> None:
    """Of the annotations of its own promise, its template has none."""
    api.put(PODS, raw_pod("redis-0", metadata={"annotations": dict(PROMISE.annotations)}))

    [found] = shown(api, "simulate", "delete", "redis-0", "-n", "redis")["returning"]
    assert found["promised"]


@pytest.mark.parametrize(
    ("spec", "why"),
    [({"strictAffinity": True}, "strictAffinity"), ({"ipCooldownSeconds": 60}, "ipCooldownSeconds")],
)
def test_a_drain_says_why_calico_gives_none_back(spec: dict[str, Any], why: str) -> None:
    api = installed(FakeAPI(*BUILT_IN, CONFIGURATION, now=lambda: NOW), render(VALUES))
    labels = {"kubernetes.io/metadata.name": "redis", "ip-reserve": "enabled"}
    api.put(NAMESPACES, {"metadata": {"name": "redis", "labels": labels}})
    api.put(CONFIGURATION.resource, {"metadata": {"name": "default"}, "spec": spec})
    api.put(PODS, raw_pod("redis-0"))

    [found] = shown(api, "simulate", "delete", "redis-0", "-n", "redis")["returning"]
    assert not found["promised"]
    assert why in found["why"]


def test_where_the_feature_is_off_nothing_comes_back_and_nothing_more_is_read(api: FakeAPI) -> None:
    switched_off(api)
    api.put(PODS, raw_pod("redis-0"))

    found = shown(api, "simulate", "delete", "redis-0", "-n", "redis")

    assert ([each["ip"] for each in found["reserved"]], found["returning"]) == (["10.0.0.1"], [])
    assert not [each for each in api.calls if "ipamconfig" in each.path]
    assert "COMES BACK" not in run(api, "simulate", "delete", "redis-0", "-n", "redis").stdout


def switched_off(api: FakeAPI) -> None:
    for each in render(VALUES).values():
        if each["kind"] == "ConfigMap" and "config.yaml" in each["data"]:
            settings = yaml.safe_load(each["data"]["config.yaml"])
            settings["ipReservation"]["sameAddress"]["enabled"] = False
            api.put(CONFIG_MAPS, each | {"data": {"config.yaml": yaml.safe_dump(settings)}})
