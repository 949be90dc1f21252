"""The cloud fails while nodes come and go: one address for each living node, none for the dead, none forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from lab.session import Lab
from tests.chaos import anycast
from tests.cluster.anycast_judge import Judge, is_open


@pytest.mark.parametrize(
    "knobs",
    [
        pytest.param({"throttled": 0.3}, id="a third of the calls is throttled"),
        pytest.param({"lost": 0.1}, id="a tenth of the answers is lost"),
    ],
)
def test_nodes_come_and_go_while_the_cloud_fails(cloud_lab: Lab, nodes: Judge, knobs: dict[str, Any]) -> None:
    first = anycast.residents(cloud_lab, nodes)

    with cloud_lab.cloud.turned(**knobs):
        others = anycast.join(cloud_lab, 12)
        anycast.leave(cloud_lab, first[2:])
        nodes.await_open(others)
        nodes.await_end()

    assert nodes.too_early == []


def test_orders_whose_answers_are_lost_bring_one_address_each(cloud_lab: Lab, nodes: Judge) -> None:
    with cloud_lab.cloud.turned(lost=1.0, faulty_actions=["AllocateAddresses"]):
        names = anycast.join(cloud_lab, 3)
        cloud_lab.wait(lambda: lost_orders(cloud_lab) >= 3, 60, "the answers to three orders to be lost")

    nodes.await_open(names)
    nodes.await_end()
    assert nodes.too_early == []


def lost_orders(lab: Lab) -> int:
    return sum(
        call.action == "AllocateAddresses" and not call.delivered and call.outcome == "OK"
        for call in lab.cloud.calls()
    )


def test_nodes_come_and_go_through_bursts_of_error_pages(cloud_lab: Lab, nodes: Judge) -> None:
    first = anycast.residents(cloud_lab, nodes)
    anycast.leave(cloud_lab, first[2:])
    others = anycast.join(cloud_lab, 12)

    for knobs in ({"server_errors": 1.0}, {"html": 1.0}, {"server_errors": 1.0, "errors_after_commit": True}):
        with cloud_lab.cloud.turned(**knobs):
            await_struck(cloud_lab, 5)

    nodes.await_open(others)
    nodes.await_end()
    assert nodes.too_early == []


def await_struck(lab: Lab, count: int) -> None:
    """Until so many more calls have been answered with a page of HTML."""

    def struck() -> int:
        return sum(call.outcome in ("HTTP 502", "HTML") or not call.delivered for call in lab.cloud.calls())

    enough = struck() + count
    lab.wait(lambda: struck() >= enough, 60, f"{count} calls to be answered with pages of HTML")


def test_nodes_that_find_the_quota_used_up_open_when_it_is_raised(cloud_lab: Lab, nodes: Judge) -> None:
    nodes.await_end()
    room = len(nodes.world().addresses) + 6
    with cloud_lab.cloud.turned(quota_total=room, quota_daily=100_000):
        names = anycast.join(cloud_lab, 12)
        cloud_lab.wait(lambda: opened(nodes, names) == 6, 60, "as many nodes to open as there is room for")
        cloud_lab.wait(lambda: refused(cloud_lab), 60, "the quota to be in the way")
        assert len(nodes.world().addresses) == room

    nodes.await_open(names)
    nodes.await_end()
    assert nodes.too_early == []
    assert refused(cloud_lab) < 20


def opened(nodes: Judge, names: list[str]) -> int:
    return sum(is_open(node) and node.metadata.name in names for node in nodes.nodes)


def refused(lab: Lab) -> int:
    return sum(call.outcome == "AddressQuotaLimitExceeded" for call in lab.cloud.calls())


BAD = "ins-0badbad0"
ACTIONS = ("AssociateAddress", "DisassociateAddress", "ReleaseAddresses")


def denied(lab: Lab) -> int:
    return sum(call.outcome == "AuthFailure.UnauthorizedOperation" for call in lab.cloud.calls())


def test_an_instance_that_the_keys_may_not_bind_holds_up_no_other(cloud_lab: Lab, nodes: Judge) -> None:
    (bad,) = anycast.names_of(1)
    before = denied(cloud_lab)
    with cloud_lab.cloud.turned(denied_resources={"AssociateAddress": [BAD]}):
        anycast.join_one(cloud_lab, bad, BAD)
        cloud_lab.wait(lambda: denied(cloud_lab) > before, 60, "the bind to be refused")
        others = anycast.join(cloud_lab, 20)
        nodes.await_open(others)
        assert denied(cloud_lab) - before <= 5

    anycast.leave(cloud_lab, [bad])
    nodes.await_end()
    assert nodes.too_early == []


def test_an_address_that_the_keys_may_not_give_back_holds_up_no_other(cloud_lab: Lab, nodes: Judge) -> None:
    first = anycast.join(cloud_lab, 8)
    nodes.await_open(first)
    bad = first[0]
    with cloud_lab.cloud.turned(denied_resources={action: [f"aia-node-name={bad}"] for action in ACTIONS}):
        anycast.leave(cloud_lab, first)
        cloud_lab.wait(
            lambda: left_of(nodes, first) == {bad}, 90, "the addresses of all others to be released"
        )

    nodes.await_end()
    assert nodes.too_early == []


def left_of(nodes: Judge, names: list[str]) -> set[str]:
    tagged = {each.tags.get("aia-node-name", "") for each in nodes.world().addresses}
    return tagged & set(names)
