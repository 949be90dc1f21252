"""A refusal is the node's own until a second node is refused, too; no node blocks another."""

from __future__ import annotations

from typing import Any

import pytest

from controllers.anycast_ip.claim import CLUSTER_UUID, NODE_INSTANCE
from kube.errors import Conflict, ServerError
from tests.anycast_world import Lab, metric, open_lab, original, plenty
from tests.tables import table


def names(count: int) -> list[str]:
    return [f"n{number}" for number in range(count)]


def only(lab: Lab, *expected: str) -> bool:
    """Whether these nodes are the ones that are not open."""
    return {each.metadata.name for each in lab.nodes() if not lab.is_open(each.metadata.name)} == set(
        expected
    )


@pytest.mark.parametrize(
    "action", ["AllocateAddresses", "AssociateAddress", "CreateTags", "DescribeAddresses"]
)
def test_one_refused_instance_does_not_block_the_permitted_ones(action: str) -> None:
    refused = {"AllocateAddresses": "aia-node-name=bad", "CreateTags": "aia-node-name=bad"}.get(
        action, "ins-bad"
    )
    lab = Lab(plenty(denied_resources={action: [refused]}))
    lab.join("bad")
    lab.run_for(30)
    for name in names(20):
        lab.join(name)
    lab.run(lambda: only(lab, "bad"), 60, "all others open")
    lab.run_for(600)
    denied = sum(call.action == action and call.outcome != "OK" for call in lab.world.calls)
    assert denied <= 25  # doubling from 10 s to 5 minutes, and a few to split the batches
    assert any("not authorized" in message for _, message in lab.recorder.events)
    lab.knobs.denied_resources = {}
    lab.run(lab.all_open, 400, "open")


def test_nodes_that_wait_for_the_others_refusal_say_so() -> None:
    lab = Lab(plenty(denied=["AllocateAddresses"]))
    for name in names(20):
        lab.join(name)
    lab.run_for(120)

    about = {name for name in lab.recorder.about if name.startswith("n")}
    assert about == set(names(20))
    assert lab.count("AllocateAddresses") <= 12 + 6
    lab.knobs.denied = []
    lab.run(lab.all_open, 400, "open")


@pytest.mark.parametrize("action", ["DisassociateAddress", "ReleaseAddresses", "DeleteTags"])
def test_one_address_that_must_not_be_given_back_does_not_block_the_others(action: str) -> None:
    lab = open_lab("bad", *names(20))
    (bad,) = lab.on("bad")
    lab.knobs.denied_resources = {action: [bad.id, "aia-node-name=bad"]}
    lab.leave("bad")
    lab.run_for(20)
    lab.leave(*names(20))
    lab.run(lambda: {claim.node for claim in lab.claims.claims.values()} == {"bad"}, 120, "all others gone")
    lab.run_for(60)

    assert any("bad" in message and "not authorized" in message for _, message in lab.recorder.events)
    lab.knobs.denied_resources = {}
    lab.run(lab.is_clean, 400, "clean")
    assert lab.elastic() == []


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(Conflict(409, "Conflict", "another client wrote"), id="conflict"),
        pytest.param(ServerError(500, "InternalError", "a webhook failed"), id="refused by a webhook"),
    ],
)
def test_one_claim_that_cannot_be_written_does_not_block_a_batch_of_releases(error: Exception) -> None:
    lab = open_lab("bad", *names(10))
    bad = f"anycast-ip-{lab.node('bad').metadata.uid}"

    def refuse(name: str, body: Any) -> None:
        if name == bad and '"releasing":true' in body["data"]["claim"]:
            raise error

    lab.kube.before_write = refuse
    lab.leave("bad", *names(10))
    lab.run(lambda: {claim.node for claim in lab.claims.claims.values()} == {"bad"}, 120, "all others gone")
    lab.run_for(30)
    assert bad in lab.recorder.about or isinstance(error, Conflict)
    lab.kube.before_write = lambda name, body: None
    lab.run(lab.is_clean, 120, "clean")


def test_at_the_limit_of_tag_values_as_many_nodes_are_served_as_there_are_values() -> None:
    lab = Lab(plenty(tag_values=20))
    for name in names(25):
        lab.join(name)
    lab.run(lambda: sum(lab.is_open(name) for name in names(25)) == 20, 120, "20 of 25 open")
    lab.run_for(300)
    assert lab.count("CreateTags") <= 60
    assert any("TagValue" in message for _, message in lab.recorder.events)
    lab.leave(*filter(lab.is_open, names(20)))
    lab.run(lab.all_open, 700, "the others open with the values of those that left")


def test_a_tag_value_that_another_cluster_uses_holds_no_claim() -> None:
    lab = Lab()
    tags = original("n1") | {CLUSTER_UUID: "another", NODE_INSTANCE: "ins-other"}
    theirs = lab.add_address("ins-other", tags=tags)
    lab.world.made_tags["aia-node-name", "n1"] = lab.clock()
    lab.opened("n1")
    lab.leave("n1")
    lab.run(lambda: lab.is_clean([theirs]), 300, "clean")

    assert lab.tag_values("aia-node-name") == {"n1"}
    assert "ins-n1" not in lab.tag_values("aia-node-ins-id")
    assert theirs in lab.world.addresses


def test_a_node_whose_address_is_unbound_again_each_time_says_so() -> None:
    lab = Lab(plenty(bind_fails=1.0))
    lab.join()
    lab.run(lambda: lab.said() == ("False", "FailedAssociateAnycastIp"), 120, "said")
    lab.run_for(1800)
    assert lab.recorder.reasons.count("FailedAssociateAnycastIp") == 1
    lab.knobs.bind_fails = 0.0
    lab.run(lambda: lab.is_open("n1"), 600, "open")


@table(
    "code",
    {"the cloud answers nothing": "InternalError", "it is not permitted": "UnauthorizedOperation"},
)
def test_nodes_whose_addresses_cannot_be_read_are_counted(code: str) -> None:
    lab = open_lab("n1", "n2")
    lab.knobs.errors = {"DescribeAddresses": code}
    lab.leave("n1")
    lab.join("n3")
    lab.run_for(200)

    counted = {state: metric("nodes", state=state) for state in ("open", "leaving", "waiting")}
    assert counted == {"open": 1, "leaving": 1, "waiting": 1}


@table(
    "code, seconds",
    {
        "accepted, and not delivered": ("UnsupportedOperation.DeliveryFailed", 120),
        "its tags are missing": ("InvalidParameterValue.TagNotExisted", 60),
    },
)
def test_an_order_that_fails_each_time_is_repeated_seldom_and_said(code: str, seconds: int) -> None:
    lab = Lab(plenty(errors={"AllocateAddresses": code}))
    lab.join()
    lab.run_for(600)
    assert lab.count("AllocateAddresses") <= 30
    assert lab.said() == ("False", "FailedAllocateAnycastIp")
    assert lab.recorder.reasons.count("FailedAllocateAnycastIp") == 1
    lab.knobs.errors = {}
    lab.run(lambda: lab.is_open("n1"), seconds, "open")


@pytest.mark.parametrize("action", ["DisassociateAddress", "ReleaseAddresses"])
def test_what_the_cloud_accepts_and_does_not_do_is_tried_seldom_and_said(action: str) -> None:
    lab = Lab()
    lab.opened()
    lab.sender.instead = lambda called, params: {"TaskId": "1"} if called == action else None
    lab.leave()
    lab.run_for(1800)
    assert lab.count(action) <= 15
    assert lab.recorder.reasons.count("FailedReleaseAnycastIp") == 1

    lab.sender.instead = lambda called, params: None
    lab.run(lab.is_clean, 600, "released")
