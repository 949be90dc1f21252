"""The headroom of Calico's pools in `drawbridge simulate drain` and `delete`."""

from __future__ import annotations

import msgspec

from calico.pools import IPAMBlock, IPPool, block_of
from calico.segment import IPReservation
from cli.ip_reservation.pools import Headroom, PoolFacts, headroom
from cli.ip_reservation.removal import ReservedIP, Returning, headroom_after
from tests.calico_pools import Raw, block, pool


def reservation(*cidrs: str) -> IPReservation:
    return msgspec.convert({"metadata": {"name": "r"}, "spec": {"reservedCIDRs": [*cidrs]}}, IPReservation)


def facts(pools: list[Raw], blocks: list[Raw], *reserved: str) -> PoolFacts:
    return PoolFacts(
        msgspec.convert(pools, list[IPPool]),
        [block_of(msgspec.convert(each, IPAMBlock)) for each in blocks],
        [reservation(*reserved)],
    )


def test_an_address_is_assigned_reserved_or_free_and_a_reserved_one_that_is_assigned_counts_once() -> None:
    found_facts = facts(
        [pool("10.0.0.0/28")],
        [block("10.0.0.0/30", "10.0.0.1", "10.0.0.2"), block("10.0.1.0/30", "10.0.1.1")],
        *("10.0.0.2/32", "10.0.0.8/31", "10.0.0.8/32", "10.9.0.0/16"),
    )
    [found] = headroom(found_facts, ["10.0.0.1", "10.0.1.1"])

    assert found == Headroom("main", "10.0.0.0/28", 16, assigned=2, reserved=2, free=12, to_be_reserved=1)


def test_a_pool_that_is_disabled_gives_no_address_and_is_left_out() -> None:
    found = headroom(facts([pool("10.0.0.0/30", disabled=True), pool("fd00::/120", "six")], []), ["fd00::1"])

    assert [(each.pool, each.free, each.to_be_reserved) for each in found] == [("six", 256, 1)]


def test_an_address_that_its_own_pod_gets_back_takes_no_other_one() -> None:
    ips = {"redis/redis-0": "10.0.0.1", "redis/redis-1": "10.0.0.2"}
    reserved = [ReservedIP(ip, pod, "node-1", "redis") for pod, ip in ips.items()]
    back = [Returning(pod, (ip,), pod.endswith("-0"), "") for pod, ip in ips.items()]
    pools = facts([pool("10.0.0.0/28")], [block("10.0.0.0/28", *ips.values())])
    [found] = headroom_after(pools, reserved, back)

    assert (found.assigned, found.to_be_reserved) == (2, 1)
