"""When a node was opened and closed outlasts Events, in an annotation that costs no write."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from api.anycast_ip import (
    CLOSED,
    HISTORY,
    OPEN,
    TAINT,
    TRANSITIONS_KEPT,
    Transition,
    closed_since,
    opened_after,
    transitions_of,
    with_transition,
)
from kube.resources import NODES
from kube.types import Node, ObjectMeta, rfc3339
from settings.anycast_ip import NEED_LABEL
from tests import cli
from tests.anycast_world import SETTINGS, Lab, metric, open_lab
from tests.factories import DEEP, NOW
from tests.test_anycast_announcements import opened_so_far

TOO_DEEP = f'[{{"at":"2026-07-01T08:00:00Z","to":"open","x":{DEEP}}}]'
NO_ZONE = '[{"at":"2026-07-01T08:00:00","to":"open"}]'


def noted(*transitions: str) -> Node:
    node = Node(ObjectMeta("n1"))
    for number, each in enumerate(transitions):
        annotations = with_transition(node, NOW + timedelta(minutes=number), each, f"eip-{number}")
        node = replace(node, metadata=replace(node.metadata, annotations=annotations))
    return node


def test_the_last_few_are_kept_the_latest_first_and_are_small() -> None:
    node = noted(*[OPEN, CLOSED] * 10)

    assert transitions_of(node) == tuple(
        Transition(NOW + timedelta(minutes=number), CLOSED if number % 2 else OPEN, f"eip-{number}")
        for number in range(19, 19 - TRANSITIONS_KEPT, -1)
    )
    assert len(node.metadata.annotations[HISTORY]) < 400


@pytest.mark.parametrize(
    "text",
    ["", "{", '[{"at":"yesterday","to":"open"}]', NO_ZONE, pytest.param(TOO_DEEP, id="deep"), "[1]", "null"],
)
def test_what_another_client_wrote_is_no_history_and_is_replaced(text: str) -> None:
    node = Node(ObjectMeta("n1", annotations={HISTORY: text}))

    assert transitions_of(node) == ()
    assert with_transition(node, NOW, OPEN, "eip-1") == with_transition(noted(), NOW, OPEN, "eip-1")


@pytest.mark.parametrize(
    ("node", "seconds"),
    [
        pytest.param(noted(), None, id="never opened"),
        pytest.param(noted(OPEN), 90.0, id="opened after it was created"),
        pytest.param(noted(OPEN, CLOSED), 90.0, id="closed again"),
        pytest.param(noted(OPEN, CLOSED, OPEN), 60.0, id="opened again"),
        pytest.param(noted(CLOSED, OPEN), 60.0, id="closed when it was labelled"),
        pytest.param(noted(OPEN, OPEN), None, id="closed by another client"),
        pytest.param(
            noted(CLOSED, OPEN, *[CLOSED] * (TRANSITIONS_KEPT - 1)), None, id="its beginning is not kept"
        ),
    ],
)
def test_how_long_a_node_took_to_open(node: Node, seconds: float | None) -> None:
    assert opened_after(transitions_of(node), NOW - timedelta(seconds=90)) == seconds


def test_a_node_waits_since_it_was_created_or_last_closed() -> None:
    created = NOW - timedelta(seconds=90)

    assert closed_since(transitions_of(noted()), created) == created
    assert closed_since(transitions_of(noted(OPEN, CLOSED)), created) == NOW + timedelta(minutes=1)
    assert closed_since(transitions_of(noted(OPEN)), created) is None


@pytest.mark.parametrize(
    ("to", "ago", "announced_for", "is_late"),
    [
        (CLOSED, 60, "0s", False),
        (CLOSED, 660, "0s", True),
        (CLOSED, 660, "30m", False),
        (CLOSED, 2460, "30m", True),
        pytest.param(OPEN, 660, "0s", False, id="tainted by a user since"),
    ],
)
def test_the_command_finds_a_node_late_that_was_closed_long_ago_however_old_it_is(
    to: str, ago: int, announced_for: str, is_late: bool
) -> None:
    api = cli.installed("anycastIP")
    cli.configure(api, "anycastIP", allowList={"enabled": True, "announceBefore": announced_for})
    metadata = noted(OPEN).metadata
    closed = with_transition(Node(metadata), NOW - timedelta(seconds=ago), to, "eip-0")
    node = {
        "metadata": {
            "name": "n1",
            "labels": {NEED_LABEL: "true"},
            "annotations": closed,
            "creationTimestamp": rfc3339(NOW - timedelta(days=1)),
        },
        "spec": {"taints": [msgspec.to_builtins(TAINT)]},
    }
    api.put(NODES, node)
    found = [each["what"] for each in cli.shown(api, "status")["problems"] if "taint" in each["what"]]
    assert bool(found) is is_late


def changed(lab: Lab) -> list[str]:
    return [each.to for each in transitions_of(lab.node())]


def test_a_node_that_joins_has_its_opening_and_no_write_more() -> None:
    lab = Lab()
    patches: list[Any] = []
    lab.kube.before_write = lambda name, body: patches.append(body) if name in ("n1", "status") else None
    lab.opened(seconds=30)
    lab.run_for(30)
    assert [each.keys() - {"metadata"} for each in patches] == [{"spec"}, {"status"}]
    (opened,) = transitions_of(lab.node())
    (address,) = lab.on()
    assert (opened.to, opened.address) == (OPEN, address.id)


def test_a_node_that_was_there_before_it_was_closed_has_not_joined_for_as_long_as_it_is_old() -> None:
    lab, (before, so_far) = Lab(), (metric("open_seconds_sum"), opened_so_far())
    lab.join(gated=False)
    lab.edit("n1", {"metadata": {"creationTimestamp": rfc3339(NOW - timedelta(days=9))}})
    lab.run(lab.all_open, 60, "open")

    assert opened_so_far() == so_far + 1
    assert metric("open_seconds_sum") - before < 60


def test_a_node_that_lost_its_address_says_when_and_which() -> None:
    lab = open_lab()
    (address,), before = lab.on(), opened_so_far()
    lab.world.alter(address.id, status="UNBIND", instance_id="")
    lab.run(lambda: changed(lab)[:1] == [CLOSED], 900, "closed")
    assert transitions_of(lab.node())[0].address == address.id
    assert "AnycastIpLost" in lab.recorder.reasons

    lab.run(lambda: changed(lab) == [OPEN, CLOSED, OPEN], 300, "open again")
    lab.run_for(SETTINGS.resync_period * 2)
    assert changed(lab) == [OPEN, CLOSED, OPEN]
    assert opened_so_far() == before  # it has not taken since its creation to join
