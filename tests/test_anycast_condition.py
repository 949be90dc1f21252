"""The Node condition AnycastIPReady says what the taint says, and why: one write for each change that matters."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from api.anycast_ip import ADDRESS, ADDRESS_ID, BOUND, CONDITION, TAINT
from controllers.anycast_ip.condition import REWORDED, Ready, desired, held_by, patch
from controllers.anycast_ip.snapshot import Note
from controllers.anycast_ip.sources import NODES, NodeCondition, NodeStatus, ReportedNode, decode
from dev.lab.cloud import Knobs
from kube.errors import KubeError
from kube.types import NodeSpec, ObjectMeta
from settings.anycast_ip import NEED_LABEL
from tests.anycast_world import SETTINGS, Lab
from tests.factories import NOW

QUOTA = Note("FailedAllocateAnycastIp", "AllocateAddresses: no more addresses (LimitExceeded)")
BOUND_READY = Ready("True", "AnycastIpBound", "203.0.113.9 (eip-1) is bound to the node")
PENDING = Ready("False", "AnycastIpPending", "The node is closed until its anycast IP is bound")
OTHERS = {"type": "Ready", "status": "True", "reason": "KubeletReady"}


def a_node(
    held: Ready | None = None, *, is_open: bool = False, needs: bool = True, uid: str = "u"
) -> ReportedNode:
    marks = {ADDRESS_ID: "eip-1", ADDRESS: "203.0.113.9", BOUND: "u/eip-1"} if is_open else {}
    labels = {NEED_LABEL: "true"} if needs else {}
    said = NodeCondition(CONDITION, held.status, held.reason, held.message, NOW) if held else None
    return ReportedNode(
        ObjectMeta("n1", uid=uid, labels=labels, annotations=marks),
        NodeSpec("qcloud:///1/ins-n1", () if is_open else (TAINT,)),
        NodeStatus((said,) if said else ()),
    )


@pytest.mark.parametrize(
    ("node", "trouble", "expected"),
    [
        pytest.param(a_node(), None, None, id="none while a node that joins is served"),
        pytest.param(a_node(is_open=True), None, BOUND_READY, id="true when the node is open"),
        pytest.param(a_node(is_open=True), QUOTA, BOUND_READY, id="true whatever was in the way before"),
        pytest.param(
            a_node(), QUOTA, Ready("False", QUOTA.reason, QUOTA.message), id="false with the reason"
        ),
        pytest.param(a_node(BOUND_READY), None, PENDING, id="false when an open node is closed again"),
        pytest.param(
            a_node(Ready("False", "AnycastIpLost", "lost")),
            None,
            Ready("False", "AnycastIpLost", "lost"),
            id="as it is, by a new leader that has seen nothing in the way",
        ),
        pytest.param(a_node(Ready("Unknown", "", "")), None, PENDING, id="false for what others made of it"),
        pytest.param(a_node(BOUND_READY, is_open=True, needs=False), None, None, id="none without the label"),
        pytest.param(a_node(needs=False), QUOTA, None, id="none for a node that needs no address"),
        pytest.param(
            a_node(is_open=True, uid="v"), None, None, id="none by the proof of another node of its name"
        ),
        pytest.param(
            a_node(),
            Note("a", "x" * 5000),
            Ready("False", "a", "x" * 1024),
            id="no longer than that of an Event",
        ),
    ],
)
def test_the_condition_says(node: ReportedNode, trouble: Note | None, expected: Ready | None) -> None:
    assert desired(node, trouble, SETTINGS) == expected


def test_the_time_of_the_transition_changes_with_the_status_alone() -> None:
    later = NOW + timedelta(minutes=5)
    reworded = patch(a_node(PENDING), Ready("False", QUOTA.reason, QUOTA.message), later)
    opened = patch(a_node(PENDING, is_open=True), BOUND_READY, later)

    assert reworded["lastTransitionTime"] == "2026-01-02T03:04:05Z" == NOW.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert reworded["lastHeartbeatTime"] == opened["lastTransitionTime"] == "2026-01-02T03:09:05Z"


def test_of_the_conditions_of_a_node_only_ours_is_kept() -> None:
    raw = (
        b'{"metadata":{"name":"n"},"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"%s"}]}}'
    )

    assert [each.type for each in decode(raw % CONDITION.encode()).status.conditions] == [CONDITION]  # type: ignore[arg-type]
    assert decode(b'{"metadata":{"name":"n"}}').condition is None  # type: ignore[arg-type]


def says(lab: Lab, name: str = "n1") -> tuple[str, str] | None:
    held = held_by(lab.node(name))
    return (held.status, held.reason) if held else None


def waiting_for(lab: Lab, expected: tuple[str, str] | None, name: str = "n1") -> None:
    lab.run(lambda: says(lab, name) == expected, 300, f"{expected}, not {says(lab, name)}")


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
    lab = Lab(Knobs(quota_total=0, tag_keys=100000, tag_values=100000))
    written = conditions_written(lab)
    lab.join()

    waiting_for(lab, ("False", "FailedAllocateAnycastIp"))
    assert "quota" in lab.node().status.conditions[0].message.lower()
    lab.run_for(1200)

    assert len(written) <= 1200 / REWORDED
    lab.world.knobs.quota_total = 10
    waiting_for(lab, ("True", "AnycastIpBound"))


def test_a_node_opens_also_where_its_condition_cannot_be_written() -> None:
    lab = Lab()

    def refuse(name: str, body: Any) -> None:
        if "status" in body:
            raise KubeError("403 Forbidden")

    lab.kube.before_write = refuse
    lab.join()

    lab.run(lab.all_open, 30, "open")
    assert says(lab) is None
    lab.kube.before_write = lambda name, body: None
    waiting_for(lab, ("True", "AnycastIpBound"))
