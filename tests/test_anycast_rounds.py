"""A node gets one address, opens when it is bound, and leaves nothing behind, whatever happens on the way."""

from __future__ import annotations

import msgspec
import pytest

from api.anycast_ip import (
    ADDRESS,
    ADDRESS_ID,
    BOUND,
    OPEN,
    TAINT,
    is_tainted,
    transitions_of,
    with_transition,
)
from controllers.anycast_ip.memory import Line
from dev.lab.cloud import Knobs
from kube.types import Node
from tests.anycast_world import SETTINGS, Lab, metric


def test_a_node_opens_when_its_address_is_bound_and_leaves_nothing_behind() -> None:
    lab = Lab()
    lab.opened(seconds=30)
    (address,) = lab.on()
    assert address.name == "cls-abc-aia-00000001-000"
    assert metric("nodes", state="open") == 1
    lab.leave()
    lab.run(lab.is_clean, 60, "clean")

    assert lab.elastic() == []
    assert lab.tag_values("aia-node-name") == lab.tag_values("aia-node-ins-id") == set()


@pytest.mark.slow
def test_a_quiet_cluster_costs_a_page_of_a_hundred_addresses_for_each_sweep() -> None:
    lab = Lab()
    for number in range(150):
        lab.join(f"n{number}")
    lab.run(lab.all_open, 300, "open")
    lab.run_for(SETTINGS.resync_period)
    before = lab.count("DescribeAddresses"), lab.kube.writes
    lab.run_for(10 * SETTINGS.resync_period)

    assert lab.count("DescribeAddresses") - before[0] <= 10 * 2 + 2
    assert lab.kube.writes == before[1]


def test_other_taints_and_annotations_are_left_as_they_are() -> None:
    lab = Lab()
    lab.join()
    others = [
        {"key": "a", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"},
        {"key": "b", "effect": "NoSchedule"},
    ]
    taints = [others[0], msgspec.to_builtins(TAINT), others[1]]
    lab.edit("n1", {"spec": {"taints": taints}, "metadata": {"annotations": {"c": "d"}}})
    lab.run(lab.all_open, 30, "open")

    raw = lab.kube.objects["nodes", "n1"]
    (address,) = lab.on()
    assert raw["spec"]["taints"] == others
    (opened,) = transitions_of(lab.node())
    assert raw["metadata"]["annotations"] == {
        "c": "d",
        **with_transition(Node(), opened.at, OPEN, address.id),
        ADDRESS_ID: address.id,
        ADDRESS: address.ip,
        BOUND: f"{raw['metadata']['uid']}/{address.id}",
    }


def test_an_address_of_the_right_type_that_another_user_bound_is_taken_as_it_is_and_never_released() -> None:
    lab = Lab()
    theirs = lab.add_address("ins-n1")
    lab.opened()
    assert lab.node().metadata.annotations[ADDRESS_ID] == theirs
    lab.leave()
    lab.run(lambda: not lab.claims.claims, 30, "forgotten")
    lab.run_for(30)

    assert lab.count("AllocateAddresses", "DisassociateAddress", "ReleaseAddresses") == 0


def test_without_permissions_it_is_said_on_the_node_and_seldom_tried() -> None:
    lab = Lab(Knobs(denied=["DescribeAddresses"]))
    lab.join()
    lab.run_for(600)

    assert lab.recorder.reasons == ["FailedAllocateAnycastIp"], "once, whatever request it answers"
    assert "not authorized" in lab.recorder.events[0][1]
    assert lab.count("DescribeAddresses") <= 15


def test_a_taint_that_another_client_adds_meanwhile_is_not_written_over() -> None:
    lab = Lab()
    before = [lab.join()]
    lab.shown = lambda: before
    theirs = {"key": "theirs", "effect": "NoSchedule"}
    lab.edit("n1", {"spec": {"taints": [msgspec.to_builtins(TAINT), theirs]}})
    lab.run_for(30)
    assert is_tainted(lab.node())
    lab.shown = lab.nodes
    lab.run(lab.all_open, 60, "open")

    assert lab.kube.objects["nodes", "n1"]["spec"]["taints"] == [theirs]


def test_turns_are_taken_in_order_and_who_leaves_the_line_takes_none() -> None:
    queued: list[str] = []
    line = Line(1, queued.append)
    assert [line.enter(uid) for uid in ("a", "b", "c", "a")] == [True, False, False, True]
    line.leave("b")
    line.leave("a")
    assert queued == ["c"]
    assert (line.enter("a"), line.enter("c")) == (False, True)
    line.leave("c")
    line.leave("a")

    assert (queued, line.enter("b")) == (["c", "a"], True)
