"""State in ConfigMaps is never written over what was not seen, and outlives lost answers and deletions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dev.fake_api import FakeAPI, Reply, Request, refusal
from kube.errors import AlreadyExists, Conflict, Unreachable
from kube.resources import CONFIG_MAPS
from kube.store import NotOurs, Store
from kube.types import ConfigMap

NAME, LABELS = "state", {"example.com/state": "ours"}


@pytest.fixture
def api() -> FakeAPI:
    fake = FakeAPI()
    fake.ensure_namespace("drawbridge")
    return fake


def store(api: FakeAPI) -> Store[ConfigMap]:
    found = Store(api.client(), "drawbridge", ConfigMap)
    found.list("example.com/state=ours")
    return found


def put(held: Store[ConfigMap], text: str) -> None:
    assert held.write(NAME, LABELS, data={"a": text}).data == {"a": text}


def content(api: FakeAPI) -> list[str]:
    return [each["data"]["a"] for each in api.list(CONFIG_MAPS)]


CHANGES: list[Callable[[Store[ConfigMap]], object]] = [
    lambda held: put(held, "2"),
    lambda held: held.delete(NAME),
]


@pytest.mark.parametrize("change", CHANGES, ids=["a write", "a deletion"])
@pytest.mark.parametrize("known", [True, False])
def test_what_another_leader_wrote_is_changed_only_after_it_was_seen(
    api: FakeAPI, change: Callable[[Store[ConfigMap]], object], known: bool
) -> None:
    former = store(api)
    if known:
        put(former, "0")
    put(store(api), "1")
    if known or change is CHANGES[0]:
        with pytest.raises(Conflict if known else AlreadyExists):
            change(former)
        assert content(api) == ["1"]
    change(former)

    assert content(api) == (["2"] if change is CHANGES[0] else [])


def test_a_write_whose_answer_was_lost_is_refused_once_when_it_comes_again(api: FakeAPI) -> None:
    def lost(_request: Request, _reply: Reply) -> None:
        api.after = lambda request, reply: None
        raise Unreachable("the answer was lost")

    held = store(api)
    api.after = lost
    for error in (Unreachable, AlreadyExists):
        with pytest.raises(error):
            put(held, "1")
    put(held, "2")

    assert content(api) == ["2"]


@pytest.mark.parametrize("code", [404, 409], ids=["NotFound", "Conflict, as in Kubernetes 1.30"])
def test_what_another_client_deleted_is_created_again(api: FakeAPI, code: int) -> None:
    held = store(api)
    put(held, "1")
    api.remove(CONFIG_MAPS, NAME, "drawbridge")
    api.fault = lambda call: refusal(code, "") if call.method == "PUT" else None
    put(held, "2")
    assert content(api) == ["2"]

    api.remove(CONFIG_MAPS, NAME, "drawbridge")
    held.delete(NAME)
    assert held.read(NAME) is None


def test_labels_and_annotations_of_others_outlive_our_writes(api: FakeAPI) -> None:
    held = store(api)
    put(held, "1")
    theirs = {
        "labels": {"team": "edge"},
        "annotations": {"replicate": "true"},
        "finalizers": ["example.com/f"],
    }
    api.client().patch(CONFIG_MAPS, NAME, {"metadata": theirs}, "drawbridge")
    held.read(NAME)
    put(held, "2")

    (found,) = api.list(CONFIG_MAPS)
    assert {name: found["metadata"][name] for name in theirs} == theirs | {
        "labels": {"team": "edge"} | LABELS
    }


def test_a_config_map_of_another_client_is_not_taken_for_ours(api: FakeAPI) -> None:
    api.put(CONFIG_MAPS, {"metadata": {"name": NAME, "namespace": "drawbridge"}})
    with pytest.raises(NotOurs, match=r"ConfigMap drawbridge/state has no label example.com/state: rename"):
        store(api).read(NAME, *LABELS)
