"""What is next for a node, from what is known: value by value."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from cloud.types import Address
from controllers.anycast_ip.claim import (
    INSTANCE_LABEL,
    Claim,
    claim_for,
    inherited,
    instance_of,
    order_for,
    renewed,
)
from controllers.anycast_ip.planner import marks, next_step
from controllers.anycast_ip.snapshot import Scene, cases
from controllers.anycast_ip.state import GONE, Case, Do, Known
from kube.types import Node, NodeSpec, ObjectMeta, Taint
from settings.anycast_ip import NEED_LABEL
from tests.anycast_world import SETTINGS, UUID, original
from tests.factories import NOW
from webhook.anycast_ip import ADDRESS_ID, TAINT

RELEASING = SETTINGS.model_copy(update={"release_on_label_removal": True})
LENIENT = SETTINGS.model_copy(update={"repair": False})


def node(
    *taints: Taint,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    uid: str = "u1",
) -> Node:
    wanted = {NEED_LABEL: "true"} if labels is None else labels
    metadata = ObjectMeta(name="n1", uid=uid, labels=wanted, annotations=annotations or {})
    return Node(metadata, NodeSpec("qcloud:///1/ins-n1", taints))


def address(status: str = "BIND", **fields: Any) -> Address:
    values = {"id": "eip-1", "ip": "1.2.3.4", "instance_id": "ins-n1", "type": "AnycastEIP"} | fields
    return Address(status=status, **values)


GATED, PLAIN = node(TAINT), node()
OPEN = node(annotations=marks(node(), address()))
ORIGINAL = node(annotations={ADDRESS_ID: "eip-1"})
UNLABELLED = node(labels={})
SUPER = node(TAINT, labels={NEED_LABEL: "true", "node.kubernetes.io/instance-type": "eklet"})
NAMELESS = Node(GATED.metadata, NodeSpec("", (TAINT,)))
MOVED = Node(replace(OPEN.metadata, labels={NEED_LABEL: "true", INSTANCE_LABEL: "ins-other"}), OPEN.spec)

ORDERED: Claim = claim_for(GATED, SETTINGS, NOW)
CLAIM = replace(ORDERED, address="eip-1")
THEIRS = replace(CLAIM, ours=False)
FREE = address("UNBIND", instance_id="")
ELSEWHERE = address(instance_id="ins-2")


def looked(*found: Address) -> Known:
    return Known(on_instance=found)


def seen(found: Any, **fields: Any) -> Known:
    return Known(seen=found, **fields)


@pytest.mark.parametrize(
    ("node", "claim", "known", "expected"),
    [
        pytest.param(UNLABELLED, None, Known(), Do.NOTHING, id="no label"),
        pytest.param(SUPER, None, Known(), Do.NOTHING, id="a super node"),
        pytest.param(NAMELESS, None, Known(), Do.NOTHING, id="no instance"),
        pytest.param(PLAIN, None, Known(), Do.CLOSE, id="slipped through"),
        pytest.param(ORIGINAL, None, Known(), Do.LOOK, id="of the original"),
        pytest.param(ORIGINAL, None, looked(), Do.CLOSE, id="of the original, without its address"),
        pytest.param(GATED, None, Known(), Do.LOOK, id="new"),
        pytest.param(GATED, None, looked(), Do.CLAIM, id="nothing on it"),
        pytest.param(GATED, None, looked(FREE), Do.CLAIM, id="one that was on it"),
        pytest.param(GATED, None, looked(address("BINDING")), Do.ADOPT, id="one is being bound to it"),
        pytest.param(GATED, None, looked(address("UNBINDING")), Do.LOOK, id="one is being unbound from it"),
        pytest.param(GATED, None, looked(address(type="EIP")), Do.LOOK, id="a foreign one on it"),
        pytest.param(GATED, None, looked(address(type="EIP"), address()), Do.ADOPT, id="two on it"),
        pytest.param(GATED, ORDERED, Known(doubt=False, tagged=False), Do.TAG, id="claimed"),
        pytest.param(GATED, ORDERED, Known(doubt=False), Do.ALLOCATE, id="tagged"),
        pytest.param(GATED, ORDERED, Known(), Do.ALLOCATE, id="perhaps ordered"),
        pytest.param(GATED, ORDERED, Known(refused=True), Do.FIND, id="token refused"),
        pytest.param(GATED, ORDERED, Known(refused=True, nothing_found=True), Do.RENEW, id="token of nothing"),
        pytest.param(GATED, CLAIM, Known(), Do.WATCH, id="not seen yet"),
        pytest.param(GATED, CLAIM, seen(address("CREATING")), Do.WATCH, id="being created"),
        pytest.param(GATED, CLAIM, seen(FREE), Do.BIND, id="free"),
        pytest.param(GATED, CLAIM, seen(FREE, recheck=True), Do.WATCH, id="free once"),
        pytest.param(GATED, CLAIM, seen(address("UNBIND", blocked=True)), Do.WATCH, id="free but blocked"),
        pytest.param(GATED, CLAIM, seen(address("BINDING")), Do.WATCH, id="instance shown too early"),
        pytest.param(GATED, CLAIM, seen(address()), Do.OPEN, id="bound"),
        pytest.param(GATED, CLAIM, seen(address("BIND_ENI")), Do.OPEN, id="bound to its interface"),
        pytest.param(GATED, CLAIM, seen(address(arrears=True)), Do.WATCH, id="bound but in arrears"),
        pytest.param(GATED, CLAIM, seen(ELSEWHERE), Do.RENEW, id="bound elsewhere"),
        pytest.param(GATED, CLAIM, seen(GONE), Do.RENEW, id="gone"),
        pytest.param(GATED, THEIRS, seen(GONE), Do.FORGET, id="theirs is gone"),
        pytest.param(GATED, THEIRS, seen(FREE), Do.FORGET, id="theirs is free"),
        pytest.param(PLAIN, CLAIM, seen(FREE), Do.CLOSE, id="untainted too early"),
        pytest.param(OPEN, CLAIM, Known(), Do.WATCH, id="open, not seen yet"),
        pytest.param(OPEN, CLAIM, seen(address()), Do.NOTHING, id="open"),
        pytest.param(OPEN, CLAIM, seen(FREE), Do.CLOSE, id="open, unbound"),
        pytest.param(OPEN, CLAIM, seen(address(blocked=True)), Do.CLOSE, id="open, blocked"),
        pytest.param(OPEN, CLAIM, seen(GONE), Do.CLOSE, id="open, gone"),
        pytest.param(OPEN, CLAIM, seen(address("UNBIND")), Do.CLOSE, id="open, instance shown too long"),
        pytest.param(ORIGINAL, None, looked(address("BINDING")), Do.CLOSE, id="of the original, not yet bound"),
        pytest.param(OPEN, CLAIM, seen(address(ip="9.9.9.9")), Do.OPEN, id="open, shown wrongly"),
        pytest.param(MOVED, CLAIM, seen(address()), Do.CLOSE, id="another instance"),
        pytest.param(UNLABELLED, CLAIM, seen(address()), Do.NOTHING, id="label removed"),
        pytest.param(node(TAINT, labels={}), CLAIM, seen(FREE), Do.FREE, id="label removed, tainted"),
        pytest.param(node(TAINT, labels={}), None, Known(), Do.NOTHING, id="tainted before its label"),
        pytest.param(node(TAINT, labels={}), None, Known(was_wanted=True), Do.FREE, id="label came and went"),
        pytest.param(None, CLAIM, Known(), Do.CONFIRM, id="node gone"),
        pytest.param(None, CLAIM, Known(confirmed=True), Do.WATCH, id="confirmed"),
        pytest.param(None, CLAIM, seen(address(), confirmed=True), Do.UNBIND, id="gone, bound"),
        pytest.param(None, CLAIM, seen(address("BINDING"), confirmed=True), Do.WATCH, id="gone, being bound"),
        pytest.param(None, CLAIM, seen(ELSEWHERE, confirmed=True), Do.FORGET, id="gone, bound elsewhere"),
        pytest.param(None, CLAIM, seen(FREE, confirmed=True), Do.RELEASE, id="gone, free"),
        pytest.param(None, CLAIM, seen(address("OFFLINING"), confirmed=True), Do.WATCH, id="gone, going"),
        pytest.param(None, CLAIM, seen(GONE, confirmed=True), Do.UNTAG, id="both gone"),
        pytest.param(None, CLAIM, seen(GONE, confirmed=True, untagged=True), Do.FORGET, id="all gone"),
        pytest.param(None, THEIRS, seen(address(), confirmed=True), Do.FORGET, id="gone, theirs"),
        pytest.param(None, ORDERED, Known(confirmed=True), Do.ALLOCATE, id="gone, perhaps ordered"),
        pytest.param(None, ORDERED, Known(confirmed=True, nothing_found=True), Do.UNTAG, id="gone, nothing found"),
        pytest.param(None, ORDERED, Known(confirmed=True, doubt=False), Do.UNTAG, id="gone, never ordered"),
        pytest.param(None, None, Known(), Do.NOTHING, id="nothing at all"),
    ],
)  # fmt: skip
def test_the_next_step(node: Node | None, claim: Claim | None, known: Known, expected: Do) -> None:
    assert next_step(Case("u1", node, claim, known), SETTINGS).do is expected


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        pytest.param(Case("u1", GATED, ORDERED, Known(), order_age=599), Do.ALLOCATE, id="not old yet"),
        pytest.param(Case("u1", GATED, ORDERED, Known(), order_age=600), Do.FIND, id="old"),
        pytest.param(Case("u1", GATED, ORDERED, Known(nothing_found=True), order_age=900), Do.ALLOCATE, id="old, none"),
        pytest.param(Case("u1", None, ORDERED, Known(confirmed=True), order_age=900), Do.FIND, id="old, node gone"),
        pytest.param(Case("u1", None, ORDERED, Known(confirmed=True), elsewhere=True), Do.FORGET, id="another's"),
        pytest.param(Case("u1", GATED, None, Known(), forebear=CLAIM), Do.INHERIT, id="an heir"),
        pytest.param(Case("u1", GATED, None, looked(), found=FREE), Do.ADOPT, id="one with its tags"),
        pytest.param(Case("u1", UNLABELLED, None, Known(), found=FREE), Do.ADOPT, id="one with its tags, no label"),
    ],
)  # fmt: skip
def test_the_next_step_with_more_at_hand(case: Case, expected: Do) -> None:
    assert next_step(case, SETTINGS).do is expected


@pytest.mark.parametrize(
    ("node", "known", "expected"),
    [
        pytest.param(node(annotations=OPEN.metadata.annotations, labels={}), Known(), Do.STRIP, id="marked"),
        pytest.param(UNLABELLED, Known(), Do.CONFIRM, id="bare"),
        pytest.param(UNLABELLED, seen(address(), confirmed=True), Do.UNBIND, id="confirmed"),
        pytest.param(OPEN, seen(address()), Do.NOTHING, id="still labelled"),
    ],
)
def test_a_label_that_is_removed_releases_when_it_is_set_so(node: Node, known: Known, expected: Do) -> None:
    assert next_step(Case("u1", node, CLAIM, known), RELEASING).do is expected


@pytest.mark.parametrize(
    ("node", "known", "expected"),
    [
        pytest.param(OPEN, seen(FREE), Do.NOTHING, id="open"),
        pytest.param(GATED, seen(FREE), Do.BIND, id="not open yet"),
        pytest.param(PLAIN, seen(FREE), Do.CLOSE, id="never was bound"),
    ],
)
def test_without_repair_only_what_was_open_is_left_alone(node: Node, known: Known, expected: Do) -> None:
    assert next_step(Case("u1", node, CLAIM, known), LENIENT).do is expected


@pytest.mark.parametrize(
    ("label", "provider_id", "expected"),
    [
        pytest.param("ins-1", "qcloud:///1/ins-2", "ins-1", id="the label first"),
        pytest.param("", "qcloud:///1/ins-2", "ins-2", id="the provider's id"),
        pytest.param("np-abc", "qcloud:///1/ins-2", "ins-2", id="a label of another kind"),
        pytest.param("", "qcloud:///1/eks-2", "", id="no CVM instance"),
        pytest.param("", "", "", id="nothing"),
        pytest.param("ins-1/../x", "", "", id="not an id"),
    ],
)
def test_the_instance_of_a_node(label: str, provider_id: str, expected: str) -> None:
    labels = {INSTANCE_LABEL: label} if label else {}
    assert instance_of(Node(ObjectMeta(labels=labels), NodeSpec(provider_id))) == expected


def test_an_order_says_what_is_configured_and_whose_it_is() -> None:
    settings = SETTINGS.model_copy(
        update={
            "address_type": "HighQualityEIP",
            "bandwidth": 0,
            "tags": {"team": "a"},
            "internet_charge_type": "",
        }
    )
    order = order_for(ORDERED, settings, UUID)

    assert (order.type, order.bandwidth, order.charge_type, order.zone) == (
        "HighQualityEIP",
        None,
        None,
        None,
    )
    assert order.tags == {**original(), "team": "a"}
    assert order.name == "cls-abc-aia-u1"


def test_each_order_has_a_token_of_its_own_and_an_heir_takes_the_order_over() -> None:
    later = renewed(ORDERED, NOW + timedelta(seconds=1))
    heir = inherited(ORDERED, node(uid="u2"))

    assert later.token != ORDERED.token
    assert (heir.token, heir.name, heir.uid) == (ORDERED.token, ORDERED.name, "u2")
    assert len(claim_for(node(uid="0" * 36), SETTINGS, NOW).token) <= 64


def scene(*nodes: Node, claims: tuple[Claim, ...] = (), found: tuple[Address, ...] = ()) -> Scene:
    return Scene({each.metadata.uid: each for each in nodes}, {each.uid: each for each in claims}, found)


def test_the_oldest_node_comes_first() -> None:
    old, new = (
        msgspec.structs.replace(
            node(uid=uid),
            metadata=replace(node(uid=uid).metadata, creation_timestamp=NOW - timedelta(hours=age)),
        )
        for uid, age in (("old", 2), ("new", 1))
    )

    assert [each.uid for each in cases(scene(new, old), {}, SETTINGS, busy=(), now=NOW)] == ["old", "new"]


def test_an_heir_stands_for_the_claim_that_it_inherits_unless_one_of_them_is_busy() -> None:
    given = scene(node(TAINT, uid="u2"), claims=(CLAIM,))
    (case,) = cases(given, {}, SETTINGS, busy=(), now=NOW)

    assert (case.uid, case.forebear) == ("u2", CLAIM)
    assert cases(given, {}, SETTINGS, busy=("u1",), now=NOW) == []
    assert cases(given, {}, SETTINGS, busy=("u2",), now=NOW) == []


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(address("UNBIND", instance_id="ins-old", tags=original()), True, id="free"),
        pytest.param(address(tags=original()), True, id="on the node"),
        pytest.param(address(tags=original(), instance_id="ins-2"), False, id="on another"),
        pytest.param(address("UNBIND", tags=original("n2")), False, id="another's"),
    ],
)
def test_what_carries_a_nodes_tags_is_found_for_it(found: Address, expected: bool) -> None:
    (case,) = cases(scene(GATED, found=(found,)), {}, SETTINGS, busy=(), now=NOW)
    assert case.found == (found if expected else None)


def test_what_somebody_has_a_claim_to_is_found_for_nobody() -> None:
    claim = replace(CLAIM, uid="u9", instance="ins-9")
    found = address("UNBIND", tags=original())
    first, _ = cases(scene(GATED, claims=(claim,), found=(found,)), {}, SETTINGS, busy=(), now=NOW)

    assert first.found is None
