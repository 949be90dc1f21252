"""`drawbridge explain ip` says who had an IP before, and what Calico's own cooldown does."""

from __future__ import annotations

from base64 import b64encode
from datetime import timedelta
from typing import Any

import pytest

from controllers.ip_reservation.history import KEY, LABEL, LABEL_VALUE, NAME, Former, History, packed
from dev.fake_api import FakeAPI, Kind, refusal
from kube.client import Resource
from kube.resources import CONFIG_MAPS
from tests import cli
from tests.calico_pools import BLOCKS, CRD, KINDS, POOLS, assigned_to, pool
from tests.cli import run, shown
from tests.factories import NOW

CONFIGURATION = Resource(*CRD, "ipamconfigs", namespaced=False)
IP = "10.0.0.1"


def former(pod: str, hours: float, **fields: Any) -> Former:
    until = NOW - timedelta(hours=hours)
    of = {"ip": IP, "namespace": "redis", "pod": pod, "node": "node-1"}
    return Former(**{**of, "since": until - timedelta(hours=1), "until": until} | fields)


def cluster(*stored: Former, history: str = "24h", **fields: Any) -> FakeAPI:
    """With the history of these, and settings that keep it so long."""
    api = cli.installed(kinds=(*KINDS, Kind(CONFIGURATION, "IPAMConfig")))
    text = (
        "apiVersion: drawbridge.io/v1\nkind: DrawbridgeConfig\n"
        f"ipReservation: {{pools: {{enabled: true, history: {history}}}}}\n"
    )
    api.edit(CONFIG_MAPS, "drawbridge-config", {"data": {"config.yaml": text}}, "drawbridge")
    api.put(POOLS, pool("10.0.0.0/26"))
    api.put(BLOCKS, assigned_to("10.0.0.0/26", redis_9=IP))
    if stored:
        known = History(**{"begun": NOW - timedelta(days=3), "seen": NOW, "former": stored} | fields)
        metadata = {"name": NAME, "namespace": "drawbridge", "labels": {LABEL: LABEL_VALUE}}
        data = {KEY: b64encode(packed(known)[1]).decode()}
        api.put(CONFIG_MAPS, {"metadata": metadata, "binaryData": data})
    return api


def test_former_holders_are_shown_the_latest_first() -> None:
    other = former("kafka-0", 1, ip="10.0.0.2")
    api = cluster(former("redis-0", 30), former("redis-1", 5), former("redis-2", 2), other)

    found = shown(api, "explain", "ip", IP)["past"]
    assert [each["pod"] for each in found["former"]] == ["redis-2", "redis-1"]
    assert found["former"][0]["namespace"] == "redis"
    assert found["unknown"] == ""
    said = run(api, "explain", "ip", IP).output
    assert said.index("redis/redis-2") < said.index("redis/redis-1")
    assert f"{NOW - timedelta(hours=2):%Y-%m-%dT%H:%M:%SZ}" in said


def test_what_no_leader_saw_and_what_was_dropped_is_said() -> None:
    gap, dropped = (NOW - timedelta(hours=4), NOW - timedelta(hours=3)), NOW - timedelta(hours=9)
    api = cluster(former("redis-1", 5), gaps=(gap,), truncated=dropped)

    said = run(api, "explain", "ip", IP).output
    assert f"All since {dropped:%Y-%m-%dT%H:%M:%SZ} are shown" in said
    assert f"from {gap[0]:%Y-%m-%dT%H:%M:%SZ} to {gap[1]:%Y-%m-%dT%H:%M:%SZ}" in said
    said = run(api, "explain", "ip", "10.0.0.7").output
    assert f"No pod had it before, since {dropped:%Y-%m-%dT%H:%M:%SZ}" in said


def test_where_it_is_not_kept_or_not_stored_yet_that_is_said() -> None:
    assert (
        "not known: it is not kept: set ipReservation.pools"
        in run(cli.installed(), "explain", "ip", IP).output
    )
    assert "not known: it is not kept" in run(cluster(history="0s"), "explain", "ip", IP).output
    assert "not known: nothing is stored yet" in run(cluster(), "explain", "ip", IP).output


def test_what_cannot_be_read_is_said_and_the_rest_is_shown() -> None:
    api = cluster(former("redis-1", 5))
    said = f'configmaps "{NAME}" is forbidden: User "me" cannot list resource "configmaps" in API group ""'

    def forbidden(call: Any) -> Any:
        asked = "fieldSelector" in call.query and "configmaps" in call.path
        return refusal(403, "Forbidden", said) if asked else None

    api.fault = forbidden
    found = shown(api, "explain", "ip", IP)
    assert "configmaps" in found["past"]["unknown"]
    assert found["assigned"]["pod"] == "redis/redis-9"

    api.fault = lambda call: None
    api.edit(CONFIG_MAPS, NAME, {"binaryData": {KEY: "anVuaw=="}}, "drawbridge")
    assert "no history of addresses" in shown(api, "explain", "ip", IP)["past"]["unknown"]


def test_a_config_map_of_another_client_is_no_history() -> None:
    api = cluster(former("redis-1", 5))
    api.edit(CONFIG_MAPS, NAME, {"metadata": {"labels": {LABEL: None}}}, "drawbridge")

    assert shown(api, "explain", "ip", IP)["past"]["unknown"] == "nothing is stored yet"


@pytest.mark.parametrize(
    ("spec", "seconds"),
    [
        pytest.param({"ipCooldownSeconds": 900}, 900, id="on"),
        pytest.param({"ipCooldownSeconds": 0}, 0, id="off"),
        pytest.param({}, 0, id="before Calico 3.33"),
        pytest.param(None, 0, id="no configuration"),
    ],
)
def test_the_cooldown_of_calico_is_shown(spec: dict[str, Any] | None, seconds: int) -> None:
    api = cluster()
    if spec is not None:
        whole = {"strictAffinity": False, "autoAllocateBlocks": True} | spec
        api.put(CONFIGURATION, {"metadata": {"name": "default"}, "spec": whole})

    assert shown(api, "explain", "ip", IP)["cooldown"] == seconds
    assert ("to no pod for 15m" in run(api, "explain", "ip", IP).output) is bool(seconds)


def test_an_ip_in_its_cooldown_is_of_no_pod() -> None:
    api = cluster()
    raw = assigned_to("10.0.0.0/26", redis_9=IP)
    raw["spec"]["attributes"] = [{"secondary": {}, "releasedAt": "2026-01-02T03:04:05Z"}]
    api.put(BLOCKS, raw)

    assert (
        "has released it at 2026-01-02T03:04:05Z: it is in its cooldown"
        in run(api, "explain", "ip", IP).output
    )


def test_a_configuration_that_may_not_be_read_hides_nothing_else() -> None:
    api = cluster()
    api.fault = lambda call: refusal(403, "Forbidden") if "ipamconfigs/" in call.path else None

    found = shown(api, "explain", "ip", IP)
    assert (found["cooldown"], found["assigned"]["pod"]) == (0, "redis/redis-9")
