"""`drawbridge simulate join`: addresses, their time and quotas, and the pods that start on new nodes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from cli.cluster import Cluster
from cli.explain.reader import Installation, Reader
from cli.simulate.reader import DAEMON_SETS, simulate_join
from controllers.anycast_ip.claim import Claim, body, claim_for, spare_for
from controllers.anycast_ip.entries import Entry
from dev.fake_api import FakeAPI
from settings import AnycastIPSettings
from tests import cli
from tests.charts import helm_needed, render, settings_in
from tests.explained import VALUES, registered
from tests.factories import NOW
from tests.ingress_daemonset_world import node as followed
from tests.ingress_daemonset_world import raw_resource
from tests.test_cli_placements import announce_before, put_allow_list
from webhook.anycast_ip import TAINT

NODES, CONFIG_MAPS, IDS = cli.resource("Node"), cli.resource("ConfigMap"), cli.resource("IngressDaemonSet")
NEED = {"tke.cloud.tencent.com/need-aia-ip": "true"}
EDGE = {"edge": "true"}
CLOSED = msgspec.to_builtins(TAINT)
Raw = dict[str, Any]


@pytest.fixture
def api() -> FakeAPI:
    return cli.installed("anycastIP", "ingressDaemonSet")


def put_node(api: FakeAPI, name: str, labels: Raw, taints: tuple[Raw, ...] = (), created: int = 1) -> None:
    at = f"2026-01-0{created}T00:00:00Z"
    metadata = {"name": name, "uid": f"uid-{name}", "labels": labels, "creationTimestamp": at}
    api.put(NODES, {"metadata": metadata, "spec": {"taints": list(taints)}})


def put_daemon_set(api: FakeAPI, name: str, **pod: Any) -> None:
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": []} | pod}
    api.put(DAEMON_SETS, {"metadata": {"name": name, "namespace": "default"}, "spec": {"template": template}})


def starting(found: Raw) -> dict[str, tuple[int, str]]:
    return {each["workload"]: (each["pods"], each["when"]) for each in found["starting"]}


def test_each_node_needs_an_address_of_the_account_and_nothing_is_written(api: FakeAPI) -> None:
    before = len(api.calls)
    found = cli.shown(api, "simulate", "join", "30")

    assert (found["nodes"], found["labels"]) == (30, NEED)
    assert found["taints"] == ["tke.cloud.tencent.com/no-aia-ip=true:NoSchedule"]
    orders = found["orders"]
    assert (orders["needed"], orders["waiting"], orders["inCluster"]) == (30, 0, 0)
    assert (orders["perSecond"], orders["seconds"]) == (9.0, pytest.approx(30 / 9))
    needs = {each["quota"]: each["needed"] for each in orders["quotas"]}
    assert needs == {"TOTAL_EIP_QUOTA": 30, "DAILY_EIP_APPLY": 30, "tag values": 60}
    assert {each.method for each in api.calls[before:]} == {"GET"}


def test_people_read_which_quotas_are_unknown_and_where_they_are_shown(api: FakeAPI) -> None:
    printed = cli.run(api, "simulate", "join", "30").output

    assert printed.startswith("30 nodes more: 30 addresses ordered")
    assert "All are ordered in 3s, at 9 a second" in printed
    assert "unknown" in printed
    assert "More than the cloud grants unless it was raised: TOTAL_EIP_QUOTA." in printed
    assert "/api/v1/namespaces/drawbridge/pods/LEADER:8080/proxy/metrics | grep quota_left" in printed


@helm_needed
def test_admission_taints_each_node_as_the_charts_webhook_does(api: FakeAPI) -> None:
    objects, reader = render(VALUES), Reader(Cluster(api.client()))
    reader.__dict__["installation"] = Installation(registered(objects), settings_in(objects))

    assert simulate_join(reader, 1, "").admission == "allowed; changed: /spec/taints"


def test_without_its_webhook_the_leader_closes_the_node(api: FakeAPI) -> None:
    api.remove(cli.resource("MutatingWebhookConfiguration"), "drawbridge")
    assert "is not installed" in cli.shown(api, "simulate", "join", "1")["admission"]


def test_nodes_that_wait_already_come_first_and_addresses_there_are_counted(api: FakeAPI) -> None:
    put_node(api, "waits", NEED, (CLOSED,))
    put_claim(api, claim_for(followed("waits"), AnycastIPSettings(), NOW))

    orders = cli.shown(api, "simulate", "join", "8")["orders"]

    assert (orders["waiting"], orders["inCluster"], orders["seconds"]) == (1, 1, pytest.approx(1.0))


def test_idle_addresses_need_no_order_and_nodes_that_wait_come_first(api: FakeAPI) -> None:
    put_node(api, "waits", NEED, (CLOSED,))
    for number in range(4):
        spare = replace(spare_for(f"spare-{number}", AnycastIPSettings(), NOW), address=f"eip-{number}")
        put_claim(api, spare)
    put_claim(api, spare_for("ordered", AnycastIPSettings(), NOW))

    orders = cli.shown(api, "simulate", "join", "8")["orders"]

    assert (orders["fromPool"], orders["needed"], orders["inCluster"]) == (3, 5, 5)
    assert orders["seconds"] == pytest.approx(5 / 9)
    assert {each["quota"]: each["needed"] for each in orders["quotas"]}["DAILY_EIP_APPLY"] == 5
    assert "From the pool, without an order: 3 addresses." in cli.run(api, "simulate", "join", "8").output


def test_how_long_addresses_are_announced_and_which_need_not_wait(api: FakeAPI) -> None:
    announce_before(api, "10m")
    since = {"eip-0": datetime(2026, 1, 1, tzinfo=UTC), "eip-1": datetime.now(UTC)}
    for number in range(3):
        spare = replace(spare_for(f"spare-{number}", AnycastIPSettings(), NOW), address=f"eip-{number}")
        put_claim(api, spare)
    put_allow_list(
        api, *(Entry(address="9.9.9.9", id=each, state="idle", since=at) for each, at in since.items())
    )

    orders = cli.shown(api, "simulate", "join", "8")["orders"]
    assert (orders["announcedFor"], orders["announced"], orders["fromPool"]) == (600.0, 1, 3)
    printed = cli.run(api, "simulate", "join", "8").output
    assert (
        "Each is in the allow-list for 10m before it is bound; 1 of the idle ones have been for that long."
        in printed
    )


def put_claim(api: FakeAPI, claim: Claim) -> None:
    raw = body(claim)
    api.put(CONFIG_MAPS, raw | {"metadata": raw["metadata"] | {"namespace": "drawbridge"}})


def test_a_new_node_is_like_the_newest_that_needs_an_address_or_like_the_one_named(api: FakeAPI) -> None:
    put_node(api, "old", NEED | {"zone": "a"})
    put_node(api, "new", NEED | {"zone": "b", "kubernetes.io/hostname": "new"}, (CLOSED,), created=2)
    put_node(api, "other", {"zone": "c"}, created=3)

    found = cli.shown(api, "simulate", "join", "1")
    assert (found["like"], found["labels"]) == ("new", NEED | {"zone": "b"})
    assert len(found["taints"]) == 1

    named = cli.shown(api, "simulate", "join", "1", "--like", "other")
    assert (named["labels"], named["orders"]) == ({"zone": "c"}, None)
    assert "has not all of the labels" in named["whyNoAddress"]
    missing = cli.run(api, "simulate", "join", "1", "--like", "nowhere")
    assert (missing.exit_code, "there is no node nowhere" in missing.output) == (1, True)


def test_a_feature_that_is_off_orders_nothing() -> None:
    found = cli.shown(cli.installed(), "simulate", "join", "2")

    assert (found["orders"], found["whyNoAddress"], found["taints"]) == (None, "anycastIP is off", [])


def test_pods_start_at_once_or_when_the_node_opens_as_they_tolerate_its_taint(api: FakeAPI) -> None:
    put_node(api, "edge-1", NEED | EDGE)
    put_daemon_set(api, "agent", tolerations=[{"operator": "Exists"}])
    put_daemon_set(api, "proxy")
    put_daemon_set(api, "elsewhere", nodeSelector={"zone": "z"})
    api.put(IDS, raw_resource({"nodeSelector": EDGE}))

    found = cli.shown(api, "simulate", "join", "3")

    assert starting(found) == {
        "default/agent": (3, "at once"),
        "default/proxy": (3, "when the node opens"),
        "edge/web": (6, "when the node opens"),
    }


def test_the_terms_of_an_address_and_the_check_before_the_opening_are_said(api: FakeAPI) -> None:
    cli.configure(
        api,
        "anycastIP",
        addresses=[{"nodeSelector": EDGE, "bandwidth": 700}],
        egressCheck={"url": "https://ip.example.com/", "image": "drawbridge:1"},
    )
    assert cli.shown(api, "simulate", "join", "1")["addressTerms"].startswith("100 Mbps")
    put_node(api, "wide", NEED | EDGE)
    found = cli.shown(api, "simulate", "join", "1", "--like", "wide")

    assert found["addressTerms"].startswith("700 Mbps, paid as the account is, by an entry")
    assert found["opensWhen"] == "when https://ip.example.com/ sees its address"
    printed = cli.run(api, "simulate", "join", "1", "--like", "wide").output
    assert "700 Mbps" in printed
    assert "sees its address" in printed


def test_where_all_nodes_have_the_same_terms_and_none_is_checked_nothing_is_said_of_it(api: FakeAPI) -> None:
    found = cli.shown(api, "simulate", "join", "1")
    assert (found["addressTerms"], found["opensWhen"]) == ("", "")
