"""All addresses that nodes have or may get are in a ConfigMap, which is written when they change, and only then."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from api.anycast_ip import (
    ADDRESS,
    ADDRESS_ID,
    ALLOW_LIST_LABEL,
    BOUND,
    IDLE,
    IN_USE,
    JSON,
    PROMISED,
    TEXT,
    Entry,
)
from controllers.anycast_ip.allow_list import entries
from controllers.anycast_ip.claim import claim_for
from kube.errors import Unreachable
from settings.anycast_ip import AllowList
from tests.anycast_world import SETTINGS, Lab, a_node, failing, metric, plenty
from tests.factories import NOW
from tests.test_anycast_pool import idle, kept, node, pooling

NAME = "anycast-ips"
LISTED = {"allow_list": AllowList.model_validate({"enabled": True, "configMap": NAME})}


def lab_with(count: int = 0, idle: int = 0, **knobs: Any) -> Lab:
    return Lab(plenty(**knobs), pooling(count, idle, **LISTED))


def data_in(lab: Lab) -> dict[str, str]:
    found: dict[str, str] = lab.kube.objects["configmaps", NAME]["data"]
    return found


def published(lab: Lab) -> dict[str, str]:
    """States by address; empty without the ConfigMap."""
    if ("configmaps", NAME) not in lab.kube.objects:
        return {}
    found = {each["address"]: each["state"] for each in json.loads(data_in(lab)[JSON])}
    assert data_in(lab)[TEXT].splitlines() == sorted(found)
    return found


def writes(lab: Lab) -> list[str]:
    """What is written to it from now on, line by line."""
    seen: list[str] = []

    def note(name: str, body: Any) -> None:
        if name == NAME:
            seen.append(body["data"][TEXT])

    lab.kube.before_write = note
    return seen


SHOWN = {ADDRESS_ID: "eip-2", ADDRESS: "9.0.0.2", BOUND: "u2/eip-2"}
OPEN = a_node(name="n2", uid="u2", annotations=SHOWN)
MINE = replace(claim_for(OPEN, SETTINGS, NOW), address="eip-2")


@pytest.mark.parametrize(
    ("claims", "nodes", "expected"),
    [
        pytest.param([], {}, [], id="nothing"),
        pytest.param([MINE], {"u2": OPEN}, [("9.0.0.2", "n2", IN_USE)], id="an open node"),
        pytest.param([MINE], {"u2": node()}, [("9.0.0.2", "n2", PROMISED)], id="a node that waits"),
        pytest.param([MINE], {}, [("9.0.0.2", "n2", PROMISED)], id="a node that is gone, not yet released"),
        pytest.param([kept(1)], {}, [("9.0.0.1", "", IDLE)], id="idle"),
        pytest.param([MINE, kept(1)], {"u2": OPEN}, [("9.0.0.1", "", IDLE), ("9.0.0.2", "n2", IN_USE)], id="sorted"),
        pytest.param([replace(MINE, releasing=True)], {}, [], id="being released"),
        pytest.param([replace(MINE, address="")], {"u2": node()}, [], id="ordered only"),
        pytest.param([replace(MINE, address="eip-3")], {"u2": node()}, [], id="without a known IP"),
        pytest.param([MINE, kept(1, address="eip-2")], {}, [("9.0.0.2", "n2", PROMISED)], id="once"),
        pytest.param([], {"u2": OPEN}, [], id="shown by a node only"),
        pytest.param([replace(MINE, uid="orphan-eip-2")], {}, [], id="an orphan"),
    ],
)  # fmt: skip
def test_the_entries(claims: list[Any], nodes: dict[str, Any], expected: list[tuple[str, str, str]]) -> None:
    found = listed(claims[::-1], nodes)

    assert [(each.address, each.node, each.state) for each in found] == expected


LISTED_ONCE = Entry(address="9.0.0.2", id="eip-2", node="n2", state=IN_USE, since=NOW - timedelta(hours=1))


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        pytest.param([], NOW, id="it is new"),
        pytest.param([LISTED_ONCE], LISTED_ONCE.since, id="as before"),
        pytest.param([replace(LISTED_ONCE, state=IDLE, node="")], LISTED_ONCE.since, id="in another state"),
        pytest.param([replace(LISTED_ONCE, address="9.0.0.9")], NOW, id="with another IP"),
        pytest.param([replace(LISTED_ONCE, since=NOW + timedelta(days=9))], NOW, id="in the future"),
    ],
)
def test_since_when_an_address_is_listed(before: list[Entry], expected: datetime) -> None:
    (found,) = listed([MINE], {"u2": OPEN}, *before)

    assert found.since == expected


def listed(claims: list[Any], nodes: dict[str, Any], *before: Entry) -> tuple[Entry, ...]:
    return entries(claims, nodes, {"eip-1": "9.0.0.1", "eip-2": "9.0.0.2"}, before, NOW)


@pytest.mark.parametrize(
    ("claims", "shown", "expected"),
    [
        pytest.param([], OPEN, [LISTED_ONCE], id="its claim was deleted"),
        pytest.param([], node(), [], id="its node is not open"),
        pytest.param([], None, [], id="its node is gone"),
        pytest.param([replace(MINE, releasing=True)], OPEN, [], id="it is being released"),
        pytest.param([replace(kept(1, address="eip-2"), releasing=True)], OPEN, [], id="another claim releases it"),
    ],
)  # fmt: skip
def test_what_an_open_node_uses_stays_listed_without_a_claim(
    claims: list[Any], shown: Any, expected: list[Entry]
) -> None:
    assert listed(claims, {"u2": shown} if shown else {}, LISTED_ONCE) == tuple(expected)


def test_it_follows_the_addresses_from_the_order_to_the_release() -> None:
    lab = lab_with(count=1)
    seen = writes(lab)
    lab.opened("n1", "n2")
    lab.run_for(10)
    one, two = lab.on("n1")[0].ip, lab.on("n2")[0].ip
    assert published(lab) == {one: "in use", two: "in use"}
    lab.leave("n1")
    lab.run(lambda: published(lab).get(one) == "idle", 30, "idle")
    assert published(lab)[two] == "in use"
    lab.leave("n2")
    lab.run(lambda: len(lab.elastic()) == 1, 60, "released")
    lab.run_for(10)
    assert published(lab) == {one: "idle"}
    before = len(seen)
    lab.run_for(3600)

    assert len(seen) == before
    first = next(number for number, each in enumerate(seen) if one in each)
    assert all(one in each for each in seen[first:])


def test_what_another_client_changes_or_deletes_is_written_again() -> None:
    lab = lab_with()
    lab.opened("n1")
    lab.run(lambda: "in use" in published(lab).values(), 30, "listed")
    before = published(lab)
    raw = dict(lab.kube.objects["configmaps", NAME])
    lab.kube.place("configmaps", raw | {"data": {TEXT: "6.6.6.6\n"}})
    lab.run(lambda: JSON in data_in(lab), 400, "repaired")
    assert published(lab) == before
    del lab.kube.objects["configmaps", NAME]
    lab.run(lambda: published(lab) == before, 400, "created again")


def test_what_a_kubelet_writes_to_its_node_does_not_change_the_list() -> None:
    lab = lab_with(count=1)
    lab.opened("n1", "n2")
    lab.leave("n2")
    lab.run(lambda: "idle" in published(lab).values(), 60, "idle")
    lab.run_for(5)
    before = published(lab)
    (spare,) = idle(lab)
    seen = writes(lab)
    for address in (lab.on("n1")[0].id, spare):
        lab.edit("n1", {"metadata": {"annotations": {ADDRESS_ID: address, ADDRESS: "6.6.6.6"}}})
        lab.run_for(20)
        lab.start()
        lab.run_for(20)

    assert published(lab) == before
    assert not any("6.6.6.6" in each for each in seen)


def test_how_long_it_could_not_be_written_is_a_metric() -> None:
    lab = lab_with()
    lab.opened("n1")
    lab.run_for(10)
    assert metric("allow_list_behind_seconds") == 0
    assert metric("allow_list_addresses") == 1
    lab.kube.before_write = failing(NAME, Unreachable("reset"))
    lab.opened("n2")
    lab.run_for(200)
    assert 100 < metric("allow_list_behind_seconds") <= 200
    lab.kube.before_write = lambda name, body: None
    lab.run_for(60)
    assert metric("allow_list_behind_seconds") == 0
    assert metric("allow_list_addresses") == 2


def test_a_config_map_of_another_kind_is_left_alone() -> None:
    lab = lab_with()
    theirs = {"metadata": {"name": NAME, "labels": {"app": "theirs"}}, "data": {"config.yaml": "a: b"}}
    lab.kube.place("configmaps", theirs)
    lab.opened("n1")
    lab.run_for(600)
    assert data_in(lab) == {"config.yaml": "a: b"}
    assert lab.all_open()
    theirs["metadata"]["labels"] = {ALLOW_LIST_LABEL: "anycast-ip"}
    lab.kube.place("configmaps", theirs)
    lab.run(lambda: TEXT in data_in(lab), 60, "adopted")
