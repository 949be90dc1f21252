"""What is left of the cloud's quotas can be read without its keys: on the leader's Lease, at no write."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from api.anycast_ip import QUOTAS, TAINT, Quota, quotas_in, with_quotas
from controllers.anycast_ip.claim import CLUSTER_UUID, NAMESPACE, claim_for, spare_for
from dev.fake_api import FakeAPI
from kube.resources import CONFIG_MAPS, NODES
from kube.types import Node
from settings.anycast_ip import NEED_LABEL
from tests import cli
from tests.anycast_world import SETTINGS, config_map, open_lab
from tests.dashboard import Page
from tests.factories import NOW

LEASES = cli.resource("Lease")
LEFT = [Quota("TOTAL_EIP_QUOTA", 18, 20), Quota("DAILY_EIP_APPLY", 39, 40)]
NO_ZONE = '{"at":"2026-07-01T08:00:00","quotas":[]}'


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"at":"now","quotas":[]}', NO_ZONE, '{"quotas":[{"id":1}]}']
)
def test_what_another_client_wrote_is_not_known(text: str) -> None:
    assert quotas_in({QUOTAS: text}) is None
    assert quotas_in({}) is None


def test_each_resync_has_them_and_the_cloud_is_asked_no_more_often() -> None:
    lab = open_lab(quota_total=20, quota_daily=40)
    lab.run_for(SETTINGS.resync_period)
    first = quotas_in(lab.lease)
    assert first is not None
    assert {each.id: each.limit for each in first.quotas}["TOTAL_EIP_QUOTA"] == 20

    lab.run_for(2 * SETTINGS.resync_period)
    later = quotas_in(lab.lease)
    assert later is not None
    assert later.at > first.at
    assert {each.id: each.current for each in later.quotas}["TOTAL_EIP_QUOTA"] == 1


@pytest.fixture
def api() -> FakeAPI:
    api = cli.installed("anycastIP", "ingressDaemonSet")
    api.edit(LEASES, "drawbridge", {"metadata": {"annotations": with_quotas(LEFT, NOW)}}, "drawbridge")
    return api


def test_the_command_lists_them_with_the_time(api: FakeAPI) -> None:
    found = cli.shown(api, "addresses", "list")

    assert [(each["quota"], each["used"], each["limit"], each["left"]) for each in found["quotas"]] == [
        ("TOTAL_EIP_QUOTA", 18, 20, 2),
        ("DAILY_EIP_APPLY", 39, 40, 1),
    ]
    assert found["quotasReadAt"].startswith(f"{NOW:%Y-%m-%dT%H:%M:%S}")
    assert "The leader read the quotas " in cli.run(api, "addresses", "list").output


def test_nodes_that_are_more_than_is_left_are_announced(api: FakeAPI) -> None:
    orders: dict[str, Any] = cli.shown(api, "simulate", "join", "2")["orders"]
    left = {each["quota"]: (each["left"], each["limit"]) for each in orders["quotas"]}
    assert left == {"TOTAL_EIP_QUOTA": (2, 20), "DAILY_EIP_APPLY": (1, 40), "tag values": (None, None)}

    printed = cli.run(api, "simulate", "join", "2").output
    assert "More than is left: DAILY_EIP_APPLY." in printed
    assert "quota_left" not in printed


@pytest.mark.parametrize(
    ("address", "spares", "from_pool", "needed"),
    [
        pytest.param("", 0, 0, 3, id="a node that waits for an order is served first"),
        pytest.param("", 1, 0, 2, id="or from the pool"),
        pytest.param("eip-1", 1, 1, 1, id="one whose address is announced, say, needs no other"),
    ],
)
def test_nodes_that_wait_already_count_as_far_as_they_need_an_address(
    api: FakeAPI, address: str, spares: int, from_pool: int, needed: int
) -> None:
    tainted = {"taints": [msgspec.to_builtins(TAINT)], "providerID": "qcloud:///1/ins-n1"}
    api.put(NODES, {"metadata": {"name": "n1", "labels": {NEED_LABEL: "true"}}, "spec": tainted})
    waits = claim_for(msgspec.convert(api.get(NODES, "n1"), Node), SETTINGS, NOW)
    spare = replace(spare_for("u2", SETTINGS, NOW), address="eip-2")
    for claim in [replace(waits, address=address), *[spare] * spares]:
        api.put(CONFIG_MAPS, config_map(claim))

    orders: dict[str, Any] = cli.shown(api, "simulate", "join", "2")["orders"]
    assert orders["fromPool"] == from_pool
    assert {each["quota"]: each["needed"] for each in orders["quotas"]}["DAILY_EIP_APPLY"] == needed


@pytest.mark.parametrize("state", ["idle", "skipped claim"])
def test_what_another_clusters_claim_says_is_not_shown_as_if_it_were_ours(api: FakeAPI, state: str) -> None:
    api.put(CONFIG_MAPS, {"metadata": {"name": CLUSTER_UUID, "namespace": NAMESPACE}})
    uid = api.get(CONFIG_MAPS, CLUSTER_UUID, NAMESPACE)["metadata"]["uid"]
    claim = replace(
        spare_for("u2", SETTINGS, NOW), address="eip-2", cluster=uid if state == "idle" else "theirs"
    )
    api.put(CONFIG_MAPS, config_map(claim))

    assert [each["state"] for each in cli.shown(api, "addresses", "list")["addresses"]] == [state]
    assert cli.shown(api, "simulate", "join", "1")["orders"]["fromPool"] == (state == "idle")


def test_the_page_shows_them_and_marks_what_is_nearly_used_up(api: FakeAPI) -> None:
    text = Page(cli.cluster_of(api)).text("/addresses")

    assert "Quotas of the cloud" in text
    assert "The leader read them <time" in text
    assert 'aria-label="18 of 20 used"' in text
    assert '<span class="mark warning"><span class="glyph" aria-hidden="true">▲</span> 1</span>' in text


def test_without_a_readable_lease_addresses_are_listed_all_the_same(api: FakeAPI) -> None:
    api.remove(LEASES, "drawbridge", "drawbridge")

    found = cli.shown(api, "addresses", "list")
    assert (found["addresses"], found["quotas"]) == ([], [])
    assert "Quotas" not in Page(cli.cluster_of(api)).text("/addresses")
