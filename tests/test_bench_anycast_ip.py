"""The benchmark of anycast_ip counts calls, and judges them by what is promised."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from queue import SimpleQueue

import pytest

from bench.anycast_ip import figures, fleet, idle, spare
from bench.anycast_ip.fleet import Joined
from bench.anycast_ip.phases import Cost
from bench.processes import Usage
from bench.report import Figure
from kube.types import Node, NodeSpec, ObjectMeta
from lab.cloud.config import Knobs
from lab.cloud.values import Call
from lab.history import Observation
from lab.watching import Observations, WatchLost
from webhook.anycast_ip import BOUND, TAINT

KNOBS = Knobs(allocate_seconds=1.0, bind_seconds=2.0, unbind_seconds=1.5, release_seconds=0.5)
QUIET = Usage(0.0, 0)
EARLY = "seen open without a bound address"
TIME = "time until it is open, against that without one"


def call(action: str, outcome: str = "OK") -> Call:
    return Call(at=0.0, action=action, region="", outcome=outcome, delivered=True, params={}, request_id="")


def calls(**counts: int) -> list[Call]:
    return [call(action) for action, count in counts.items() for _ in range(count)]


def by_name(found: Sequence[Figure]) -> dict[str, Figure]:
    return {each.name.partition(": ")[2]: each for each in found}


@pytest.mark.parametrize(
    ("seconds", "counts", "missed"),
    [
        pytest.param(123.6, {"AllocateAddresses": 2300, "DescribeAddresses": 500}, set(), id="just so"),
        pytest.param(123.7, {}, {"wall against the floor of the rate limits"}, id="too slow"),
        pytest.param(100.0, {"CreateTags": 2301}, {"cloud writes per node"}, id="too many writes"),
        pytest.param(100.0, {"DescribeAddressQuota": 501}, {"cloud reads per node"}, id="too many reads"),
    ],
)
def test_a_thousand_nodes_that_join_are_judged_by_what_is_promised(
    seconds: float, counts: dict[str, int], missed: set[str]
) -> None:
    found = figures.of_joining(Joined(["n"] * 1000, seconds, 0), Cost(calls(**counts), QUIET), KNOBS)

    assert {name for name, each in by_name(found).items() if each.met is False} == missed


def test_of_a_few_nodes_only_what_must_never_be_is_judged() -> None:
    cost = Cost([*calls(DescribeAddresses=100), call("AllocateAddresses", "RequestLimitExceeded")], QUIET)
    joining = by_name(figures.of_joining(Joined(["n"], 60.0, 1), cost, KNOBS))
    leaving = by_name(figures.of_leaving(1, 60.0, 1, cost, KNOBS))

    judged = {name: each.met for name, each in {**joining, **leaving}.items() if each.met is not None}
    assert judged == {
        "seen open without a bound address": False,
        "addresses and tags left behind": False,
    }
    assert joining["calls refused for their rate"].value == 1


def test_a_sweep_ends_with_the_quotas_and_an_unfinished_one_does_not_count() -> None:
    page, quota = call("DescribeAddresses"), call("DescribeAddressQuota")

    assert idle.sweeps([page, quota, page, page, quota, page]) == [[page, quota], [page, page, quota]]


@pytest.mark.parametrize(
    ("large", "more", "met"),
    [
        pytest.param(calls(DescribeAddresses=10, DescribeAddressQuota=1), 1, True, id="a page per 100"),
        pytest.param(calls(DescribeAddresses=12, DescribeAddressQuota=1), 3, False, id="a few calls more"),
    ],
)
def test_idle_nodes_may_cost_a_page_per_hundred_and_nothing_else(
    large: list[Call], more: int, met: bool
) -> None:
    small = calls(DescribeAddresses=1, DescribeAddressQuota=1)

    found = {each.name: each for each in idle.figures({100: [small], 1000: [small, large]})}

    judged = found["1,000 idle: reads per sweep beyond its pages"]
    assert (judged.value, judged.baseline, judged.met) == (more, 1, met)
    assert found["1,000 idle: cloud reads per hour"].value == 12 * len(large)


def node(name: str = "n", *, tainted: bool = False, bound: bool = False) -> Node:
    annotations = {BOUND: f"uid-{name}/eip-1"} if bound else {}
    metadata = ObjectMeta(name=name, uid=f"uid-{name}", annotations=annotations)
    return Node(metadata, NodeSpec(taints=(TAINT,) if tainted else ()))


def observed(*seen: Node | WatchLost) -> Observations:
    queue: Observations = SimpleQueue()
    for each in seen:
        queue.put(each if isinstance(each, WatchLost) else Observation(each, False, datetime.now(UTC)))
    return queue


def test_a_node_is_early_when_it_is_seen_without_its_taint_before_its_proof() -> None:
    seen = observed(
        node("of others"),
        node("a", tainted=True),
        node("b"),
        node("b", tainted=True),
        node("a", bound=True),
        node("b", bound=True),
    )

    assert fleet.opened(seen, ["a", "b"], deadline=0.0)[1] == 1


@pytest.mark.parametrize(
    ("found", "missed"),
    [
        pytest.param(spare.Joins([4.0, 9.0, 5.0], [4.0, 1.0, 9.0], 0), set(), id="by the median"),
        pytest.param(spare.Joins([4.0], [3.3], 0), {TIME}, id="hardly sooner"),
        pytest.param(spare.Joins([4.0], [1.0], 1), {EARLY}, id="open before its address was bound"),
    ],
)
def test_a_spare_address_has_to_save_the_time_of_an_order(found: spare.Joins, missed: set[str]) -> None:
    assert {name for name, each in by_name(spare.figures(found)).items() if each.met is False} == missed
