"""How many addresses of Calico's pools are assigned, reserved and free."""

from __future__ import annotations

from ipaddress import ip_network

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calico.pools import (
    Assigned,
    Range,
    Usage,
    collapsed,
    decode_block,
    decode_pool,
    located,
    overlap,
    pools_of,
    range_of,
    reserved_ranges,
    size_of,
    usage_of,
)
from calico.reservations import AUTO, GROUPS
from dev.fake_api import FakeAPI, Kind
from kube.client import Resource
from kube.types import ObjectMeta
from tests import cli
from tests.calico_pools import BLOCKS, KINDS, POOLS, a_block, a_pool, block, pool
from tests.factories import numbered, segment
from tests.ip_reservation_world import encoded

V4, V6 = range_of("10.0.0.0/28"), range_of("fd00::/120")


@pytest.mark.parametrize(
    ("cidr", "expected"),
    [
        ("10.0.0.0/30", (4, 0x0A000000, 0x0A000004)),
        ("10.0.0.3/30", (4, 0x0A000000, 0x0A000004)),
        ("::/127", (6, 0, 2)),
    ],
)
def test_a_cidr_is_a_range_of_addresses(cidr: str, expected: tuple[int, int, int]) -> None:
    assert range_of(cidr) == expected


def test_ranges_of_different_versions_have_nothing_in_common() -> None:
    assert overlap((4, 0, 10), (6, 0, 10)) is None
    assert overlap((4, 0, 10), (4, 10, 20)) is None
    assert overlap((4, 0, 10), (4, 9, 20)) == (4, 9, 10)


SMALL = st.tuples(st.sampled_from([4, 6]), st.integers(0, 30), st.integers(1, 9)).map(
    lambda each: (each[0], each[1], each[1] + each[2])
)


@given(st.lists(SMALL))
def test_collapsed_ranges_have_the_same_addresses_once(ranges: list[tuple[int, int, int]]) -> None:
    found = collapsed(ranges)

    wanted = {(version, number) for version, first, end in ranges for number in range(first, end)}
    assert sum(map(size_of, found)) == len(wanted)
    assert {(v, n) for v, first, end in found for n in range(first, end)} == wanted


@given(st.sets(st.integers(0, 63)), SMALL)
def test_a_block_counts_the_addresses_that_are_assigned_within_a_range(
    assigned: set[int], within: tuple[int, int, int]
) -> None:
    found = Assigned(
        a_block(f"0.0.0.{first}/28", *(f"0.0.0.{n}" for n in assigned if first <= n < first + 16))
        for first in (48, 0, 16, 32)
    )

    version, first, end = within
    assert found.count(within) == (len(assigned & {*range(first, end)}) if version == 4 else 0)


def test_what_is_kept_of_a_block_is_a_bit_for_each_address() -> None:
    raw = block("10.0.0.0/30", "10.0.0.1", "10.0.0.2")
    raw["metadata"] |= {"uid": "u", "resourceVersion": "7", "annotations": {"a": "b"}, "labels": {"c": "d"}}
    raw["spec"] |= {"attributes": [{"handle_id": "h", "secondary": {"pod": "redis-0"}}], "affinity": "host:a"}

    found = decode_block(encoded(raw))

    assert found.metadata == ObjectMeta(name="10-0-0-0-30", uid="u", resource_version="7")
    assert (found.range, found.assigned) == (range_of("10.0.0.0/30"), 0b0110)


def test_a_block_without_a_range_is_refused_as_what_cannot_be_decoded() -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_block(encoded({"spec": {"cidr": "10.0.0"}}))


@pytest.mark.parametrize(
    "command", [("simulate", "drain", "n1"), ("explain", "ip", "10.0.0.1")], ids=" ".join
)
def test_a_block_without_a_range_keeps_no_command_from_its_answer(command: tuple[str, ...]) -> None:
    api = cli.installed(kinds=KINDS)
    api.put(cli.resource("Node"), {"metadata": {"name": "n1"}})
    api.put(POOLS, pool("10.0.0.0/26"))
    api.put(BLOCKS, {"metadata": {"name": "10-0-0-0-26"}, "spec": {"cidr": "10.0.0", "allocations": [0]}})

    result = cli.run(api, *command)

    assert result.exit_code == 0, result.output
    assert "main" in result.output


def test_a_pool_with_a_block_size_that_is_none_keeps_an_address_from_no_explanation() -> None:
    api = cli.installed(kinds=KINDS)
    api.put(POOLS, pool("10.0.0.0/26", blockSize=99))

    result = cli.run(api, "explain", "ip", "10.0.0.1")

    assert result.exit_code == 0, result.output
    assert "main" in result.output


def allocatable(status: str) -> dict[str, object]:
    """The status by which Calico's controller of pools says whether the allocator takes addresses of it."""
    return {"status": {"conditions": [{"type": "Allocatable", "status": status, "reason": "CIDROverlap"}]}}


@pytest.mark.parametrize(
    ("parts", "gives"),
    [
        ({}, True),
        ({"spec": {"disabled": True}}, False),
        ({"spec": {"allowedUses": []}}, True),
        ({"spec": {"allowedUses": ["Tunnel", "Workload"]}}, True),
        ({"spec": {"allowedUses": ["LoadBalancer"]}}, False),
        ({"spec": {"cidr": "10.0.0.1-9"}}, False),
        ({"spec": {"cidr": ""}}, False),
        ({"metadata": {"deletionTimestamp": "2026-11-01T00:00:00Z"}}, False),
        (allocatable("False"), False),
        (allocatable("True"), True),
    ],
)
def test_a_pool_gives_pods_addresses_unless_calico_takes_none_of_it_for_them(
    parts: dict[str, dict[str, object]], gives: bool
) -> None:
    raw = pool("10.0.0.0/28")
    for field, part in parts.items():
        raw[field] = raw.get(field, {}) | part

    assert (decode_pool(encoded(raw)).range is not None) is gives


@pytest.mark.parametrize(
    ("assigned", "reserved", "expected"),
    [
        pytest.param((), (), (16, 0, 0, 16), id="all free"),
        pytest.param(("10.0.0.1",), (), (16, 1, 0, 15), id="one assigned"),
        pytest.param(("10.0.0.1",), ("10.0.0.1/32", "10.0.0.2/32"), (16, 1, 1, 14), id="reserved, too"),
        pytest.param((), ("10.0.0.0/8",), (16, 0, 16, 0), id="more than the pool is reserved"),
        pytest.param((), ("fd00::/64",), (16, 0, 0, 16), id="of the other family"),
    ],
)
def test_an_address_is_assigned_reserved_or_free(
    assigned: tuple[str, ...], reserved: tuple[str, ...], expected: tuple[int, ...]
) -> None:
    found = usage_of(V4, Assigned([a_block("10.0.0.0/30", *assigned)]), [*map(range_of, reserved)])

    assert (found.addresses, found.assigned, found.reserved, found.free) == expected


def test_a_pool_of_more_addresses_than_a_machine_word_is_counted_exactly() -> None:
    found = usage_of(range_of("fd00::/48"), Assigned([a_block("fd00::/122", "fd00::1")]), [V6])

    assert found == Usage(2**80, 1, 2**8 - 1)
    assert found.free == 2**80 - 2**8


def test_pools_are_looked_for_in_each_group_and_blocks_where_calicos_own_server_has_none() -> None:
    v3 = Resource("projectcalico.org", "v3", "ippools", namespaced=False)
    api = FakeAPI(*KINDS, Kind(v3, "IPPool"))

    assert located(api.client(), "ippools") == v3
    assert located(api.client(), "ippools", GROUPS[1]) == POOLS
    assert located(api.client(), "ipamblocks", AUTO) == BLOCKS
    assert located(FakeAPI().client(), "ipamblocks") is None


def test_reservations_of_others_are_looked_at_in_their_own_pool_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = list[Range]()

    def counting(one: Range, other: Range) -> Range | None:
        looks.append(one)
        return overlap(one, other)

    monkeypatch.setattr("calico.pools.overlap", counting)
    ours = segment(*(numbered(n) for n in range(0, 256 * 50, 128)))
    others = segment(*(numbered(n) for n in range(1, 256 * 50, 2)), ours=False)

    found = pools_of([a_pool(f"10.0.{n}.0/24") for n in range(50)], [], [ours, others])

    assert [(len(each.ours), each.usage.reserved, each.room) for each in found] == [(2, 130, 128)] * 50
    assert len(looks) < 3 * len(others.records)


def test_what_ten_thousand_pods_and_others_have_reserved_is_read_once() -> None:
    segments = [segment(*map(numbered, range(n, n + 500))) for n in range(0, 20_000, 500)]
    reserved_ranges(segments)
    misses = range_of.cache_info().misses

    reserved_ranges(segments)

    assert range_of.cache_info().misses == misses


@given(st.sets(st.integers(0, 31)), st.lists(st.tuples(st.integers(0, 31), st.integers(28, 32)), max_size=6))
def test_what_is_counted_adds_up_to_the_pool(assigned: set[int], reserved: list[tuple[int, int]]) -> None:
    networks = [ip_network(f"10.0.0.{number}/{length}", strict=False) for number, length in reserved]
    blocks = [a_block("10.0.0.0/27", *(f"10.0.0.{number}" for number in assigned))]

    found = usage_of(V4, Assigned(blocks), collapsed(map(range_of, map(str, networks))))

    assert min(found.assigned, found.reserved, found.free) >= 0
    taken = {number for number in assigned if number < 16}
    kept = {int(str(each).rpartition(".")[2]) for network in networks for each in network}
    assert found.reserved == len({each for each in kept if each < 16} - taken)
    assert a_pool("10.0.0.0/28").range == V4
