"""The demo's nodes: what it shows of them, and what it calls kept, from what was seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec
import pytest
import yaml
from msgspec.structs import replace

from controllers.anycast_ip.claim import SELECTED, Claim, body, instance_of
from demo import stage
from demo.fleet import Fleet, Look
from demo.fleet_promises import no_pod_too_early, nothing_left, one_address_each, opened_when_bound
from demo.scenes import join
from kube.client import Client, Listing
from kube.types import Node
from lab.cloud import Knobs, serving
from lab.cloud.remote import Remote
from lab.cloud.values import Address, Call
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
PLAYED = list(yaml.safe_load_all((stage.ROOT / "demo" / "nodes.yaml").read_text()))

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
    labels: dict[str, str] | None = None,
) -> Event:
    """A node as it was told at *revision*."""
    raw = cloud_node("cloud-0", INSTANCE, {NEED_LABEL: "true"} if labels is None else labels)
    raw["metadata"] |= {"uid": "uid-0", "resourceVersion": str(revision)}
    raw["metadata"]["annotations"] |= {ADDRESS_ID: address} if address else {}
    raw["spec"]["taints"] = [msgspec.to_builtins(TAINT)] if tainted else []
    return _told(msgspec.convert(raw, Node), gone, after)


def born(revision: int = 1) -> Event:
    return node(revision, tainted=True, address="")


def server(revision: int, *, name: str = "web-0", gone: bool = False) -> Event:
    came = pod(name, namespace="web", spec={"nodeName": "cloud-0"})
    return _told(replace(came, metadata=replace(came.metadata, resource_version=str(revision))), gone, 0)


def _told(what: Any, gone: bool, after: float) -> Event:
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
        pytest.param([born(), node(5)], "cloud-0 was open, but eip-1 was not looked at", id="not looked at"),
        pytest.param(
            [born(), binding(), node(5, after=2.0), look(BIND)],
            "cloud-0 was open 1.0 s before eip-1 was bound",
            id="bound by the time one looked",
        ),
        pytest.param([born(), binding()], "cloud-0 has not opened", id="not opened"),
        pytest.param([], "0 of 1 nodes were seen", id="no node"),
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
        pytest.param(
            [node(1, address=""), server(2), look(BIND)],
            "web-0 came to cloud-0, which was open without an address",
            id="when it should not have been open",
        ),
        pytest.param(OPENED, "0 of 1 pods came", id="no pod"),
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
        pytest.param([*OPENED, look()], "cloud-0 shows eip-1, but has none", id="none"),
        pytest.param(
            [*OPENED, look(BIND, ordered=2)], "2 addresses were ordered for 1 nodes", id="one was forgotten"
        ),
        pytest.param([*LEFT, look()], "there was nothing to judge by", id="no node"),
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
        pytest.param(OPENED, "cloud-0 is still there", id="node"),
        pytest.param([born(), node(9, gone=True)], "nobody asked the cloud; cloud-0 had no address", id="no"),
    ],
)
def test_nothing_is_left_of_a_node_that_is_gone(events: Sequence[Event], evidence: str) -> None:
    promise = nothing_left(fleet(*events), "cloud-0")
    assert (promise.kept, promise.evidence) == ("its end" in evidence, evidence)


def test_what_is_on_record_is_read_from_cloud_and_cluster() -> None:
    with serving(Knobs(bind_seconds=60), clock=lambda: BOUND_AT) as cloud:
        free = cloud.world.add_address(tags=EIP.tags)
        cloud.world.begin("bind", [replace(free, instance_id=INSTANCE)], 60)
        other = cloud.world.add_address(status="BIND", tags={"team": "a"})
        cloud.world.begin("unbind", [other], 60)
        cloud.world.log.extend(order(outcome) for outcome in ("LimitExceeded", "OK"))
        seen = stage.on_record(Remote(cloud.endpoint), cast(Client, ClaimOf("uid-0")))
    assert [(each.id, each.status) for each in seen.addresses] == [
        (free.id, "BINDING"),
        (other.id, "UNBINDING"),
    ]
    assert seen.binding == {free.id: datetime.fromtimestamp(BOUND_AT + 60, UTC)}
    assert seen.tags == {"cloud-0", INSTANCE, "a"}
    assert seen.ordered == 1
    assert seen.claims == {"uid-0"}


def order(outcome: str) -> Call:
    return Call(
        at=0.0,
        action="AllocateAddresses",
        region="",
        outcome=outcome,
        delivered=True,
        params=None,
        request_id="",
    )


class ClaimOf:
    """A cluster with one claim."""

    def __init__(self, uid: str) -> None:
        claim = Claim(uid=uid, node="cloud-0", instance=INSTANCE, token="t", name="a", asked=NOW)
        self._claim = body(claim)

    def list(self, *_: object, label_selector: str) -> Listing[Any]:
        assert label_selector == SELECTED
        return Listing([self._claim], "1")


def test_the_nodes_that_join_are_those_that_are_awaited() -> None:
    nodes = msgspec.convert(PLAYED, list[Node])
    assert join.LEAVER in [each.metadata.name for each in nodes]
    assert len({instance_of(each) for each in nodes} - {""}) == join.NODES == len(nodes)
    assert all(each.metadata.labels[NEED_LABEL] == "true" for each in nodes)


def test_the_servers_that_wait_for_nodes_are_those_that_are_awaited() -> None:
    namespace, servers = yaml.safe_load_all((stage.ROOT / "demo" / "web.yaml").read_text())
    assert namespace["metadata"]["name"] == servers["metadata"]["namespace"] == join.NAMESPACE
    assert servers["spec"]["replicas"] == join.SERVERS
    assert servers["spec"]["template"]["spec"]["nodeSelector"] == {NEED_LABEL: "true"}
