"""`drawbridge explain ip` says which pod Calico has assigned an IP to."""

from __future__ import annotations

import pytest

from cli.pools.assignment import block_name
from dev.fake_api import FakeAPI, refusal
from tests import cli
from tests.calico_pools import BLOCKS, KINDS, POOLS, Raw, block, pool
from tests.cli import run, shown

HANDLE = "k8s-pod-network.0123"
NOTED = {
    "handle_id": HANDLE,
    "secondary": {"namespace": "redis", "pod": "redis-0", "node": "node-1", "timestamp": "T"},
}


@pytest.mark.parametrize(
    ("attribute", "expected", "said"),
    [
        pytest.param(
            NOTED,
            {
                "pool": "main",
                "pod": "redis/redis-0",
                "node": "node-1",
                "since": "T",
                "handle": HANDLE,
                "released": "",
            },
            "pool main has assigned it to pod redis/redis-0, on node node-1 since T",
            id="a pod",
        ),
        pytest.param(
            {"handle_id": "windows-reserved", "secondary": None},
            {
                "pool": "main",
                "pod": "",
                "node": "",
                "since": "",
                "handle": "windows-reserved",
                "released": "",
            },
            "pool main has assigned it to windows-reserved, on node unknown",
            id="no pod",
        ),
    ],
)
def test_an_ip_says_what_calico_has_assigned_it(attribute: Raw, expected: Raw, said: str) -> None:
    api = of_calico(attribute)

    assert shown(api, "explain", "ip", "10.0.0.1")["assigned"] == expected
    assert said in run(api, "explain", "ip", "10.0.0.1").output
    assert "has assigned it to no pod" in run(api, "explain", "ip", "10.0.0.2").output
    assert "has assigned it to no pod" in run(api, "explain", "ip", "10.0.0.65").output
    outside = shown(api, "explain", "ip", "10.0.1.1")
    assert (outside["pool"], outside["assigned"], outside["assignedUnknown"]) == ("", None, "")


def test_without_permission_for_the_pools_the_rest_of_an_ip_is_shown() -> None:
    api = of_calico(NOTED)
    said = (
        'ippools is forbidden: User "me" cannot list resource "ippools" in API group "crd.projectcalico.org"'
    )
    api.fault = lambda call: refusal(403, "Forbidden", said) if "ippools" in call.path else None

    found = shown(api, "explain", "ip", "10.0.0.1")
    assert "ippools" in found["assignedUnknown"]
    assert "is not reserved" in found["summary"]
    assert "What Calico has assigned it to is not known" in run(api, "explain", "ip", "10.0.0.1").output


def of_calico(attribute: Raw) -> FakeAPI:
    api = cli.installed(kinds=KINDS)
    api.put(POOLS, pool("10.0.0.0/24"))
    raw = block("10.0.0.0/26", "10.0.0.1")
    raw["spec"]["attributes"] = [attribute]
    api.put(BLOCKS, raw)
    return api


@pytest.mark.parametrize(
    ("ip", "size", "name"),
    [
        ("10.0.0.70", 0, "10-0-0-64-26"),
        ("10.0.0.70", 29, "10-0-0-64-29"),
        ("fd00::1:2", 0, "fd00--1-0-122"),
    ],
)
def test_a_block_is_named_by_its_range_as_calico_does(ip: str, size: int, name: str) -> None:
    assert block_name(ip, size) == name
