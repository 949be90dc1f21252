"""With `whenExhausted: release`, a node opens without an address once a quota has refused it one for ten minutes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from api.anycast_ip import BOUND, HISTORY, LABEL, NONE, TAINT, is_open_without, transitions_of
from cloud.errors import TokenRefused
from controllers.anycast_ip.claim import Claim, claim_for
from controllers.anycast_ip.planner import plan
from controllers.anycast_ip.snapshot import Action, Order, Snapshot
from dev.fake_api.calls import refusal
from kube.resources import NODES
from kube.types import Node
from settings import AnycastIPSettings
from settings.anycast_ip import NEED_LABEL, Pool, Retain
from tests import cli
from tests.anycast_world import SETTINGS, Lab, a_node, metric, open_lab
from tests.dashboard import Page
from tests.factories import NOW
from tests.tables import table

RELEASE = SETTINGS.model_copy(update={"when_exhausted": "release"})
EXHAUSTED = "AnycastIpExhausted"
LONG = 900.0
"""Ten minutes, and the longest pause between two attempts."""


def lab_of(quota: int = 1, settings: AnycastIPSettings = RELEASE, **knobs: Any) -> Lab:
    """With n1 open, and nothing left for n2, which has joined."""
    lab = open_lab(settings=settings, quota_total=quota, **knobs)
    lab.join("n2")
    return lab


def label_of(lab: Lab, name: str = "n2") -> str | None:
    return lab.node(name).metadata.labels.get(LABEL)


def is_without(lab: Lab) -> bool:
    return is_open_without(lab.node("n2")) and label_of(lab) == NONE


def reasons(lab: Lab) -> list[str]:
    """Of Events on n2."""
    about = zip(lab.recorder.about, lab.recorder.events, strict=True)
    return [reason for on, (reason, _) in about if on == "n2"]


def state(name: str) -> float:
    return metric("nodes", state=name)


def test_a_node_opens_without_an_address_after_ten_minutes_and_gets_the_next_one() -> None:
    lab = lab_of()
    lab.run_for(595)
    assert not is_without(lab)
    lab.run(lambda: is_without(lab), LONG - 595, "open without")
    lab.run_for(1800)

    assert lab.said("n2") == ("False", EXHAUSTED)
    assert reasons(lab).count(EXHAUSTED) == 1
    assert reasons(lab)[-1] == EXHAUSTED
    assert (state("exhausted"), state("open")) == (1, 1)
    assert [each.to for each in transitions_of(lab.node("n2"))] == ["open"]

    tainted: list[Any] = []
    lab.kube.before_write = lambda name, body: (
        tainted.append(body) if name == "n2" and "spec" in body else None
    )
    lab.knobs.quota_total = 2
    lab.run(lambda: lab.is_open("n2"), 400, "bound")
    lab.run_for(120)

    assert tainted == []
    assert (label_of(lab), label_of(lab, "n1")) == ("bound", "bound")
    assert lab.said("n2") == ("True", "AnycastIpBound")
    assert all(each.refused is None for each in lab.claims.claims.values())


def test_an_open_node_without_an_address_says_what_else_is_in_the_way_and_only_as_long_as_it_is() -> None:
    lab = lab_of()
    lab.run(lambda: is_without(lab), LONG, "open without")
    lab.knobs.denied = ["AllocateAddresses"]
    lab.run(lambda: lab.said("n2") == ("False", "FailedAllocateAnycastIp"), LONG, "denied")
    lab.knobs.denied = []
    lab.run(lambda: lab.said("n2") == ("False", EXHAUSTED), LONG, "the quota again")
    lab.run(lambda: (state("waiting"), state("exhausted")) == (0, 1), LONG, "counted so")

    lab.add_address("ins-n2", type="EIP")
    lab.knobs.quota_total = 3
    lab.run(lambda: lab.said("n2") == ("False", "FailedAssociateAnycastIp"), LONG, "another one is bound")
    lab.run_for(LONG)
    assert (state("waiting"), state("exhausted"), state("working")) == (1, 0, 0)
    assert is_without(lab)


def test_an_address_of_a_node_that_leaves_is_taken_from_the_pool() -> None:
    lab = lab_of(settings=RELEASE.model_copy(update={"pool": Pool(retain=Retain(enabled=True))}))
    lab.run(lambda: is_without(lab), LONG, "open without")
    lab.leave("n1")
    lab.run(lambda: lab.is_open("n2"), 300, "bound")


def test_with_wait_it_stays_tainted_and_no_claim_is_written_again() -> None:
    lab = lab_of(settings=SETTINGS)
    lab.run_for(10)
    writes = lab.kube.writes
    lab.run_for(2 * LONG)
    assert (label_of(lab), label_of(lab, "n1")) == (None, "bound")
    assert not lab.is_open("n2")
    assert (state("waiting"), state("working")) == (1, 0)
    assert lab.kube.writes - writes <= 2  # the Event's condition


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"denied": ["AllocateAddresses"]}, id="denied"),
        pytest.param({"throttled": 1.0}, id="throttled"),
        pytest.param({"lost": 1.0}, id="no answer"),
    ],
)
def test_no_other_refusal_counts(change: dict[str, Any]) -> None:
    lab = lab_of(faulty_actions=["AllocateAddresses"])
    for _ in range(6):
        lab.run_for(450)
        usual = {each: getattr(lab.knobs, each) for each in change}
        for name, value in change.items():
            setattr(lab.knobs, name, value)
        lab.run_for(450)
        for name, value in usual.items():
            setattr(lab.knobs, name, value)
        assert not is_without(lab)
    lab.run(lambda: is_without(lab), 2 * LONG, "the quota alone")


def test_a_new_leader_looks_first_and_then_opens_nothing_for_which_an_address_is_to_be_had() -> None:
    lab = lab_of()
    lab.run_for(590)
    lab.knobs.quota_total = 2
    lab.run_for(5)
    lab.start()
    lab.run(lambda: lab.is_open("n2"), 300, "bound")
    assert EXHAUSTED not in reasons(lab)


def test_a_node_that_loses_its_address_is_tainted_and_waits_as_long_as_any_other() -> None:
    lab = lab_of(quota=2)
    lab.run(lab.all_open, 60, "open")
    lab.knobs.quota_total = 0
    (lost,) = lab.on("n2")
    lab.vanish(lost.id)
    lab.run(lambda: not lab.is_open("n2"), 600, "closed")
    assert label_of(lab) is None
    closed = lab.clock()
    lab.run(lambda: is_without(lab), LONG + 120, "open without")
    assert lab.clock() - closed >= 600


def test_wait_taints_it_again_and_the_time_begins_again() -> None:
    lab = lab_of()
    lab.run(lambda: is_without(lab), LONG, "open without")
    lab.settings = SETTINGS
    lab.run(lambda: not is_open_without(lab.node("n2")), 30, "closed")
    assert label_of(lab) is None
    lab.run_for(120)
    said = lab.said("n2")
    assert said
    assert said[1] != EXHAUSTED
    lab.settings = RELEASE
    lab.run_for(590)
    assert not is_without(lab)
    lab.run(lambda: is_without(lab), LONG, "open without")


def test_a_node_that_could_not_be_opened_in_time_stays_tainted_after_wait_is_set() -> None:
    lab = lab_of()
    asked = lab.kube.api.fault
    denied = refusal(403, "Forbidden")
    lab.kube.api.fault = lambda call: denied if call.path.endswith("/nodes/n2") else asked(call)
    lab.run_for(2 * LONG)
    lab.kube.api.fault, lab.settings = asked, SETTINGS
    writes = lab.kube.writes
    lab.run_for(LONG)

    assert transitions_of(lab.node("n2")) == ()
    assert lab.kube.writes - writes <= 3  # the claim, and the condition


def spend_token(lab: Lab) -> None:
    """Once."""

    def refuse(action: str) -> None:
        if action == "AllocateAddresses":
            lab.sender.before = lambda action: None
            raise TokenRefused("UnsupportedOperation.DeliveryFailed", "failed", action=action)

    lab.sender.before = refuse


def lose_next_address(lab: Lab) -> None:
    """One is ordered, and another user releases it before it is bound."""

    def vanish(action: str) -> None:
        if action == "AllocateAddresses" and len(lab.elastic()) == 2:
            lab.vanish(next(each.id for each in lab.elastic() if each not in lab.on("n1")))
            lab.sender.after, lab.knobs.quota_total = lambda action: None, 1

    lab.sender.after, lab.knobs.quota_total = vanish, 2


@pytest.mark.parametrize("mishap", [spend_token, lose_next_address])
def test_an_order_that_has_to_be_renewed_taints_no_open_node(mishap: Callable[[Lab], None]) -> None:
    lab = lab_of()
    lab.run(lambda: is_without(lab), LONG, "open without")
    token = lab.claims.claims[lab.node("n2").metadata.uid].token
    mishap(lab)
    lab.run_for(LONG)

    assert lab.claims.claims[lab.node("n2").metadata.uid].token != token
    assert [each.to for each in transitions_of(lab.node("n2"))] == ["open"]


def test_without_the_labels_nothing_of_it_stays() -> None:
    lab = lab_of()
    lab.run(lambda: is_without(lab), LONG, "open without")
    lab.edit("n2", {"metadata": {"labels": {NEED_LABEL: None}}})
    lab.run(lambda: label_of(lab) is None, 30, "stripped")
    node = lab.node("n2")
    assert not {BOUND, HISTORY} & node.metadata.annotations.keys()
    assert node.spec.taints == ()
    assert node.condition is None


def test_the_label_of_a_node_without_an_address_is_written_again() -> None:
    lab = lab_of()
    lab.run(lambda: is_without(lab), LONG, "open without")
    lab.edit("n2", {"metadata": {"labels": {LABEL: None}}})
    lab.run(lambda: is_without(lab), 30, "written")
    assert [each.to for each in transitions_of(lab.node("n2"))] == ["open"]


@pytest.mark.parametrize("repair", [True, False])
@pytest.mark.parametrize("said", [NONE, None])
def test_the_label_of_an_open_node_is_written_again(repair: bool, said: str | None) -> None:
    lab = open_lab(settings=SETTINGS.model_copy(update={"repair": repair}))
    lab.edit("n1", {"metadata": {"labels": {LABEL: said}}})
    lab.run(lambda: label_of(lab, "n1") == "bound", 30, "written")


NODE = a_node(labels={NEED_LABEL: "true", LABEL: NONE}, annotations={BOUND: f"u1/{NONE}"})
CLAIM = replace(claim_for(NODE, SETTINGS, NOW), refused=NOW)
TAINTED = replace(NODE, spec=replace(NODE.spec, taints=(TAINT,)))


OVER = Order(tagged=True, exhausted=True)


@table(
    "node, claim, settings, order, expected",
    {
        "refused for long": (TAINTED, CLAIM, RELEASE, OVER, Action.OPEN_WITHOUT),
        "not for long, or not known yet": (TAINTED, CLAIM, RELEASE, Order(tagged=True), Action.ALLOCATE),
        "another step comes first": (TAINTED, CLAIM, RELEASE, Order(exhausted=True), Action.TAG),
        "open already": (NODE, CLAIM, RELEASE, OVER, Action.ALLOCATE),
        "open, its address is on its way": (NODE, replace(CLAIM, address="eip-1"), RELEASE, OVER, Action.WATCH),
        "open, and its claim does not say why": (NODE, replace(CLAIM, refused=None), RELEASE, OVER, Action.CLOSE),
        "open, no claim": (NODE, None, RELEASE, OVER, Action.CLOSE),
        "open, wait": (NODE, CLAIM, SETTINGS, OVER, Action.CLOSE),
    },
)  # fmt: skip
def test_a_node_is_opened_and_open_without_an_address_only_as_its_claim_says(
    node: Node, claim: Claim | None, settings: AnycastIPSettings, order: Order, expected: Action
) -> None:
    assert plan(Snapshot("u1", node, claim, order=order), settings).action is expected


def test_the_command_shows_nodes_that_are_open_without_an_address() -> None:
    api = cli.installed("anycastIP")
    labels, annotations = {NEED_LABEL: "true", LABEL: NONE}, {BOUND: f"u1/{NONE}"}
    api.put(NODES, {"metadata": {"name": "n1", "uid": "u1", "labels": labels, "annotations": annotations}})

    (listed,) = cli.shown(api, "addresses", "list")["addresses"]
    assert (listed["node"], listed["state"]) == ("n1", "open without one")
    assert cli.shown(api, "explain", "node", "n1")["anycastIp"].startswith("needed, and open without one")
    assert cli.shown(api, "status")["anycastIp"]["without"] == ["n1"]
    page = Page(cli.cluster_of(api)).text("/addresses")
    assert '<a href="/explain/node/n1">n1</a>' in page
    assert '<span class="mark warning">' in page
