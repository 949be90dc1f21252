"""Former weights survive their process, and only the one that leads writes them."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest

from api.ingress_daemonset import WEIGHTS_OF
from controllers.ingress_daemonset.load_balancers import FormerWeight
from controllers.ingress_daemonset.weights import KEY, Unreadable, WeightStore
from dev.fake_api import NAMESPACES, FakeAPI
from kube.errors import KubeError
from kube.leader_election import LeadershipLost
from kube.resources import CONFIG_MAPS
from tests.factories import NOW
from tests.ingress_daemonset_clb_world import BALANCER, WEIGHT, ClbLeader, rolling

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
    held = store(api)

    assert held.memory(BALANCER) == ONE
    assert {*held.load_balancers()} == {BALANCER, "lb-1"}
    with pytest.raises(Unreadable, match="drawbridge-weights-lb-1 is unreadable"):
        held.memory("lb-1")
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
    [waiting, *_] = other.api.objects["IngressDaemonSet", "edge/web"]["status"]["waitingFor"]
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


def test_the_memory_is_one_line_that_a_person_can_read(api: FakeAPI) -> None:
    store(api).put(BALANCER, ONE)
    (found,) = api.list(CONFIG_MAPS)

    assert found["metadata"]["labels"] == {WEIGHTS_OF: BALANCER}
    assert msgspec.json.decode(found["data"][KEY])["lbl-1//ins-1:80"]["weight"] == 10
