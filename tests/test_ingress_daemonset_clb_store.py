"""Former weights survive their process, and only the one that leads writes them."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest

from controllers.ingress_daemonset.clb.planner import Remembered
from controllers.ingress_daemonset.clb.store import KEY, WeightStore
from dev.fake_api import NAMESPACES, FakeAPI
from kube.errors import KubeError
from kube.leader_election import LeadershipLost
from kube.resources import CONFIG_MAPS
from tests.factories import NOW
from tests.ingress_daemonset_clb_world import BALANCER, ClbLeader, rolling
from webhook.ingress_daemonset import WEIGHTS_OF

ONE, TWO = ({"lbl-1//ins-1:80": Remembered("n1", weight, NOW)} for weight in (10, 20))


@pytest.fixture
def api() -> FakeAPI:
    fake = FakeAPI()
    fake.put(NAMESPACES, {"metadata": {"name": "drawbridge"}})
    return fake


def store(api: FakeAPI) -> WeightStore:
    found = WeightStore(api.client(), "drawbridge", lambda: None)
    found.load()
    return found


def test_what_is_remembered_is_there_for_the_next_leader(api: FakeAPI) -> None:
    store(api).put(BALANCER, ONE)
    other = store(api)
    assert other.memory(BALANCER) == ONE
    assert other.load_balancers == [BALANCER]

    other.put(BALANCER, {})
    assert store(api).load_balancers == []
    assert api.list(CONFIG_MAPS) == []


@pytest.mark.parametrize("memory", [TWO, {}], ids=["another weight", "nothing"])
def test_a_former_leader_does_not_overwrite_what_the_next_one_remembers(api: FakeAPI, memory: object) -> None:
    former = store(api)
    former.put(BALANCER, ONE)
    next_one = store(api)
    next_one.put(BALANCER, TWO)
    with pytest.raises(KubeError):
        former.put(BALANCER, memory)  # type: ignore[arg-type]

    assert store(api).memory(BALANCER) == former.memory(BALANCER) == TWO


def test_a_former_leader_that_knew_of_nothing_creates_no_second_one(api: FakeAPI) -> None:
    former, next_one = store(api), store(api)
    next_one.put(BALANCER, ONE)
    with pytest.raises(KubeError):
        former.put(BALANCER, TWO)

    assert store(api).memory(BALANCER) == ONE


def test_one_that_does_not_lead_writes_nothing(api: FakeAPI) -> None:
    def lost() -> None:
        raise LeadershipLost("another leads")

    former = WeightStore(api.client(), "drawbridge", lost)
    with pytest.raises(LeadershipLost):
        former.put(BALANCER, ONE)
    assert api.list(CONFIG_MAPS) == []


def test_what_cannot_be_read_is_an_error_that_says_so(api: FakeAPI) -> None:
    metadata = {"name": "drawbridge-weights-lb-1", "namespace": "drawbridge", "labels": {WEIGHTS_OF: "lb-1"}}
    api.put(CONFIG_MAPS, {"metadata": metadata, "data": {KEY: "{"}})

    with pytest.raises(ValueError, match="drawbridge-weights-lb-1 is unreadable"):
        store(api)


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
    other.run(lambda: other.is_restored and {*other.image_by_node().values()} == {"proxy:2"})


def test_the_memory_is_one_line_that_a_person_can_read(api: FakeAPI) -> None:
    store(api).put(BALANCER, ONE)
    (found,) = api.list(CONFIG_MAPS)

    assert found["metadata"]["labels"] == {WEIGHTS_OF: BALANCER}
    assert msgspec.json.decode(found["data"][KEY])["lbl-1//ins-1:80"]["weight"] == 10
