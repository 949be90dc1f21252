"""Budgets in cost per hour: what a pod is billed for, and that no decision exceeds a budget."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Gauge

from controllers.elasticity import pods
from controllers.elasticity.billing import DEFAULT, cost, decode, rounded_up
from controllers.elasticity.pods import Pod, Specification
from controllers.elasticity.quota import Quota, Room, Usage, count_under
from controllers.elasticity.reporter import COST, COST_LIMIT
from settings import ElasticitySettings
from settings.elasticity import Budget, MaxSuperPods, Prices
from tests.elasticity_world import World, raw_of, raw_pod
from tests.factories import NOW
from tests.tables import table
from webhook.elasticity import REASON

PRICES = Prices(cpu=1.0, memory=0.1, resources={"nvidia.com/gpu": 10.0})


def asking(requests: dict[str, str] | None = None, limits: dict[str, str] | None = None) -> dict[str, Any]:
    return {"name": "app", "image": "app", "resources": {"requests": requests or {}, "limits": limits or {}}}


def sized(cpu: str, memory: str = "1Gi") -> dict[str, Any]:
    """The spec of a pod."""
    return {"containers": [asking({"cpu": cpu, "memory": memory})]}


def pod(name: str = "web-1", **parts: Any) -> Pod:
    return decode(raw_of(raw_pod(name, **parts)))


SIZES: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "nothing": ({"containers": [asking()]}, ("1", "2")),
    "little": (sized("10m", "10Mi"), ("0.25", "0.5")),
    "exactly one": (sized("250m", "512Mi"), ("0.25", "0.5")),
    "more memory than the least has": (sized("250m", "3Gi"), ("0.5", "3")),
    "between two": (sized("3", "5Gi"), ("4", "8")),
    "much memory": (sized("1", "20Gi"), ("4", "20")),
    "parts of a GiB": (sized("4", "8193Mi"), ("4", "9")),
    "a step that is larger than a GiB": (sized("32", "65Gi"), ("32", "128")),
    "more than there is": (sized("100", "600Gi"), ("100", "600")),
    "containers together": (
        {"containers": [asking({"cpu": "1", "memory": "3Gi"}), asking({"cpu": "1", "memory": "3Gi"})]},
        ("2", "6"),
    ),
    "the largest limit of one": (
        {"containers": [asking({"cpu": "1"}, {"cpu": "4"}), asking({"cpu": "1"}, {"cpu": "2"})]},
        ("4", "8"),
    ),
    "an init container alone": (
        {
            "containers": [asking({"cpu": "1", "memory": "1Gi"})],
            "initContainers": [asking({"cpu": "2", "memory": "4Gi"})],
        },
        ("2", "4"),
    ),
    "an init container beside the sidecars that run already": (
        {
            "containers": [asking()],
            "initContainers": [
                {**asking({"cpu": "2", "memory": "4Gi"}), "restartPolicy": "Always"},
                asking({"cpu": "2", "memory": "4Gi"}),
            ],
        },
        ("4", "8"),
    ),
    "what the pod asks for as a whole": (
        {"containers": [asking()], "resources": {"requests": {"cpu": "32", "memory": "64Gi"}}},
        ("32", "64"),
    ),
    "the limit of the pod as a whole": (
        {"containers": [asking({"cpu": "1"})], "resources": {"limits": {"cpu": "4"}}},
        ("4", "8"),
    ),
}


@table("spec, expected", SIZES)
def test_a_pod_is_billed_for_the_least_specification_that_holds_it(
    spec: dict[str, Any], expected: tuple[str, str]
) -> None:
    found = pod(spec=spec).specification

    assert found is not None
    assert (found.cpu, found.memory) == tuple(map(Decimal, expected))


@table(
    "annotations, expected",
    {
        "both": ({"cpu": "8", "mem": "16Gi"}, ("8", "16")),
        "one of them": ({"cpu": "2"}, ("2", "4")),
        "a word": ({"cpu": "many", "mem": "much"}, ("1", "1")),
        "less than nothing": ({"cpu": "-1"}, ("1", "1")),
    },
)
def test_a_pod_may_name_its_specification(annotations: dict[str, str], expected: tuple[str, str]) -> None:
    named = {f"eks.tke.cloud.tencent.com/{name}": value for name, value in annotations.items()}
    found = pod(spec=sized("1"), annotations=named).specification

    assert found is not None
    assert (found.cpu, found.memory) == tuple(map(Decimal, expected))


@given(cpu=st.decimals(0, 100, places=3), memory=st.decimals(0, 600, places=3))
def test_a_specification_is_never_less_than_the_pod_and_is_rounded_up_once(
    cpu: Decimal, memory: Decimal
) -> None:
    found = rounded_up(cpu, memory)

    assert found == DEFAULT or (found[0] >= cpu and found[1] >= memory)
    assert rounded_up(*found) == found


@table(
    "spec, expected",
    {
        "vCPUs and memory": (sized("4", "10Gi"), "5.0"),
        "a GPU": ({"containers": [asking({"cpu": "4", "memory": "10Gi", "nvidia.com/gpu": "2"})]}, "25.0"),
        "what has no price": ({"containers": [asking({"cpu": "4", "memory": "10Gi", "a/b": "2"})]}, "5.0"),
    },
)
def test_a_cost_is_the_specification_at_the_users_prices(spec: dict[str, Any], expected: str) -> None:
    assert cost(pod(spec=spec), PRICES) == Decimal(expected)


def test_nothing_is_read_and_nothing_costs_where_there_are_no_prices() -> None:
    raw = raw_of(raw_pod("web-1", spec=sized("4")))

    assert pods.decode(raw).specification is None
    assert cost(pods.decode(raw), PRICES) == 0
    assert cost(decode(raw), Prices()) == 0


def test_a_finished_pod_costs_nothing() -> None:
    raw = raw_pod("web-1", spec=sized("4")) | {"status": {"phase": "Succeeded"}}

    assert decode(raw_of(raw)).specification is None


def budget(most: float, **of: Any) -> MaxSuperPods:
    return MaxSuperPods(budgets=(Budget(max_cost_per_hour=most, **of),))


@table(
    "limits, taken, full",
    {
        "room": (budget(2), "0", ""),
        "to the last cent": (budget(2.2), "1.1", ""),
        "too much": (
            budget(2),
            "1",
            "maxSuperPods.budgets allows 2 per hour for pods on super nodes, and this one costs 1.1",
        ),
        "alone too much": (
            budget(0.5),
            "0",
            "maxSuperPods.budgets allows 0.5 per hour for pods on super nodes, and this one costs 1.1",
        ),
        "none": (
            budget(0, namespaces=("shop",)),
            "0",
            "maxSuperPods.budgets allows 0 per hour for pods of shop on super nodes, and this one costs 1.1",
        ),
        "of others": (budget(0, namespaces=("bank",)), "5", ""),
    },
)
def test_a_budget_has_room_for_what_does_not_exceed_it(limits: MaxSuperPods, taken: str, full: str) -> None:
    room = Room(limits, {}, [Usage(1, Decimal(taken))], PRICES, now=NOW)

    assert room.take(pod(spec=sized("1"))) == full


@pytest.mark.parametrize(
    ("budget", "known"),
    [
        pytest.param({"maxCostPerHour": 4}, False, id="a limit in cost"),
        pytest.param({"maxPods": 4}, True, id="a limit of pods"),
        pytest.param({"maxCostPerHour": 4, "labels": {"app": "other"}}, True, id="a limit for other pods"),
    ],
)
def test_what_a_pod_costs_is_known_once_it_is_read_for_it(budget: dict[str, Any], known: bool) -> None:
    room = Room(MaxSuperPods(budgets=(Budget.model_validate(budget),)), {}, [Usage()], PRICES, now=NOW)

    assert room.knows(pods.decode(raw_of(raw_pod("web-1")))) is known
    assert room.knows(pod())


def test_a_budget_may_have_both_limits() -> None:
    both = MaxSuperPods(budgets=(Budget(max_pods=1, max_cost_per_hour=9),))
    room = Room(both, {}, [Usage()], PRICES, now=NOW)

    assert room.take(pod(spec=sized("1"))) == ""
    assert room.take(pod(spec=sized("1"))) == "maxSuperPods.budgets allows 1 pods on super nodes"


@given(
    sizes=st.lists(st.sampled_from(["250m", "500m", "1", "2", "4", "8"]), max_size=20),
    most=st.floats(0, 30, allow_nan=False),
)
def test_what_one_decision_takes_never_exceeds_a_budget(sizes: list[str], most: float) -> None:
    room, taken = Room(budget(most), {}, [Usage()], PRICES, now=NOW), Decimal()
    for number, size in enumerate(sizes):
        one = pod(f"web-{number}", spec=sized(size))
        if not room.take(one):
            taken += cost(one, PRICES)

    assert taken <= Decimal(str(most))


def at_cost(name: str, cpu: str, memory: str) -> Pod:
    return msgspec.structs.replace(pod(name), specification=Specification(Decimal(cpu), Decimal(memory)))


@given(
    st.lists(
        st.tuples(
            st.integers(0, 4), st.sampled_from(["assume", "forget", "see", "gone"]), st.sampled_from("1248")
        ),
        max_size=40,
    )
)
def test_what_is_added_and_taken_away_is_what_a_new_count_finds(steps: list[tuple[int, str, str]]) -> None:
    quota, limits = Quota(lambda _: None, lambda: NOW), budget(100)
    ways: dict[str, Callable[[Pod], None]] = {
        "assume": quota.assume,
        "forget": quota.forget,
        "see": lambda one: quota.see(one, lambda: True),
        "gone": lambda one: quota.see(one, lambda: False),
    }
    quota.under(limits.budgets, PRICES)
    for number, way, cpu in steps:
        ways[way](at_cost(f"web-{number}", cpu, "1"))

    there = (quota._assumed | quota._seen).values()
    assert quota.under(limits.budgets, PRICES) == count_under(limits.budgets, there, PRICES)


def test_other_prices_count_all_pods_once_more() -> None:
    quota, limits = Quota(lambda _: None, lambda: NOW), budget(100)
    quota.see(at_cost("web-1", "2", "4"), lambda: True)
    assert quota.under(limits.budgets, PRICES) == [Usage(1, Decimal("2.4"))]

    assert quota.under(limits.budgets, Prices(cpu=2.0)) == [Usage(1, Decimal(4))]


def test_a_pod_that_becomes_smaller_wakes_those_that_wait() -> None:
    woken: list[str] = []
    quota, limits = Quota(woken.append, lambda: NOW), budget(4)
    quota.see(at_cost("web-1", "4", "0"), lambda: True)
    with quota.acquire("late", limits, PRICES) as room:
        assert room.take(at_cost("web-2", "1", "0"))
    quota.see(at_cost("web-1", "2", "0"), lambda: True)

    assert woken == ["late"]


# Among leaders

SETTINGS = ElasticitySettings(enabled=True, prices=PRICES, max_super_pods=budget(4.4, namespaces=("shop",)))


def world() -> World:
    return World(settings=SETTINGS, decode=decode)


def spent(found: World) -> Decimal:
    there = [
        decode(raw_of(each))
        for each in found.cluster.pods.values()
        if found.cluster.pod(each["metadata"]["name"]).may_come_to_super_nodes
    ]
    return sum((cost(each, PRICES) for each in there), start=Decimal())


def test_what_is_over_waits_with_the_reason_until_another_one_ends() -> None:
    found = world()
    first, *_ = found.create(5, n="0", spec=sized("1"))
    found.leader.settle()
    (late,) = found.cluster.names(lambda pod: pod.gated)
    assert found.placements() == {"": 1, "super": 4}
    assert found.annotations(late)[REASON] == (
        "global=unset local=unset LOCAL_REPLICAS=0, 0 local: waits, maxSuperPods.budgets allows 4.4 per hour for pods"
        " of shop on super nodes, and this one costs 1.1"
    )
    assert found.leader.recorder.reasons == ["SuperNodeCapReached"]
    assert COST.labels("pods of shop")._value.get() == 4.4
    assert COST_LIMIT.labels("pods of shop")._value.get() == 4.4

    found.cluster.remove(first)
    found.leader.settle()
    assert found.placements() == {"super": 4}


def test_metrics_follow_the_budgets_and_their_tightest_limits() -> None:
    found = world()
    pair = (Budget(max_cost_per_hour=3, labels={"a": "b"}), Budget(max_cost_per_hour=2, labels={"a": "b"}))
    limits = MaxSuperPods(budgets=(*pair, Budget(max_pods=1, namespaces=("bank",))))
    found.leader.settings = ElasticitySettings(enabled=True, prices=PRICES, max_super_pods=limits)
    found.leader.turn()
    assert shown(COST) == {"pods with a=b": 0, "pods of bank": 0}
    assert shown(COST_LIMIT) == {"pods with a=b": 2}

    found.leader.settings = ElasticitySettings(enabled=True, max_super_pods=MaxSuperPods(total=1))
    found.leader.turn()
    assert (shown(COST), shown(COST_LIMIT)) == ({}, {})


def shown(gauge: Gauge) -> dict[str, float]:
    return {
        each.labels["budget"]: each.value
        for each in next(iter(gauge.collect())).samples
        if each.labels["budget"] not in OF_OTHER_TESTS
    }


OF_OTHER_TESTS = {"pods", "pods of shop"}
"""What other reporters of this process have left."""


def test_a_smaller_pod_goes_before_a_larger_one_that_waits() -> None:
    found = world()
    found.create(1, "large", n="0", spec=sized("8"))
    found.create(1, "small", n="0", spec=sized("1"))
    found.leader.settle()

    assert (found.placements("large"), found.placements("small")) == ({"": 1}, {"super": 1})


def test_a_pod_that_local_nodes_have_no_room_for_waits_for_its_budget_too() -> None:
    found = world()
    found.create(3, n="0", spec=sized("1"))
    found.leader.settle()
    (stuck,) = found.create(1, "stuck", n=None, gated=False, spec=sized("2"))
    found.no_room(stuck)
    found.leader.settle()

    assert not found.cluster.pod(stuck).may_come_to_super_nodes
    assert "this one costs 2.4" in found.annotations(stuck)[REASON]


def test_a_leader_that_has_not_seen_its_own_writes_yet_exceeds_nothing() -> None:
    found = world()
    found.create(4, n="0", spec=sized("1"))
    found.leader.hear()
    found.leader.turn()
    found.create(4, "other", n="0", spec=sized("1"))
    found.leader.hear()
    found.leader.turn()
    while found.leader.queue:
        found.leader.let_go()

    assert spent(found) == Decimal("4.4")
