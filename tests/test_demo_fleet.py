"""The demo's promises about nodes with anycast IPs are judged by what was seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from demo.fleet import Fleet, Look
from demo.fleet_promises import no_pod_too_early, nothing_left, one_address_each, opened_when_bound
from kube.types import Node
from lab.cloud.values import Address
from lab.history import Observation
from lab.nodes import cloud_node
from settings.anycast_ip import NEED_LABEL
from tests.factories import NOW, pod
from webhook.anycast_ip import ADDRESS_ID, TAINT

INSTANCE = "ins-11112222"
EIP = Address(
    id="eip-1",
    ip="198.18.0.1",
    region="ap-singapore",
    created=0.0,
    tags={"aia-node-name": "cloud-0", "aia-node-ins-id": INSTANCE},
)
BINDING = replace(EIP, status="BINDING", instance_id=INSTANCE)
BIND = replace(EIP, status="BIND", instance_id=INSTANCE)
BOUND_AT = 3.0

Event = Callable[[Fleet], None]


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def node(
    revision: int,
    *,
    after: float = 0.0,
    tainted: bool = False,
    address: str = "eip-1",
    gone: bool = False,
) -> Event:
    """A node as it was at *revision*."""
    raw = cloud_node("cloud-0", INSTANCE, {NEED_LABEL: "true"})
    raw["metadata"] |= {"uid": "uid-0", "resourceVersion": str(revision)}
    raw["metadata"]["annotations"] |= {ADDRESS_ID: address} if address else {}
    raw["spec"]["taints"] = [msgspec.to_builtins(TAINT)] if tainted else []
    return _seen(msgspec.convert(raw, Node), gone, after)


def born() -> Event:
    return node(1, tainted=True, address="")


def server(revision: int) -> Event:
    came = pod("web-0", namespace="web", spec={"nodeName": "cloud-0"})
    return _seen(replace(came, metadata=replace(came.metadata, resource_version=str(revision))), False, 0)


def _seen(what: Any, gone: bool, after: float) -> Event:
    return lambda fleet: fleet.add(Observation(what, gone, at(after)))


def look(*addresses: Address, after: float = 0.0, ordered: int = 1, **record: Any) -> Event:
    seen = Look(at(after), addresses, ordered, **record)
    return lambda fleet: fleet.look(seen)


def binding() -> Event:
    return look(BINDING, binding={"eip-1": at(BOUND_AT)})


def fleet(*events: Event) -> Fleet:
    played = Fleet()
    for event in events:
        event(played)
    return played


OPENED: Sequence[Event] = (born(), binding(), node(5, after=3.5), look(BIND))
LEFT: Sequence[Event] = (*OPENED, node(9, after=8.0, gone=True))


@pytest.mark.parametrize(
    ("events", "evidence"),
    [
        pytest.param(OPENED, "1 of 1, 0.5 s after the cloud had bound it", id="kept"),
        pytest.param(
            [node(1, tainted=False, address=""), look()],
            "cloud-0 was born without the taint; cloud-0 was open without an address",
            id="born open",
        ),
        pytest.param(
            [born(), node(5, address=""), look()], "cloud-0 was open without an address", id="no address"
        ),
        pytest.param(
            [born(), node(5), look(BINDING)], "cloud-0 was open, but eip-1 was BINDING", id="not yet bound"
        ),
        pytest.param(
            [born(), binding(), node(5, after=2.0), look(BIND)],
            "cloud-0 was open 1.0 s before eip-1 was bound",
            id="bound by the time one looked",
        ),
    ],
)
def test_a_node_opens_only_when_its_address_is_bound(events: Sequence[Event], evidence: str) -> None:
    promise = opened_when_bound(fleet(*events), 1)
    assert (promise.kept, promise.evidence) == ("1 of 1" in evidence, evidence)


@pytest.mark.parametrize(
    ("events", "evidence"),
    [
        pytest.param([*OPENED, server(7)], "1 of 1 pods, 2 revisions after the opening", id="kept"),
        pytest.param([*OPENED, server(4)], "web-0 came to cloud-0, which was not open", id="too early"),
    ],
)
def test_pods_come_only_to_open_nodes(events: Sequence[Event], evidence: str) -> None:
    promise = no_pod_too_early(fleet(*events), 1)
    assert (promise.kept, promise.evidence) == ("after" in evidence, evidence)


@pytest.mark.parametrize(
    ("events", "evidence"),
    [
        pytest.param(OPENED, "1 ordered for 1 nodes", id="kept"),
        pytest.param(
            [*OPENED, look(BIND, replace(EIP, id="eip-2"))],
            "cloud-0 shows eip-1, but has eip-1, eip-2",
            id="another one was ordered for it",
        ),
        pytest.param(
            [*OPENED, look(BIND, ordered=2)], "2 addresses were ordered for 1 nodes", id="one was forgotten"
        ),
    ],
)
def test_each_node_has_one_address(events: Sequence[Event], evidence: str) -> None:
    promise = one_address_each(fleet(*events))
    assert (promise.kept, promise.evidence) == (evidence == "1 ordered for 1 nodes", evidence)


@pytest.mark.parametrize(
    ("events", "evidence"),
    [
        pytest.param(
            [*LEFT, look(BIND), look(after=10.0), look(after=11.0)],
            "no address, tag or claim 2.0 s after its end",
            id="kept",
        ),
        pytest.param(LEFT, "198.18.0.1 is BIND", id="bound as if the node were there"),
        pytest.param(
            [*LEFT, look(tags=frozenset({INSTANCE, "cloud-0", "cls-lab00000"}))],
            f"a tag has the value cloud-0; a tag has the value {INSTANCE}",
            id="tags",
        ),
        pytest.param([*LEFT, look(claims=frozenset({"uid-0"}))], "its claim is there", id="claim"),
    ],
)
def test_nothing_is_left_of_a_node_that_is_gone(events: Sequence[Event], evidence: str) -> None:
    promise = nothing_left(fleet(*events), "cloud-0")
    assert (promise.kept, promise.evidence) == ("its end" in evidence, evidence)
