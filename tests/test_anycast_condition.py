"""The Node condition AnycastIPReady says what the taint says, and why: one write for each change that matters."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from api.anycast_ip import ADDRESS, ADDRESS_ID, BOUND, CONDITION, TAINT
from controllers.anycast_ip.reporter import REWORDED, desired, patch
from controllers.anycast_ip.snapshot import Note
from controllers.anycast_ip.sources import ReportedNode, decode
from kube.errors import KubeError
from kube.resources import NODES
from kube.types import Condition, NodeSpec, NodeStatus, ObjectMeta
from settings.anycast_ip import NEED_LABEL
from tests.anycast_world import SETTINGS, Lab, failing, plenty
from tests.factories import NOW

SAID = ("FailedAllocateAnycastIp", "AllocateAddresses: no more addresses (LimitExceeded)")
QUOTA = Note(*SAID)
LATER = NOW + timedelta(minutes=5)
OTHERS = {"type": "Ready", "status": "True", "reason": "KubeletReady"}


def says(status: str, reason: str, message: str, since: datetime = NOW) -> Condition:
    return Condition(CONDITION, status, reason, message, since)


SERVED = says("True", "AnycastIpBound", "203.0.113.9 (eip-1) is bound to the node")
PENDING = says("False", "AnycastIpPending", "The node is closed until its anycast IP is bound")
LOST = says("False", "AnycastIpLost", "lost")


def a_node(
    held: Condition | None = None, *, is_open: bool = False, needs: bool = True, uid: str = "u"
) -> ReportedNode:
    marks = {ADDRESS_ID: "eip-1", ADDRESS: "203.0.113.9", BOUND: "u/eip-1"} if is_open else {}
    labels = {NEED_LABEL: "true"} if needs else {}
    return ReportedNode(
        ObjectMeta("n1", uid=uid, labels=labels, annotations=marks),
        NodeSpec("qcloud:///1/ins-n1", () if is_open else (TAINT,)),
        NodeStatus((held,) if held else ()),
    )


def at(said: Condition) -> Condition:
    return replace(said, last_transition_time=LATER)


@pytest.mark.parametrize(
    ("node", "trouble", "expected"),
    [
        pytest.param(a_node(), None, None, id="none while a node that joins is served"),
        pytest.param(a_node(is_open=True), None, at(SERVED), id="true when the node is open"),
        pytest.param(a_node(is_open=True), QUOTA, at(SERVED), id="true whatever was in the way before"),
        pytest.param(a_node(SERVED, is_open=True), None, SERVED, id="as it is while it is right"),
        pytest.param(a_node(), QUOTA, at(says("False", *SAID)), id="false with the reason"),
        pytest.param(a_node(PENDING), QUOTA, says("False", *SAID), id="reworded, without a transition"),
        pytest.param(a_node(SERVED), None, at(PENDING), id="false when an open node is closed again"),
        pytest.param(a_node(LOST), None, LOST, id="as it is, by a new leader that has seen nothing in the way"),
        pytest.param(a_node(says("Unknown", "", "")), None, at(PENDING), id="false for what others made of it"),
        pytest.param(a_node(SERVED, is_open=True, needs=False), None, None, id="none without the label"),
        pytest.param(a_node(needs=False), QUOTA, None, id="none for a node that needs no address"),
        pytest.param(a_node(is_open=True, uid="v"), None, None, id="none by the proof of another node of its name"),
        pytest.param(a_node(), Note("a", "x" * 5000), at(says("False", "a", "x" * 1024)), id="no longer than an Event"),
    ],
)  # fmt: skip
def test_the_condition_says(node: ReportedNode, trouble: Note | None, expected: Condition | None) -> None:
    assert desired(node, trouble, SETTINGS, LATER) == expected


def test_times_have_no_parts_of_a_second() -> None:
    said = desired(a_node(is_open=True), None, SETTINGS, NOW + timedelta(seconds=1.5))
    written = patch(said, NOW + timedelta(seconds=2.5))

    assert written["lastTransitionTime"] == "2026-01-02T03:04:06Z"
    assert written["lastHeartbeatTime"] == "2026-01-02T03:04:07Z"


def test_of_the_conditions_of_a_node_only_ours_is_kept() -> None:
    raw = (
        b'{"metadata":{"name":"n"},"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"%s"}]}}'
    )

    assert [each.type for each in decode(raw % CONDITION.encode()).status.conditions] == [CONDITION]  # type: ignore[arg-type]
    assert decode(b'{"metadata":{"name":"n"}}').condition is None  # type: ignore[arg-type]


def waiting_for(lab: Lab, expected: tuple[str, str] | None) -> None:
    lab.run(lambda: lab.said() == expected, 300, f"{expected}, not {lab.said()}")


def conditions_written(lab: Lab) -> list[Any]:
    """Bodies of all writes of conditions from now on."""
    written: list[Any] = []
    seen: Callable[[str, Any], None] = lab.kube.before_write

    def before_write(name: str, body: Any) -> None:
        seen(name, body)
        if "status" in body:
            written.extend(body["status"]["conditions"])

    lab.kube.before_write = before_write
    return written


def test_conditions_of_others_stay() -> None:
    lab = Lab()
    lab.join()
    lab.edit("n1", {"status": {"conditions": [OTHERS]}})

    waiting_for(lab, ("True", "AnycastIpBound"))

    first, ours = lab.kube.api.get(NODES, "n1")["status"]["conditions"]
    assert OTHERS.items() <= first.items()
    assert ours["type"] == CONDITION


def test_a_node_that_waits_says_why_and_no_more_often_than_once_a_minute() -> None:
    lab = Lab(plenty(quota_total=0))
    written = conditions_written(lab)
    lab.join()

    waiting_for(lab, ("False", "FailedAllocateAnycastIp"))
    assert "TOTAL_EIP_QUOTA 0/0" in lab.node().status.conditions[0].message
    lab.run_for(1200)

    assert len(written) <= 1200 / REWORDED
    assert lab.count("AllocateAddresses") <= 12
    lab.world.knobs.quota_total = 10
    waiting_for(lab, ("True", "AnycastIpBound"))


def test_what_was_in_the_way_before_a_node_lost_its_label_is_said_again_by_an_event() -> None:
    lab = Lab(plenty(quota_total=0))
    lab.join()
    waiting_for(lab, ("False", "FailedAllocateAnycastIp"))
    lab.edit("n1", {"metadata": {"labels": {NEED_LABEL: None}}})
    waiting_for(lab, None)
    lab.edit("n1", {"metadata": {"labels": {NEED_LABEL: "true"}}})
    waiting_for(lab, ("False", "FailedAllocateAnycastIp"))
    assert lab.recorder.reasons.count("FailedAllocateAnycastIp") == 2


def test_a_node_opens_also_where_its_condition_cannot_be_written() -> None:
    lab = Lab()
    lab.kube.before_write = failing("status", KubeError("403 Forbidden"))
    lab.opened(seconds=30)
    assert lab.said() is None
    lab.kube.before_write = lambda name, body: None
    waiting_for(lab, ("True", "AnycastIpBound"))
