"""Former weights: planned, and stored so that the next leader has them, as values and on a fake API server."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import msgspec
import pytest

from api.ingress_daemonset import WEIGHTS_OF
from cloud.types import Backend
from controllers.ingress_daemonset.load_balancers import (
    AT_ONCE,
    LATE,
    MOST,
    BalancerSnapshot,
    FormerWeight,
    FormerWeights,
    plan_weights,
    summed_up,
    unhealthy,
)
from controllers.ingress_daemonset.weights import KEY, Unreadable, WeightStore
from dev.fake_api import NAMESPACES, FakeAPI
from kube.errors import KubeError
from kube.leader_election import LeadershipLost
from kube.resources import CONFIG_MAPS
from tests.factories import DEEP, NOW
from tests.ingress_daemonset_clb_world import BALANCER, WEIGHT, ClbLeader, rolling

FIRST = ("ins-1", "10.0.0.1")
OTHER = ("ins-2", "10.0.0.2")
SECOND = timedelta(seconds=1)


def backend(weight: int = 10, instance: str = "ins-1", address: str = "", listener: str = "lbl-1") -> Backend:
    return Backend(listener=listener, instance=instance, address=address, port=80, weight=weight)


FIRST_KEY = backend().key


def seen(*backends: Backend, memory: FormerWeights | None = None, detached: bool = True) -> BalancerSnapshot:
    """Of node n1, which is to be *detached*, or was."""
    nodes = {"n1": FIRST, "n2": OTHER}
    return BalancerSnapshot(backends, memory or {}, nodes, {"n1": "uid-web"} if detached else {})


def known(weight: int = 10, *, ago: timedelta = SECOND, restored: timedelta | None = None) -> FormerWeights:
    return {
        FIRST_KEY: FormerWeight("n1", weight, NOW - ago, NOW - restored if restored is not None else None)
    }


@pytest.mark.parametrize(
    ("found", "is_its"),
    [
        (backend(instance="ins-1", address="10.9.9.9"), True),
        (backend(instance="", address="10.0.0.1"), True),
        (backend(instance="ins-3", address="10.0.0.1"), False),
        (backend(instance="", address="10.0.0.3"), False),
    ],
    ids=["its instance", "its address", "another instance", "another address"],
)
def test_a_backend_is_that_of_a_node_by_its_instance_else_by_its_address(
    found: Backend, is_its: bool
) -> None:
    assert bool(plan_weights(seen(found), NOW).weights) == is_its


def test_a_weight_that_another_client_wrote_meanwhile_is_the_one_that_returns() -> None:
    planned = plan_weights(seen(backend(20), memory=known(10)), NOW)

    assert planned.memory[FIRST_KEY].weight == 20
    assert planned.weights == {backend(20): 0}


def test_more_weights_than_one_call_takes_are_left_to_the_next_plan() -> None:
    many = [backend(listener=f"lbl-{number}") for number in range(AT_ONCE + 1)]
    planned = plan_weights(seen(*many), NOW)

    assert len(planned.weights) == len(planned.memory) == AT_ONCE


def test_no_more_weights_are_remembered_than_a_configmap_can_have() -> None:
    another, *many = [backend(listener=f"lbl-{number:08}") for number in range(MOST + 1)]
    full = {each.key: FormerWeight("n" * 253, 100, NOW, NOW, "u" * 36) for each in many}
    assert len(msgspec.json.encode(full)) < 1 << 20
    planned = plan_weights(seen(another, *many, memory=full), NOW)

    assert planned.memory.keys() == full.keys()


def test_what_is_left_to_restore_is_not_forgotten() -> None:
    many = [backend(0, listener=f"lbl-{number}") for number in range(AT_ONCE + 1)]
    old = {each.key: FormerWeight("n1", 10, NOW - 2 * LATE) for each in many}
    planned = plan_weights(seen(*many, memory=old, detached=False), NOW)

    assert len(planned.weights) == AT_ONCE
    assert planned.memory.keys() == old.keys()


def test_a_restoration_is_remembered_before_it_is_written_and_repeated_until_it_is_read() -> None:
    planned = plan_weights(seen(backend(0), memory=known(), detached=False), NOW)

    assert planned.weights == {backend(0): 10}
    assert planned.memory[FIRST_KEY].restored == NOW


@pytest.mark.parametrize(("ago", "is_kept"), [(LATE, True), (LATE + SECOND, False)], ids=["young", "old"])
@pytest.mark.parametrize("is_there", [True, False], ids=["restored", "deregistered"])
def test_a_weight_is_forgotten_when_no_0_can_arrive_any_more(
    ago: timedelta, is_kept: bool, is_there: bool
) -> None:
    backends = [backend(10)] if is_there else []
    planned = plan_weights(seen(*backends, memory=known(ago=ago), detached=False), NOW)

    assert (FIRST_KEY in planned.memory) == is_kept
    assert planned.weights == {}


def test_a_node_is_detached_since_all_of_its_backends_have_0() -> None:
    some = dict(summed_up("lb-1", seen(backend(0), backend(1, listener="lbl-2")), {}, NOW))
    every = dict(summed_up("lb-1", seen(backend(0), backend(0, listener="lbl-2")), {"n1": NOW - SECOND}, NOW))

    assert some["n1"].detached_since is None
    assert "has not reported weight 0" in some["n1"].detach_doubt
    assert every["n1"].detached_since == NOW - SECOND
    assert not every["n1"].detach_doubt


@pytest.mark.parametrize(("restored", "is_off"), [(LATE, False), (LATE + SECOND, True), (None, True)])
def test_a_node_is_not_detached_while_its_former_weight_may_still_arrive(
    restored: timedelta | None, is_off: bool
) -> None:
    found = dict(summed_up("lb-1", seen(backend(0), memory=known(restored=restored)), {}, NOW))

    assert (found["n1"].detached_since is not None) == is_off


def test_a_load_balancer_without_nodes_confirms_nothing() -> None:
    pods = backend(instance="", address="10.7.7.7")
    found = dict(summed_up("lb-1", seen(pods), {}, NOW))
    none = dict(summed_up("lb-1", seen(backend(instance="ins-2")), {}, NOW))

    assert "has no backend that is a node of the cluster" in found["n1"].detach_doubt
    assert not none["n1"].detach_doubt


def test_backends_that_get_traffic_are_to_be_healthy() -> None:
    there = BalancerSnapshot([backend(), backend(0, listener="lbl-2")], {}, {"n1": FIRST}, {}, ["n1"])

    assert unhealthy("n1", there, {FIRST_KEY: False, backend(listener="lbl-2").key: False}) == 1
    assert unhealthy("n1", there, {FIRST_KEY: True}) == 0


ONE, TWO = ({"lbl-1//ins-1:80": FormerWeight("n1", weight, NOW)} for weight in (10, 20))


@pytest.fixture
def api() -> FakeAPI:
    fake = FakeAPI()
    fake.put(NAMESPACES, {"metadata": {"name": "drawbridge"}})
    return fake


def store(api: FakeAPI) -> WeightStore:
    return WeightStore(api.client(), "drawbridge")


def test_what_is_remembered_is_there_for_the_next_leader(api: FakeAPI) -> None:
    store(api).put(BALANCER, ONE)
    other = store(api)
    assert other.memory(BALANCER) == ONE
    assert other.load_balancers() == [BALANCER]

    other.put(BALANCER, {})
    assert store(api).load_balancers() == []
    assert api.list(CONFIG_MAPS) == []


@pytest.mark.parametrize("memory", [TWO, {}], ids=["another weight", "nothing"])
def test_a_former_leader_does_not_overwrite_what_the_next_one_remembers(api: FakeAPI, memory: object) -> None:
    former = store(api)
    former.put(BALANCER, ONE)
    next_one = store(api)
    next_one.memory(BALANCER)
    next_one.put(BALANCER, TWO)
    with pytest.raises(KubeError):
        former.put(BALANCER, memory)  # type: ignore[arg-type]

    assert store(api).memory(BALANCER) == former.memory(BALANCER) == TWO


def unreadable(load_balancer: str) -> dict[str, object]:
    name = f"drawbridge-weights-{load_balancer}"
    metadata = {"name": name, "namespace": "drawbridge", "labels": {WEIGHTS_OF: load_balancer}}
    return {"metadata": metadata, "data": {KEY: "{"}}


def test_what_cannot_be_read_is_an_error_for_its_load_balancer_alone(api: FakeAPI) -> None:
    store(api).put(BALANCER, ONE)
    api.put(CONFIG_MAPS, unreadable("lb-1"))
    no_zone = {KEY: '{"a":{"node":"n1","weight":10,"at":"2026-07-01T08:00:00"}}'}
    api.put(CONFIG_MAPS, unreadable("lb-2") | {"data": no_zone})
    api.put(CONFIG_MAPS, unreadable("lb-3") | {"data": {KEY: f'{{"a":{{"deep":{DEEP}}}}}'}})
    held = store(api)

    assert held.memory(BALANCER) == ONE
    assert {*held.load_balancers()} == {BALANCER, "lb-1", "lb-2", "lb-3"}
    for each in ("lb-1", "lb-2", "lb-3"):
        with pytest.raises(Unreadable, match=f"drawbridge-weights-{each} is unreadable"):
            held.memory(each)
    api.remove(CONFIG_MAPS, "drawbridge-weights-lb-1", "drawbridge")
    assert held.memory("lb-1") == {}


def test_an_unreadable_memory_holds_up_the_rollouts_at_its_load_balancer_until_it_is_corrected() -> None:
    here = rolling("n1", "n2")
    here.api.fake.put(CONFIG_MAPS, unreadable(BALANCER))
    other = ClbLeader(here.api, before=here)
    for _ in range(30):
        other.step()
    assert other.has("proxy:1")
    assert {*other.weight_by_key.values()} == {WEIGHT}
    [waiting, *_] = other.status["waitingFor"]
    assert f"drawbridge-weights-{BALANCER} is unreadable" in waiting["reason"]

    other.api.fake.remove(CONFIG_MAPS, f"drawbridge-weights-{BALANCER}", "drawbridge")
    other.run(lambda: other.is_restored and other.has("proxy:2"))


def test_a_former_leader_with_an_old_cache_changes_no_weight_after_the_next_one() -> None:
    here = rolling("n1", "n2")
    here.run(lambda: not all(here.weight_by_key.values()))
    former, here.leads = here, False
    other = ClbLeader(here.api, before=former)
    for _ in range(20):
        other.step()
        with suppress(LeadershipLost):
            former.step()
        other.api.deliver()
    other.run(lambda: other.is_restored and other.has("proxy:2"))
