"""What is next for a node, from what is known: value by value."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from api.anycast_ip import ADDRESS_ID, HAS_ONE, LABEL, TAINT
from cloud.types import Address, Terms
from controllers.anycast_ip.claim import (
    INSTANCE_LABEL,
    Claim,
    claim_for,
    inherited,
    instance_of,
    order_for,
    renewed,
)
from controllers.anycast_ip.planner import bound_annotations, plan
from controllers.anycast_ip.snapshot import GONE, LAG, Action, Order, Related, Seen, Snapshot
from kube.types import Node, NodeSpec, ObjectMeta, Taint
from settings import AnycastIPSettings
from settings.anycast_ip import NEED_LABEL
from tests.anycast_world import SETTINGS, UUID, Lab, a_node, an_address, original
from tests.factories import NOW
from tests.tables import table

RELEASING = SETTINGS.model_copy(update={"release_on_label_removal": True})
LENIENT = SETTINGS.model_copy(update={"repair": False})


ONE = {NEED_LABEL: "true", LABEL: HAS_ONE}
GATED, PLAIN = a_node(TAINT), a_node(labels=ONE)
OPEN = a_node(labels=ONE, annotations=bound_annotations(a_node(), an_address()))
ORIGINAL = a_node(annotations={ADDRESS_ID: "eip-1"})
UNLABELLED = a_node(labels={})
SUPER = a_node(TAINT, labels={NEED_LABEL: "true", "node.kubernetes.io/instance-type": "eklet"})
NAMELESS = Node(GATED.metadata, NodeSpec("", (TAINT,)))


def moved(*taints: Taint, marked: bool = False) -> Node:
    labels = {NEED_LABEL: "true", INSTANCE_LABEL: "ins-other"}
    return a_node(*taints, labels=labels, annotations=OPEN.metadata.annotations if marked else {})


MOVED = moved(marked=True)

ORDERED: Claim = claim_for(GATED, SETTINGS, NOW)
CLAIM = replace(ORDERED, address="eip-1")
THEIRS = replace(CLAIM, ours=False)
FREE = an_address("UNBIND", instance_id="")
ELSEWHERE = an_address(instance_id="ins-2")


NO_ADDRESS_YET = Seen()
UNORDERED = Order(in_doubt=False)


def looked(*found: Address) -> Seen:
    return Seen(on_instance=found)


def seen(found: Any) -> Seen:
    return Seen(found)


@pytest.mark.parametrize(
    ("node", "claim", "seen", "expected"),
    [
        pytest.param(UNLABELLED, None, NO_ADDRESS_YET, Action.NOTHING, id="no label"),
        pytest.param(SUPER, None, NO_ADDRESS_YET, Action.NOTHING, id="a super node"),
        pytest.param(NAMELESS, None, NO_ADDRESS_YET, Action.NOTHING, id="no instance"),
        pytest.param(PLAIN, None, NO_ADDRESS_YET, Action.CLOSE, id="slipped through"),
        pytest.param(ORIGINAL, None, NO_ADDRESS_YET, Action.LOOK, id="of the original"),
        pytest.param(ORIGINAL, None, looked(), Action.CLOSE, id="of the original, without its address"),
        pytest.param(GATED, None, NO_ADDRESS_YET, Action.LOOK, id="new"),
        pytest.param(GATED, None, looked(), Action.CLAIM, id="nothing on it"),
        pytest.param(GATED, None, looked(FREE), Action.CLAIM, id="one that was on it"),
        pytest.param(GATED, None, looked(an_address("BINDING")), Action.ADOPT, id="one is being bound to it"),
        pytest.param(GATED, None, looked(an_address("UNBINDING")), Action.LOOK, id="one is being unbound from it"),
        pytest.param(GATED, None, looked(an_address(type="EIP")), Action.LOOK, id="an unmanaged one on it"),
        pytest.param(GATED, None, looked(an_address(type="EIP"), an_address()), Action.ADOPT, id="two on it"),
        pytest.param(GATED, CLAIM, NO_ADDRESS_YET, Action.WATCH, id="not seen yet"),
        pytest.param(GATED, CLAIM, seen(an_address("CREATING")), Action.WATCH, id="being created"),
        pytest.param(GATED, CLAIM, seen(FREE), Action.BIND, id="free"),
        pytest.param(GATED, CLAIM, seen(an_address("UNBIND", blocked=True)), Action.WATCH, id="free but blocked"),
        pytest.param(GATED, CLAIM, seen(an_address("BINDING")), Action.WATCH, id="instance shown too early"),
        pytest.param(GATED, CLAIM, seen(an_address()), Action.OPEN, id="bound"),
        pytest.param(GATED, CLAIM, seen(an_address("BIND_ENI")), Action.OPEN, id="bound to its interface"),
        pytest.param(GATED, CLAIM, seen(an_address(arrears=True)), Action.WATCH, id="bound but in arrears"),
        pytest.param(GATED, CLAIM, seen(ELSEWHERE), Action.LOOK, id="bound elsewhere"),
        pytest.param(GATED, CLAIM, Seen(ELSEWHERE, ()), Action.RENEW, id="bound elsewhere, nothing in its place"),
        pytest.param(GATED, CLAIM, Seen(GONE, (FREE,)), Action.RENEW, id="gone, nothing in its place"),
        pytest.param(GATED, CLAIM, Seen(GONE, (an_address(id="eip-2"),)), Action.FORGET, id="gone, another there"),
        pytest.param(GATED, THEIRS, seen(GONE), Action.FORGET, id="theirs is gone"),
        pytest.param(GATED, THEIRS, seen(FREE), Action.FORGET, id="theirs is free"),
        pytest.param(PLAIN, CLAIM, seen(FREE), Action.CLOSE, id="untainted too early"),
        pytest.param(OPEN, CLAIM, NO_ADDRESS_YET, Action.WATCH, id="open, not seen yet"),
        pytest.param(OPEN, CLAIM, seen(an_address()), Action.NOTHING, id="open"),
        pytest.param(OPEN, CLAIM, seen(FREE), Action.CLOSE, id="open, unbound"),
        pytest.param(OPEN, CLAIM, seen(an_address(blocked=True)), Action.CLOSE, id="open, blocked"),
        pytest.param(OPEN, CLAIM, seen(GONE), Action.CLOSE, id="open, gone"),
        pytest.param(OPEN, CLAIM, seen(an_address("UNBIND")), Action.CLOSE, id="open, instance shown too long"),
        pytest.param(ORIGINAL, None, looked(an_address("BINDING")), Action.CLOSE, id="of the original, not yet bound"),
        pytest.param(OPEN, CLAIM, seen(an_address(ip="9.9.9.9")), Action.OPEN, id="open, shown wrongly"),
        pytest.param(MOVED, CLAIM, seen(an_address()), Action.CLOSE, id="another instance"),
        pytest.param(moved(TAINT, marked=True), CLAIM, seen(an_address()), Action.CLOSE, id="another, tainted"),
        pytest.param(moved(), CLAIM, seen(an_address()), Action.CLOSE, id="another instance, not proven bound"),
        pytest.param(moved(TAINT), CLAIM, seen(an_address()), Action.EXAMINE, id="another instance, closed"),
        pytest.param(UNLABELLED, CLAIM, seen(an_address()), Action.NOTHING, id="label removed"),
        pytest.param(a_node(TAINT, labels={}), CLAIM, seen(FREE), Action.FREE, id="label removed, tainted"),
        pytest.param(a_node(TAINT, labels={}), None, NO_ADDRESS_YET, Action.NOTHING, id="tainted before its label"),
        pytest.param(None, CLAIM, NO_ADDRESS_YET, Action.WATCH, id="node gone"),
        pytest.param(None, CLAIM, seen(an_address()), Action.EXAMINE, id="gone, bound"),
        pytest.param(None, CLAIM, seen(an_address("BINDING")), Action.WATCH, id="gone, being bound"),
        pytest.param(None, CLAIM, seen(ELSEWHERE), Action.FORGET, id="gone, bound elsewhere"),
        pytest.param(None, CLAIM, seen(FREE), Action.RELEASE, id="gone, free"),
        pytest.param(None, CLAIM, seen(an_address("OFFLINING")), Action.WATCH, id="gone, going"),
        pytest.param(None, CLAIM, seen(GONE), Action.UNTAG, id="both gone"),
        pytest.param(None, THEIRS, seen(an_address()), Action.FORGET, id="gone, theirs"),
        pytest.param(None, None, NO_ADDRESS_YET, Action.NOTHING, id="nothing at all"),
    ],
)  # fmt: skip
def test_the_next_action(node: Node | None, claim: Claim | None, seen: Seen, expected: Action) -> None:
    assert plan(Snapshot("u1", node, claim, seen=seen), SETTINGS).action is expected


@pytest.mark.parametrize(
    ("node", "claim", "seen", "expected"),
    [
        pytest.param(NAMELESS, None, Seen(), "NoInstanceID: .*providerID '' names", id="no instance"),
        pytest.param(a_node(TAINT, labels={}), None, Seen(), "AnycastIpDelayed: .*need-aia-ip=true", id="no label"),
        pytest.param(a_node(TAINT, labels=SUPER.metadata.labels), None, Seen(), "", id="a super node"),
        pytest.param(UNLABELLED, None, Seen(), "", id="neither label nor taint"),
        pytest.param(GATED, None, looked(an_address(type="EIP")), "AlreadyHasAnycastIp: .* EIP 1.2.3.4,", id="theirs"),
        pytest.param(GATED, None, looked(an_address(type="WanIP", ip="")), "AlreadyHasPublicIp: .* eip-1,", id="WanIP"),
        pytest.param(GATED, CLAIM, seen(an_address(arrears=True)), "AnycastIpNotServing: .*arrears", id="in arrears"),
        pytest.param(GATED, CLAIM, seen(an_address(blocked=True)), "AnycastIpNotServing: .*blocked", id="blocked"),
        pytest.param(GATED, CLAIM, Seen(ELSEWHERE, ()), "AnycastIpMoved: .*bound to ins-2.*gets another", id="moved"),
        pytest.param(None, CLAIM, seen(ELSEWHERE), "AnycastIpMoved: .*bound to ins-2.*not released", id="gone, moved"),
        pytest.param(GATED, CLAIM, Seen(an_address("BINDING"), None, 149.0), "", id="on its way"),
        pytest.param(GATED, CLAIM, Seen(an_address("BINDING"), None, 150.0), "AnycastIpDelayed: .*BINDING", id="slow"),
    ],
)  # fmt: skip
def test_what_a_node_waits_for_is_reported(
    node: Node | None, claim: Claim | None, seen: Seen, expected: str
) -> None:
    note = plan(Snapshot("u1", node, claim, seen=seen), SETTINGS).note

    if expected:
        assert note
        assert re.match(expected, f"{note.reason}: {note.message}")
    else:
        assert note is None


@pytest.mark.parametrize(
    ("runs", "is_braked", "expected"),
    [
        pytest.param(None, True, Action.EXAMINE, id="not asked"),
        pytest.param(False, True, Action.UNBIND, id="its instance has ended"),
        pytest.param(True, False, Action.UNBIND, id="its instance runs"),
        pytest.param(True, True, Action.EXAMINE, id="one too many"),
    ],
)
def test_an_address_is_unbound_from_an_instance_that_runs_while_the_brake_is_off(
    runs: bool | None, is_braked: bool, expected: Action
) -> None:
    step = plan(
        Snapshot("u1", None, CLAIM, seen=seen(an_address()), runs=runs, is_braked=is_braked), SETTINGS
    )

    assert step.action is expected
    assert bool(step.note) is bool(runs and is_braked)


@pytest.mark.parametrize(
    ("node", "order", "expected"),
    [
        pytest.param(GATED, UNORDERED, Action.TAG, id="claimed"),
        pytest.param(GATED, Order(in_doubt=False, tagged=True), Action.ALLOCATE, id="tagged"),
        pytest.param(GATED, Order(tagged=True), Action.ALLOCATE, id="perhaps ordered"),
        pytest.param(GATED, Order(in_doubt=False, outdated=True), Action.RENEW, id="other terms are wanted"),
        pytest.param(GATED, Order(tagged=True, outdated=True), Action.ALLOCATE, id="perhaps ordered on other terms"),
        pytest.param(GATED, Order(refused=True), Action.FIND, id="token refused"),
        pytest.param(GATED, Order(refused=True, nothing_for=0), Action.FIND, id="token refused, nothing found yet"),
        pytest.param(GATED, Order(refused=True, nothing_for=LAG), Action.RENEW, id="token of nothing"),
        pytest.param(GATED, Order(found=FREE), Action.RECORD, id="found by its name"),
        pytest.param(GATED, Order(599, tagged=True), Action.ALLOCATE, id="not old yet"),
        pytest.param(GATED, Order(600, tagged=True), Action.FIND, id="old"),
        pytest.param(GATED, Order(900, tagged=True, nothing_for=0), Action.ALLOCATE, id="old, one look is enough"),
        pytest.param(None, Order(tagged=True), Action.ALLOCATE, id="gone, perhaps ordered"),
        pytest.param(None, Order(900, tagged=True), Action.FIND, id="gone, old"),
        pytest.param(None, Order(900, tagged=True, nothing_for=0), Action.FIND, id="gone, old, once not enough"),
        pytest.param(None, Order(900, nothing_for=LAG), Action.UNTAG, id="gone, nothing found"),
        pytest.param(None, UNORDERED, Action.UNTAG, id="gone, never ordered"),
    ],
)  # fmt: skip
def test_the_next_action_of_an_order(node: Node | None, order: Order, expected: Action) -> None:
    assert plan(Snapshot("u1", node, ORDERED, order=order), SETTINGS).action is expected


def about(node: Node | None, claim: Claim | None = CLAIM, **parts: Any) -> Snapshot:
    return Snapshot("u1", node, claim, **parts)


def related(node: Node | None, claim: Claim | None, **to: Any) -> Snapshot:
    return about(node, claim, related=Related(**to), seen=looked())


FREED = a_node(TAINT, labels={})
MARKED = a_node(annotations=OPEN.metadata.annotations, labels={})


@table(
    "snapshot, settings, expected",
    {
        "another's": (related(None, ORDERED, elsewhere=True), SETTINGS, Action.FORGET),
        "another takes it over": (related(None, CLAIM, heir="u2"), SETTINGS, Action.NOTHING),
        "an heir": (related(GATED, None, predecessor=CLAIM), SETTINGS, Action.INHERIT),
        "one with its tags": (related(GATED, None, found=FREE), SETTINGS, Action.ADOPT),
        "one with its tags, no label": (related(UNLABELLED, None, found=FREE), SETTINGS, Action.ADOPT),
        "label came and went": (related(FREED, None, was_wanted=True), SETTINGS, Action.FREE),
        "label removed, marked": (about(MARKED), RELEASING, Action.STRIP),
        "label removed, bare": (about(UNLABELLED, seen=seen(an_address())), RELEASING, Action.EXAMINE),
        "still labelled": (about(OPEN, seen=seen(an_address())), RELEASING, Action.NOTHING),
        "without repair, open": (about(OPEN, seen=seen(FREE)), LENIENT, Action.NOTHING),
        "without repair, not open yet": (about(GATED, seen=seen(FREE)), LENIENT, Action.BIND),
        "without repair, never was bound": (about(PLAIN, seen=seen(FREE)), LENIENT, Action.CLOSE),
    },
)
def test_the_next_action_by_what_is_related_and_what_is_set(
    snapshot: Snapshot, settings: AnycastIPSettings, expected: Action
) -> None:
    """A label that is removed releases when it is set so; without repair only what was open is left alone."""
    assert plan(snapshot, settings).action is expected


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
    order = order_for(claim_for(GATED, settings, NOW), settings, UUID)

    assert (order.type, order.terms, order.zone) == ("HighQualityEIP", Terms(), "")
    assert order.tags == {**original(), "team": "a"}
    assert order.name == "cls-abc-aia-u1"


def test_each_order_has_a_separate_token_and_an_heir_takes_the_order_over() -> None:
    later = renewed(ORDERED, NOW + timedelta(seconds=1), ORDERED.terms)
    heir = inherited(ORDERED, a_node(uid="u2"))

    assert later.token != ORDERED.token
    assert (heir.token, heir.name, heir.uid) == (ORDERED.token, ORDERED.name, "u2")
    assert len(claim_for(a_node(uid="0" * 36), SETTINGS, NOW).token) <= 64


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param({"status": "UNBIND", "instance_id": "ins-old", "tags": original()}, True, id="free"),
        pytest.param({"tags": original()}, True, id="on the node"),
        pytest.param({"tags": original(), "instance_id": "ins-2"}, False, id="on another"),
        pytest.param({"status": "UNBIND", "tags": original("n2")}, False, id="another's"),
    ],
)
def test_what_carries_a_nodes_tags_is_found_for_it(found: dict[str, Any], expected: bool) -> None:
    lab = Lab()
    address_id = lab.add_address(**{"instance": "ins-n1", **found})
    lab.clock.advance(60)
    lab.join(**{NEED_LABEL: "not yet"})
    lab.run_for(5)

    assert bool(lab.claims.having(address_id)) == expected


def test_what_another_node_has_a_claim_to_is_not_found() -> None:
    lab = Lab()
    address_id = lab.add_address("ins-n1", tags=original())
    lab.clock.advance(60)
    lab.claims.put(replace(CLAIM, uid="u9", node="other", instance="ins-other", address=address_id))
    node = lab.join()
    lab.watch.show(lab.nodes())
    lab.turn()

    assert lab.reconciler._reader.local(node.metadata.uid).related.found is None
