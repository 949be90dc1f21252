"""`drawbridge explain` and `drawbridge simulate` on the fake API server: what they say, and that they only read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from calico.segment import IPReservation, Record, body
from cli.explain.budgets import BUDGETS
from cli.explain.node import standing, terms_in_words
from cli.explain.webhook_configurations import CONFIGURATIONS
from dev.fake_api import FakeAPI, refusal
from kube.resources import CONFIG_MAPS, DEPLOYMENTS, EVENTS, NAMESPACES, NODES, PODS, Resource
from kube.types import Node
from settings import AnycastIPSettings
from tests.cli import run, shown
from tests.factories import NOW, raw_pod
from webhook.ip_reservation import RESERVE, RESERVE_FROM

DEPLOYED = Path(__file__).parent.parent / "deploy" / "install.yaml"
RESERVATIONS = Resource("projectcalico.org", "v3", "ipreservations", namespaced=False)
LABELS = {"ip-reserve": "enabled"}
Raw = dict[str, Any]


@pytest.fixture
def api() -> FakeAPI:
    """Drawbridge as `deploy/install.yaml` has it, and two namespaces, of which the first is selected."""
    api = FakeAPI(now=lambda: NOW)
    for each in yaml.load_all(DEPLOYED.read_text(), Loader=yaml.CSafeLoader):
        if each["kind"] in CONFIGURATIONS:
            api.put(CONFIGURATIONS[each["kind"]], each)
        if each["kind"] == "ConfigMap" and "config.yaml" in each["data"]:
            api.put(CONFIG_MAPS, each)
    place(api, "redis", LABELS)
    place(api, "default")
    return api


def place(api: FakeAPI, name: str, labels: dict[str, str] | None = None) -> None:
    given = {"kubernetes.io/metadata.name": name, **(labels or {})}
    api.put(NAMESPACES, {"metadata": {"name": name, "labels": given}})


def put_pod(api: FakeAPI, name: str = "redis-0", **parts: Any) -> Raw:
    return api.put(PODS, raw_pod(name, **parts))


def put_segment(api: FakeAPI, *records: Record, name: str = "drawbridge-a", ours: bool = True) -> None:
    made = body(records)
    managed = {"app.kubernetes.io/managed-by": "drawbridge"} if ours else {}
    made["metadata"] |= {"name": name, "labels": managed}
    api.put(RESERVATIONS, made)


def record(ip: str = "10.0.0.1", **fields: Any) -> Record:
    given = {"namespace": "redis", "pod": "redis-0", "uid": "uid-redis-0", "node": "node-1", "at": NOW}
    return Record(cidr=f"{ip}/32", reason="deleted", **{**given, **fields})


def answers(explained: Raw) -> dict[str, Raw]:
    return {each["action"]: each for each in explained["questions"]}


def effects(question: Raw) -> dict[str, str]:
    return {each["webhook"]: each["effect"] for each in question["webhooks"]}


def test_a_pod_in_a_selected_namespace_is_reserved_when_it_goes(api: FakeAPI) -> None:
    put_pod(api)

    asked = answers(shown(api, "explain", "pod", "redis-0", "-n", "redis"))

    assert asked["delete"]["reserved"] == asked["evict"]["reserved"] == ["10.0.0.1"]
    assert effects(asked["delete"])["ip-reservation.drawbridge.io"] == "allowed; reserved: 10.0.0.1/32"
    assert asked["create"]["webhooks"] == []
    assert all(each["allowed"] for each in asked.values())


def test_a_pod_whose_annotation_was_copied_shows_from_where(api: FakeAPI) -> None:
    copy = {RESERVE: "true", RESERVE_FROM: "Deployment/redis=true"}
    put_pod(api, metadata={"annotations": copy, "labels": {}})

    found = shown(api, "explain", "pod", "redis-0", "-n", "redis")

    assert found["annotations"] == copy
    assert answers(found)["delete"]["reserved"] == ["10.0.0.1"]
    assert "Deployment/redis=true" in run(api, "explain", "pod", "redis-0", "-n", "redis").stdout


@pytest.mark.parametrize(
    ("namespace", "parts", "expected"),
    [
        pytest.param(
            "default",
            {},
            "not called by namespaceSelector: ip-reserve In [enabled, enable]; it has no label ip-reserve",
            id="another namespace",
        ),
        pytest.param(
            "redis", {"spec": {"hostNetwork": True}}, "matchCondition pod-not-on-the-host-network", id="host"
        ),
        pytest.param("redis", {"ip": ""}, "matchCondition pod-has-an-ip: is false", id="no IP"),
        pytest.param(
            "redis",
            {"metadata": {"annotations": {RESERVE: "false"}}},
            "allowed, nothing to do: not selected",
            id="the webhook itself",
        ),
    ],
)
def test_why_a_pod_is_not_reserved_is_said_with_what_decides(
    api: FakeAPI, namespace: str, parts: Raw, expected: str
) -> None:
    put_pod(api, namespace=namespace, **parts)

    asked = answers(shown(api, "explain", "pod", "redis-0", "-n", namespace))

    assert expected in asked["delete"]["notReservedBecause"]
    assert asked["delete"]["reserved"] == []
    printed = run(api, "explain", "pod", "redis-0", "-n", namespace).output
    assert expected.removeprefix("not called ") in printed


def test_a_pod_that_is_gone_is_explained_by_its_reservation(api: FakeAPI) -> None:
    put_segment(api, record(ended=NOW - timedelta(minutes=10)))
    api.put(
        EVENTS,
        {
            "metadata": {"name": "a", "namespace": "redis"},
            "involvedObject": {"kind": "Pod", "name": "redis-0", "namespace": "redis"},
            "reason": "Killing",
            "message": "Stopping container",
        },
    )

    explained = shown(api, "explain", "pod", "redis-0", "-n", "redis")

    assert explained["phase"] == "gone"
    assert [each["ip"] for each in explained["reservations"]] == ["10.0.0.1"]
    assert [each["reason"] for each in explained["events"]] == ["Killing"]


@pytest.mark.parametrize(
    ("stored", "parts", "expected"),
    [
        pytest.param({}, {}, "its pod still runs", id="the pod runs"),
        pytest.param(
            {},
            {"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}},
            "begin when it is gone",
            id="ends",
        ),
        pytest.param({"uid": "uid-of-a-former-one"}, {}, "has not stored the end of its pod yet", id="gone"),
        pytest.param({"uid": "former", "ended": NOW - timedelta(days=3)}, {}, "its time is over", id="over"),
    ],
)
def test_an_ip_says_until_when_it_is_reserved(api: FakeAPI, stored: Raw, parts: Raw, expected: str) -> None:
    put_pod(api, **parts)
    put_segment(api, record(**stored))

    explained = shown(api, "explain", "ip", "10.0.0.1")

    assert expected in explained["summary"]
    assert explained["summary"].startswith("10.0.0.1 is reserved for redis/redis-0: ")
    assert [each["pod"] for each in explained["holders"]] == ["redis/redis-0"]


def test_a_node_says_when_it_was_opened_and_closed_and_whether_its_address_is_bound(api: FakeAPI) -> None:
    history = '[{"at":"2026-01-02T03:04:05Z","to":"closed","address":"eip-1"}]'
    condition = {
        "type": "AnycastIPReady",
        "status": "False",
        "reason": "AnycastIpLost",
        "message": "it is lost",
    }
    api.put(
        NODES,
        {
            "metadata": {"name": "n7", "annotations": {"drawbridge.io/anycast-ip-history": history}},
            "status": {"conditions": [condition]},
        },
    )

    explained = shown(api, "explain", "node", "n7")
    assert explained["condition"] == "False, AnycastIpLost: it is lost"
    [changed] = explained["transitions"]
    assert changed == {"at": "2026-01-02T03:04:05Z", "to": "closed", "address": "eip-1"}
    assert "drawbridge.io/anycast-ip-history" not in explained["annotations"]
    text = run(api, "explain", "node", "n7").output
    assert "Condition AnycastIPReady: False, AnycastIpLost: it is lost" in text
    assert "2026-01-02T03:04:05Z" in text


def test_an_ip_that_an_operator_wants_released_says_so(api: FakeAPI) -> None:
    put_segment(api, record(ended=NOW))
    change = {"metadata": {"annotations": {"drawbridge.io/release": "10.0.0.1"}}}
    api.client().patch(RESERVATIONS, "drawbridge-a", change, type=IPReservation)

    assert "an operator asked for its release" in shown(api, "explain", "ip", "10.0.0.1")["summary"]


def test_an_ip_that_is_reserved_by_others_names_them(api: FakeAPI) -> None:
    made = body([])
    made["metadata"] |= {"name": "gateways"}
    made["spec"]["reservedCIDRs"] = ["10.0.0.0/28"]
    api.put(RESERVATIONS, made)

    assert shown(api, "explain", "ip", "10.0.0.1")["unmanaged"] == ["gateways"]
    assert shown(api, "explain", "ip", "10.0.1.1")["unmanaged"] == []


def test_an_ip_of_a_running_pod_says_what_becomes_of_it(api: FakeAPI) -> None:
    put_pod(api)

    explained = shown(api, "explain", "ip", "10.0.0.1")

    assert explained["summary"] == "10.0.0.1 is not reserved: pod redis/redis-0 has it"
    (holder,) = explained["holders"]
    assert {each["action"]: each["reserved"] for each in holder["questions"]} == {
        "delete": ["10.0.0.1"],
        "evict": ["10.0.0.1"],
    }


def test_an_ip_that_came_to_another_pod_has_that_event(api: FakeAPI) -> None:
    put_segment(api, record(ended=NOW))
    about = {"kind": "Pod", "name": "kafka-0", "namespace": "redis"}
    text = "The pod has 10.0.0.1, which is reserved for pod redis/redis-0: clients of that one may reach this pod"
    event = {"reason": "AddressSwapped", "type": "Warning", "message": text, "involvedObject": about}
    api.put(EVENTS, event | {"metadata": {"name": "a", "namespace": "redis"}})

    [found] = shown(api, "explain", "ip", "10.0.0.1")["events"]
    assert found["reason"] == "AddressSwapped"
    assert shown(api, "explain", "ip", "10.0.0.2")["events"] == []


def test_an_ip_of_nothing_is_free(api: FakeAPI) -> None:
    explained = shown(api, "explain", "ip", "10.0.0.9")

    assert explained["summary"] == "10.0.0.9 is not reserved, and no pod has it"
    assert run(api, "explain", "ip", "10.0.0").exit_code == 1


def drained(api: FakeAPI) -> None:
    api.put(NODES, {"metadata": {"name": "node-1"}})
    put_pod(api)
    put_pod(api, "host", ip="10.0.0.2", spec={"hostNetwork": True})
    put_pod(api, "outside", namespace="default", ip="10.0.0.3")
    put_pod(api, "elsewhere", ip="10.0.0.4", spec={"nodeName": "node-2"})
    put_pod(api, "mirror", metadata={"annotations": {"kubernetes.io/config.mirror": "x"}})
    agent = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "a", "controller": True}
    put_pod(api, "agent", metadata={"ownerReferences": [agent]})


def test_a_drain_reserves_the_ips_of_selected_pods(api: FakeAPI) -> None:
    drained(api)

    found = shown(api, "simulate", "drain", "node-1")

    assert [(each["ip"], each["pod"]) for each in found["reserved"]] == [("10.0.0.1", "redis/redis-0")]
    why = {each["pod"]: each["why"] for each in found["notReserved"]}
    assert why["redis/host"] == "allowed, nothing to do: host network"
    assert "namespaceSelector" in why["default/outside"]
    assert {each["pod"]: each["why"] for each in found["kept"]} == {
        "redis/mirror": "mirror of a static pod",
        "redis/agent": "pod of a DaemonSet",
    }
    printed = run(api, "simulate", "drain", "node-1").output
    assert "Draining node node-1: 1 IP reserved, 3 pods removed" in printed


def test_a_drain_without_the_webhook_that_reserves_says_so_first(api: FakeAPI) -> None:
    drained(api)
    ours = {"app.kubernetes.io/name": "drawbridge", "app.kubernetes.io/instance": "drawbridge"}
    api.put(DEPLOYMENTS, {"metadata": {"name": "drawbridge", "namespace": "drawbridge", "labels": ours}})
    api.remove(CONFIGURATIONS["ValidatingWebhookConfiguration"], "drawbridge")
    why = "no webhook configuration has the webhook that reserves IPs"

    found = shown(api, "simulate", "drain", "node-1")
    assert (found["reserved"], found["problem"]) == ([], why)
    assert {each["why"] for each in found["notReserved"]} == {why}
    assert f"{why}: see drawbridge status." in run(api, "simulate", "drain", "node-1").output
    asked = answers(shown(api, "explain", "pod", "redis-0", "-n", "redis"))
    assert [asked[each]["notReservedBecause"] for each in ("delete", "evict", "create")] == [why, why, ""]


def test_a_removal_that_is_over_the_limit_says_so(api: FakeAPI) -> None:
    drained(api)
    stored = api.get(CONFIG_MAPS, "drawbridge-config", "drawbridge")
    settings = yaml.safe_load(stored["data"]["config.yaml"])
    settings["ipReservation"]["ipReserveMaxCount"] = 2
    api.put(CONFIG_MAPS, stored | {"data": {"config.yaml": yaml.safe_dump(settings)}})
    put_segment(api, *(record(f"10.0.1.{each}", uid=f"u{each}", ended=NOW) for each in range(2)))

    assert "this is 1 over ipReserveMaxCount (2)" in run(api, "simulate", "drain", "node-1").output


READY = {"conditions": [{"type": "Ready", "status": "True"}]}
NOT_READY = {"conditions": [{"type": "Ready", "status": "False"}]}
SELECTS = {"selector": {"matchLabels": {"app": "redis"}}}


def put_budget(api: FakeAPI, name: str = "redis", *, allowed: int = 0, **spec: Any) -> None:
    status = {
        "disruptionsAllowed": allowed,
        "currentHealthy": 3,
        "desiredHealthy": 3,
        "observedGeneration": 1,
    }
    raw = {"metadata": {"name": name, "namespace": "redis"}, "spec": SELECTS | spec, "status": status}
    api.put(BUDGETS, raw)


@pytest.mark.parametrize(
    ("status", "budgets", "said"),
    [
        pytest.param(READY, [{}], "allows no disruption: it needs 3 healthy pods and has 3", id="none left"),
        pytest.param(READY, [{"allowed": 1}], "", id="one left"),
        pytest.param(NOT_READY, [{}], "", id="an unhealthy pod of a healthy workload"),
        pytest.param({"phase": "Pending"}, [{}], "", id="a pod that does not run"),
        pytest.param(READY, [{"selector": {"matchLabels": {"app": "other"}}}], "", id="of other pods"),
        pytest.param(
            READY,
            [{"name": "a"}, {"name": "b"}],
            "more than one PodDisruptionBudget selects the pod",
            id="two",
        ),
    ],
)
def test_an_eviction_that_a_budget_refuses_is_not_called_allowed(
    api: FakeAPI, status: Raw, budgets: Sequence[Raw], said: str
) -> None:
    put_pod(api, metadata={"labels": {"app": "redis"}}, status=status)
    for each in budgets:
        put_budget(api, **each)

    asked = answers(shown(api, "explain", "pod", "redis-0", "-n", "redis"))

    assert said in asked["evict"]["budget"]
    assert [asked[each]["allowed"] for each in ("delete", "evict")] == [True, not said]
    printed = run(api, "explain", "pod", "redis-0", "-n", "redis").output
    assert said in " ".join(printed.split())


def test_budgets_that_may_not_be_read_are_named(api: FakeAPI) -> None:
    put_pod(api, status=READY)
    api.fault = lambda call: refusal(403, "Forbidden", "no") if call.path.endswith("budgets") else None

    asked = answers(shown(api, "explain", "pod", "redis-0", "-n", "redis"))
    assert asked["evict"]["budget"] == "not known: you may not list PodDisruptionBudgets"


def test_what_cannot_be_evaluated_is_taken_to_be_called_and_named(api: FakeAPI) -> None:
    drained(api)
    resource = CONFIGURATIONS["ValidatingWebhookConfiguration"]
    stored = api.get(resource, "drawbridge")
    condition = {"name": "asks", "expression": "authorizer.group('').resource('pods').check('get').allowed()"}
    for each in stored["webhooks"]:
        each["matchConditions"] = [condition]
    api.put(resource, stored)

    found = shown(api, "simulate", "drain", "node-1")

    assert [each["ip"] for each in found["reserved"]] == ["10.0.0.1"]
    (unknown,) = found["unknown"]
    assert "matchCondition asks it uses authorizer, which only the API server has" in unknown


def test_the_deletion_of_pods_is_foreseen(api: FakeAPI) -> None:
    put_pod(api)
    put_pod(api, "redis-1", ip="10.0.0.2", metadata={"annotations": {RESERVE: "false"}})

    found = shown(api, "simulate", "delete", "redis-0", "redis-1", "-n", "redis")

    assert [each["ip"] for each in found["reserved"]] == ["10.0.0.1"]
    assert [each["pod"] for each in found["notReserved"]] == ["redis/redis-1"]


WANTED = {"tke.cloud.tencent.com/need-aia-ip": "true"}
CLOSED = {"key": "tke.cloud.tencent.com/no-aia-ip", "value": "true", "effect": "NoSchedule"}
BOUND = {"drawbridge.io/anycast-ip-bound": "uid-1/eip-1"}


@pytest.mark.parametrize(
    ("labels", "annotations", "taints", "expected"),
    [
        pytest.param({}, {}, [], "not needed: it is not labelled", id="not selected"),
        pytest.param(
            WANTED | {"node.kubernetes.io/instance-type": "eklet"}, {}, [], "super node", id="super"
        ),
        pytest.param(WANTED, {}, [CLOSED], "no address is proven bound", id="closed"),
        pytest.param(WANTED, BOUND, [CLOSED], "the address is proven bound", id="about to open"),
        pytest.param(WANTED, BOUND, [], "needed, bound and open: uid-1/eip-1", id="open"),
        pytest.param(WANTED, {}, [], "open without proof of an address", id="open too early"),
    ],
)
def test_a_node_says_whether_it_is_open(
    labels: dict[str, str], annotations: dict[str, str], taints: list[Raw], expected: str
) -> None:
    settings = AnycastIPSettings.model_validate({"enabled": True, "clusterID": "cls-1"})
    metadata = {"name": "n", "uid": "uid-1", "labels": labels, "annotations": annotations}

    assert expected in standing(
        msgspec.convert({"metadata": metadata, "spec": {"taints": taints}}, Node), settings
    )


def test_a_closed_node_says_what_has_to_see_its_address_and_on_which_terms_it_gets_one() -> None:
    given = {
        "enabled": True,
        "clusterID": "cls-1",
        "internetChargeType": "TRAFFIC_POSTPAID_BY_HOUR",
        "addresses": [{"nodeSelector": {"a": "b"}, "bandwidth": 7}],
        "egressCheck": {"url": "https://ip.example.com/", "image": "drawbridge:1"},
    }
    settings = AnycastIPSettings.model_validate(given)
    metadata = {"name": "n", "uid": "uid-1", "labels": WANTED | {"a": "b"}}
    closed = msgspec.convert({"metadata": metadata, "spec": {"taints": [CLOSED]}}, Node)

    assert "it opens when https://ip.example.com/ sees its address" in standing(closed, settings)
    assert terms_in_words(closed, settings) == (
        "7 Mbps, TRAFFIC_POSTPAID_BY_HOUR, by an entry of anycastIP.addresses"
    )
    assert terms_in_words(Node(), settings) == ""


def test_a_node_is_explained_where_the_feature_is_off(api: FakeAPI) -> None:
    api.put(NODES, {"metadata": {"name": "node-1"}})

    explained = shown(api, "explain", "node", "node-1")

    assert explained["anycastIp"] == "the feature is off"
    assert all(each["allowed"] for each in explained["questions"])
    assert "drawbridge simulate drain node-1" in run(api, "explain", "node", "node-1").output


def test_nothing_is_written(api: FakeAPI) -> None:
    drained(api)
    put_segment(api, record())
    commands = (
        ["explain", "pod", "redis-0", "-n", "redis"],
        ["explain", "ip", "10.0.0.1"],
        ["explain", "node", "node-1"],
        ["simulate", "drain", "node-1"],
        ["simulate", "delete", "redis-0", "-n", "redis"],
    )
    for each in commands:
        assert run(api, *each).exit_code == 0

    assert {each.method for each in api.calls} == {"GET"}


def test_what_is_not_there_is_an_error_with_the_way_out(api: FakeAPI) -> None:
    absent = run(api, "explain", "pod", "nothing", "-n", "redis")
    assert absent.exit_code == 1
    assert "there is no pod redis/nothing" in absent.output
    assert run(api, "simulate", "drain", "nowhere").exit_code == 1

    bare = run(FakeAPI(), "explain", "ip", "10.0.0.1")
    assert bare.exit_code == 1
    assert "Drawbridge is not installed in this cluster" in bare.output


def test_settings_that_cannot_be_read_end_the_command(api: FakeAPI) -> None:
    stored = api.get(CONFIG_MAPS, "drawbridge-config", "drawbridge")
    api.put(CONFIG_MAPS, stored | {"data": {"config.yaml": "kind: Something"}})

    refused = run(api, "explain", "ip", "10.0.0.1")

    assert refused.exit_code == 1
    assert "the settings of Drawbridge cannot be read" in refused.output
