"""Who had an address is known after any leader, by Calico's own allocator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dev.bench.ip_reservation.allocator import ipam
from dev.lab import install
from dev.lab.session import Lab
from tests.cluster.calico_allocator import allocating
from tests.cluster.test_cli import shown
from tests.cluster.workloads import SECONDS, VALUES

pytestmark = pytest.mark.nightly

POOL, NODE = "172.31.0.0/26", "of-calico"
FOLLOWED = {"enabled": True, "history": "1h"}
WITH_POOLS = install.merged(VALUES, {"ipReservation": {"pools": FOLLOWED}})


@pytest.fixture(scope="module")
def pool_lab() -> Iterator[Lab]:
    """With a node whose pods get their addresses from Calico's allocator."""
    with allocating(WITH_POOLS, NODE) as up:
        yield up


@pytest.mark.promise
def test_who_had_an_address_is_known_after_the_leader_that_saw_it_was_killed(pool_lab: Lab) -> None:
    pool_lab.wait(lambda: not past(pool_lab, "172.31.0.1")["unknown"], 2 * SECONDS, "a history to begin")
    ipam(pool_lab, "pool", POOL, "--block-size", "26")
    [address] = ipam(pool_lab, "assign", "1", "--node", NODE, "--handle", "kafka-0")["assigned"]
    ipam(pool_lab, "release", address)
    pool_lab.wait(lambda: "kafka-0" in former(pool_lab, address), 2 * SECONDS, "the leader to store it")

    before = len(past(pool_lab, address)["gaps"])
    pool_lab.kubectl(
        "delete", "pod", "-n", "drawbridge", "-l", "app.kubernetes.io/component=controllers", "--force"
    )
    pool_lab.wait(
        lambda: len(past(pool_lab, address)["gaps"]) > before, 2 * SECONDS, "the next leader to note the gap"
    )
    [found] = [each for each in past(pool_lab, address)["former"] if each["pod"] == "kafka-0"]
    assert found["node"] == NODE


def past(lab: Lab, address: str) -> dict[str, Any]:
    found: dict[str, Any] = shown(lab, "explain", "ip", address)["past"]
    return found


def former(lab: Lab, address: str) -> list[str]:
    return [each["pod"] for each in past(lab, address)["former"]]
