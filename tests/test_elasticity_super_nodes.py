"""Super nodes: what is registered, what is restored, and what is removed when its subnet is not configured."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from api.elasticity import TAINT
from controllers.controller import Clock
from controllers.elasticity import super_nodes
from controllers.elasticity.super_nodes import (
    RESOLV_CONF,
    RETIRED_AT,
    SETTLE,
    SUBNET_ID,
    ZONE,
    SuperNodeReconciler,
    manifest,
    plan,
)
from dev.fake_api import FakeAPI, merged, refusal
from kube.resources import NODES, PODS
from kube.types import INSTANCE_TYPE, SUPER_NODE, Node
from settings import ElasticitySettings
from tests.factories import NOW, raw_pod
from tests.fakes import FakeClock, FakeRecorder
from tests.managed import context_of
from tests.tables import table

OURS = {"key": TAINT.key, "effect": "NoSchedule"}
OTHER = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
NAME, OTHER_NAME = "eklet-subnet-1", "eklet-subnet-2"


def settings(*subnets: str, zone: str = "ap-guangzhou-3", resolv_conf: str = "") -> ElasticitySettings:
    named = [{"id": subnet, "zone": zone} for subnet in subnets]
    return ElasticitySettings.model_validate({"enabled": True, "subnets": named, "resolvConf": resolv_conf})


ONE = settings("subnet-1")


def raw_node(subnet: str = "subnet-1", **change: Any) -> dict[str, Any]:
    """As we register it, with *change* merged into it."""
    made = manifest(settings(subnet).subnets[0], ONE)
    made["metadata"] |= {"uid": f"uid-{subnet}", "resourceVersion": "1"}
    return merged(made, change)


def node(subnet: str = "subnet-1", **change: Any) -> Node:
    return msgspec.convert(raw_node(subnet, **change), Node)


def labels(**values: str | None) -> dict[str, Any]:
    """By the names of the constants, in small letters."""
    return {
        "metadata": {"labels": {getattr(super_nodes, name.upper()): value for name, value in values.items()}}
    }


def annotated(name: str, value: str) -> dict[str, Any]:
    return {"metadata": {"annotations": {name: value}}}


RETIRED = annotated(RETIRED_AT, NOW.isoformat()) | {"spec": {"unschedulable": True}}


# What is decided


def test_a_super_node_is_registered_as_the_original_registers_it() -> None:
    (action,) = plan([], settings("subnet-1", resolv_conf="nameserver 4.4.4.4\n"), NOW)
    assert (action.verb, action.reason) == ("create", "SuperNodeRegistered")
    assert action.body == {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "eklet-subnet-1",
            "labels": {
                "node.kubernetes.io/instance-type": "eklet",
                "eks.tke.cloud.tencent.com/zone-name": "ap-guangzhou-3",
                "topology.kubernetes.io/zone": "ap-guangzhou-3",
                "eks.tke.cloud.tencent.com/version": "v2",
                "app.kubernetes.io/managed-by": "drawbridge",
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": "eklet-subnet-1",
                "topology.com.tencent.cloud.csi.cbs/zone": "ap-guangzhou-3",
            },
            "annotations": {
                "eks.tke.cloud.tencent.com/subnet-id": "subnet-1",
                "eks.tke.cloud.tencent.com/resolv-conf": "nameserver 4.4.4.4\n",
            },
        },
        "spec": {"taints": [{"key": "eks.tke.cloud.tencent.com/eklet", "effect": "NoSchedule"}]},
    }


@table(
    "found",
    {
        "as it was registered": node(),
        "with an annotation of another writer": node(**annotated("kwok.x-k8s.io/node", "fake")),
        "with the user's resolv.conf": node(**annotated(RESOLV_CONF, "nameserver 8.8.8.8")),
        "with labels that its runner knows better": node(**labels(zone="100003", version="v3", arch="arm64")),
        "with a taint beside ours": node(spec={"taints": [OTHER, OURS]}),
        "closed by hand": node(spec={"unschedulable": True}),
        "on its way out": node(metadata={"deletionTimestamp": NOW.isoformat()}, spec={"taints": []}),
    },
)
def test_a_super_node_without_drift_is_not_written(found: Node) -> None:
    assert plan([found], ONE, NOW) == []


@table(
    "found, configured, change",
    {
        "another instance type": (
            node(metadata={"labels": {INSTANCE_TYPE: "S5"}}),
            ONE,
            {"metadata": {"labels": {INSTANCE_TYPE: SUPER_NODE}}},
        ),
        "a label that is missing": (node(**labels(zone=None)), ONE, labels(zone="ap-guangzhou-3")),
        "one of an earlier release, without the well-known labels": (
            node(**labels(os=None, arch=None, hostname=None)),
            ONE,
            labels(os="linux", arch="amd64", hostname=NAME),
        ),
        "a region configured later": (
            node(),
            ONE.model_copy(update={"region": "ap-guangzhou"}),
            labels(region="ap-guangzhou"),
        ),
        "another zone configured": (
            node(**labels(zone="100003", arch="arm64")),
            settings("subnet-1", zone="ap-guangzhou-4"),
            labels(zone_name="ap-guangzhou-4", zone="ap-guangzhou-4", cbs_zone="ap-guangzhou-4"),
        ),
        "another subnet": (node(**annotated(SUBNET_ID, "subnet-9")), ONE, annotated(SUBNET_ID, "subnet-1")),
        "another resolv.conf configured": (
            node(**annotated(RESOLV_CONF, "nameserver 8.8.8.8")),
            settings("subnet-1", resolv_conf="nameserver 4.4.4.4"),
            annotated(RESOLV_CONF, "nameserver 4.4.4.4"),
        ),
        "no taint of ours": (node(spec={"taints": [OTHER]}), ONE, {"spec": {"taints": [OTHER, OURS]}}),
        "configured again after it was retired": (
            node(**RETIRED),
            ONE,
            {"metadata": {"annotations": {RETIRED_AT: None}}, "spec": {"unschedulable": None}},
        ),
    },
)
def test_drift_of_what_makes_it_a_super_node_is_corrected_and_nothing_else(
    found: Node, configured: ElasticitySettings, change: dict[str, Any]
) -> None:
    (action,) = plan([found], configured, NOW)
    assert (action.verb, action.reason, action.body) == ("change", "SuperNodeRestored", change)


def test_the_event_names_what_was_restored() -> None:
    (action,) = plan([node(**labels(zone=None), spec={"taints": []})], ONE, NOW)
    assert action.message == f"Set as configured: {ZONE}, taints"


def test_an_unmanaged_node_is_left_as_it_is_whatever_it_lacks() -> None:
    unmanaged = node(**labels(managed_by="Helm", zone_name=None), spec={"taints": []})
    (action,) = plan([unmanaged], ONE, NOW)
    assert (action.verb, action.reason) == ("nothing", "SuperNodeNotOurs")
    assert plan([unmanaged], settings(), NOW) == []


@table(
    "found, closed, verbs",
    {
        "closed for long": (RETIRED, SETTLE, ["remove"]),
        "closed a moment ago": (RETIRED, SETTLE - 1, []),
        "on its way out": (merged(RETIRED, {"metadata": {"deletionTimestamp": NOW.isoformat()}}), SETTLE, []),
    },
)
def test_a_node_goes_only_when_it_was_closed_for_long(
    found: dict[str, Any], closed: float, verbs: list[str]
) -> None:
    actions = plan([node(**found)], settings(), NOW, closed={NAME: closed})
    assert [action.verb for action in actions] == verbs


def test_only_super_nodes_are_ever_closed() -> None:
    machine = node(metadata={"labels": {INSTANCE_TYPE: "S5.LARGE8"}})
    assert plan([machine], settings(), NOW) == []


# What is done


class World:
    """A reconciler of super nodes at a fake API server."""

    def __init__(self, *nodes: dict[str, Any], configured: ElasticitySettings = ONE) -> None:
        self.api, self.recorder = FakeAPI(), FakeRecorder()
        for each in nodes:
            self.api.put(NODES, each)
        self.configured, self.clock = configured, FakeClock(0.0)
        self.check: Callable[[], object] = lambda: None
        self.seen: list[Node] | None = None
        self.lead()

    def lead(self, ahead: float = 0.0) -> None:
        """From now on another leader reconciles, whose clock is so many seconds *ahead*."""
        context = context_of(self.api.client(), self.recorder, lambda: self.check())  # type: ignore[arg-type, return-value]
        clock = Clock(lambda: NOW + timedelta(seconds=self.clock() + ahead), self.clock)
        self.reconciler = SuperNodeReconciler(context, self.known, lambda: self.configured, clock)

    def known(self) -> list[Node]:
        """As the informer has them: what was *seen*, or all existing ones."""
        return self.seen or [msgspec.convert(each, Node) for each in self.api.list(NODES)]

    def reconcile(self, *, after: float = 0.0) -> None:
        self.clock.advance(after)
        self.reconciler.reconcile()

    def nodes(self) -> dict[str, dict[str, Any]]:
        return {each["metadata"]["name"]: each for each in self.api.list(NODES)}

    def run(self, name: str, owner: str, **status: str) -> None:
        """A pod on the node of that *name*."""
        owners = [{"kind": owner, "name": "it", "uid": "uid-it", "controller": True}]
        metadata = {"ownerReferences": owners}
        self.api.put(PODS, raw_pod(f"on-{name}", metadata=metadata, spec={"nodeName": name}, status=status))


def test_all_subnets_have_their_nodes_after_one_run_and_a_second_one_changes_nothing() -> None:
    world = World(configured=settings("subnet-1", "subnet-2"))
    world.reconcile()
    assert set(world.nodes()) == {NAME, "eklet-subnet-2"}
    writes = len(world.api.writes)
    world.reconcile()

    assert (len(world.api.writes), world.recorder.reasons) == (writes, ["SuperNodeRegistered"] * 2)


def test_an_empty_node_without_a_subnet_is_removed_when_it_was_closed_for_a_while() -> None:
    world = World(raw_node(), configured=settings())
    world.run(NAME, "DaemonSet")
    world.run("elsewhere", "ReplicaSet")
    world.reconcile()
    assert world.nodes()[NAME]["spec"]["unschedulable"] is True
    world.reconcile(after=5.0)
    world.reconcile(after=SETTLE - 1.0)
    assert NAME in world.nodes()
    world.reconcile(after=1.0)

    assert NAME not in world.nodes()
    assert world.recorder.reasons == ["SuperNodeRetired", "SuperNodeRemoved"]


@pytest.mark.parametrize("ahead", [300.0, -300.0])
def test_a_new_leader_counts_from_when_it_first_sees_the_node_closed(ahead: float) -> None:
    world = World(raw_node(), configured=settings())
    world.reconcile()
    world.lead(ahead)
    world.reconcile()
    assert NAME in world.nodes()
    world.reconcile(after=SETTLE)

    assert NAME not in world.nodes()


def test_a_node_that_is_opened_by_hand_before_it_is_removed_is_closed_once_more() -> None:
    """A pod may be on its way to it."""
    world = World(raw_node(**RETIRED), configured=settings())
    world.reconcile()
    world.api.edit(NODES, NAME, {"spec": {"unschedulable": None}})
    world.reconcile(after=SETTLE)

    assert world.nodes()[NAME]["spec"]["unschedulable"] is True


def test_a_node_stays_as_long_as_a_pod_is_on_it_finished_or_not() -> None:
    world = World(raw_node(), configured=settings())
    world.run(NAME, "Job", phase="Succeeded")
    world.reconcile()
    world.reconcile(after=5.0)
    world.reconcile(after=SETTLE * 100)
    assert NAME in world.nodes()
    world.api.remove(PODS, f"on-{NAME}", "redis")
    world.reconcile()

    assert world.nodes() == {}


@table(
    "found, configured",
    {
        "restored": (raw_node(**labels(zone=None)), ONE),
        "closed": (raw_node(), settings()),
        "removed": (raw_node(**RETIRED), settings()),
    },
)
@pytest.mark.parametrize("replaced", [False, True])
def test_a_node_that_changed_since_it_was_seen_is_not_touched(
    found: dict[str, Any], configured: ElasticitySettings, replaced: bool
) -> None:
    world = World(found, configured=configured)
    world.api.fault = lambda call: refusal(503, "ServiceUnavailable") if call.method != "GET" else None
    world.reconcile()
    world.api.fault = lambda call: None
    world.seen = world.known()
    world.clock.advance(SETTLE)
    if replaced:
        world.api.remove(NODES, NAME)
        world.api.put(NODES, merged(found, {"metadata": {"uid": "another"}}))
    world.api.edit(NODES, NAME, annotated("x", "y"))
    before = world.nodes()
    world.reconcile()

    assert (world.nodes(), world.recorder.reasons) == (before, [])


def test_a_failed_request_affects_no_other_node() -> None:
    world = World(raw_node(**RETIRED), configured=settings("subnet-2", "subnet-3"))

    def fault(call: Any) -> Any:
        is_refused = (
            call.path == "/api/v1/pods" or (call.body or {}).get("metadata", {}).get("name") == OTHER_NAME
        )
        return refusal(403, "Forbidden") if is_refused else None

    world.api.fault = fault
    world.reconcile()
    world.reconcile(after=SETTLE)

    assert set(world.nodes()) == {NAME, "eklet-subnet-3"}


def test_an_unmanaged_node_is_reported_once() -> None:
    world = World(raw_node(**labels(managed_by="Helm")))
    world.reconcile()
    world.reconcile()

    assert (world.recorder.reasons, list(world.api.writes)) == (["SuperNodeNotOurs"], [])
