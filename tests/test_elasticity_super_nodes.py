"""Super nodes: what is registered, what is set right again, and what goes when nobody wants it any more."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from controllers.elasticity.super_nodes import (
    ARCH,
    CBS_ZONE,
    HOSTNAME,
    MANAGED_BY,
    NODES,
    OS,
    PODS,
    REGION,
    RESOLV_CONF,
    RETIRED_AT,
    SETTLE,
    SUBNET_ID,
    VERSION,
    ZONE,
    ZONE_NAME,
    Do,
    SuperNodeReconciler,
    manifest,
    plan,
)
from kube.client import Listing, Resource
from kube.errors import AlreadyExists, Conflict, Forbidden, NotFound, Unreachable
from kube.leader_election import LeadershipLost
from kube.super_nodes import INSTANCE_TYPE, SUPER_NODE
from kube.types import Node, Pod
from settings import ElasticitySettings
from tests.api_server import merged
from tests.factories import NOW, raw_pod
from tests.fakes import FakeRecorder
from tests.managed import context_of
from webhook.elasticity import TAINT

OURS = {"key": TAINT.key, "effect": "NoSchedule"}
OTHER = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
NAME = "eklet-subnet-1"


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
    names = {
        "manager": MANAGED_BY,
        "zone": ZONE,
        "zone_name": ZONE_NAME,
        "cbs_zone": CBS_ZONE,
        "version": VERSION,
        "region": REGION,
        "os": OS,
        "arch": ARCH,
        "hostname": HOSTNAME,
    }
    return {"metadata": {"labels": {names[key]: value for key, value in values.items()}}}


def annotated(name: str, value: str) -> dict[str, Any]:
    return {"metadata": {"annotations": {name: value}}}


def retired(ago: timedelta) -> dict[str, Any]:
    return annotated(RETIRED_AT, (NOW - ago).isoformat()) | {"spec": {"unschedulable": True}}


def on_node(name: str, owner: str = "ReplicaSet") -> dict[str, Any]:
    owners = [{"kind": owner, "name": "it", "uid": "uid-it", "controller": True}]
    return raw_pod("busy", metadata={"ownerReferences": owners}, spec={"nodeName": name})


# What is decided


def test_a_super_node_is_registered_as_the_original_registers_it() -> None:
    (step,) = plan([], {}, settings("subnet-1", resolv_conf="nameserver 4.4.4.4\n"), NOW)
    assert (step.do, step.note.reason) == (Do.CREATE, "SuperNodeRegistered")
    assert step.body == {
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


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(node(), id="as it was registered"),
        pytest.param(node(**annotated("kwok.x-k8s.io/node", "fake")), id="with somebody's annotation"),
        pytest.param(node(**annotated(RESOLV_CONF, "nameserver 8.8.8.8")), id="with the user's resolv.conf"),
        pytest.param(
            node(**labels(zone="100003", version="v3", arch="arm64")),
            id="with labels that its runner knows better",
        ),
        pytest.param(node(spec={"taints": [OTHER, OURS]}), id="with a taint beside ours"),
        pytest.param(node(spec={"unschedulable": True}), id="closed by hand"),
        pytest.param(
            node(metadata={"deletionTimestamp": NOW.isoformat()}, spec={"taints": []}), id="on its way out"
        ),
    ],
)
def test_a_super_node_is_left_as_it_is_when_it_is(found: Node) -> None:
    assert plan([found], {}, ONE, NOW) == []


@pytest.mark.parametrize(
    ("found", "configured", "change"),
    [
        pytest.param(
            node(metadata={"labels": {INSTANCE_TYPE: "S5"}}),
            ONE,
            {"metadata": {"labels": {INSTANCE_TYPE: SUPER_NODE}}},
            id="another instance type",
        ),
        pytest.param(
            node(**labels(zone=None)), ONE, labels(zone="ap-guangzhou-3"), id="a label that is missing"
        ),
        pytest.param(
            node(**labels(os=None, arch=None, hostname=None)),
            ONE,
            labels(os="linux", arch="amd64", hostname=NAME),
            id="one of an earlier release, without the well-known labels",
        ),
        pytest.param(
            node(),
            ONE.model_copy(update={"region": "ap-guangzhou"}),
            labels(region="ap-guangzhou"),
            id="a region configured later",
        ),
        pytest.param(
            node(**labels(zone="100003", arch="arm64")),
            settings("subnet-1", zone="ap-guangzhou-4"),
            labels(zone_name="ap-guangzhou-4", zone="ap-guangzhou-4", cbs_zone="ap-guangzhou-4"),
            id="another zone configured",
        ),
        pytest.param(
            node(**annotated(SUBNET_ID, "subnet-9")),
            ONE,
            annotated(SUBNET_ID, "subnet-1"),
            id="another subnet",
        ),
        pytest.param(
            node(**annotated(RESOLV_CONF, "nameserver 8.8.8.8")),
            settings("subnet-1", resolv_conf="nameserver 4.4.4.4"),
            annotated(RESOLV_CONF, "nameserver 4.4.4.4"),
            id="another resolv.conf configured",
        ),
        pytest.param(
            node(spec={"taints": [OTHER]}), ONE, {"spec": {"taints": [OTHER, OURS]}}, id="no taint of ours"
        ),
        pytest.param(
            node(**retired(SETTLE)),
            ONE,
            {"metadata": {"annotations": {RETIRED_AT: None}}, "spec": {"unschedulable": None}},
            id="configured again after it was retired",
        ),
    ],
)
def test_what_makes_it_a_super_node_is_set_right_and_nothing_else(
    found: Node, configured: ElasticitySettings, change: dict[str, Any]
) -> None:
    (step,) = plan([found], {}, configured, NOW)
    assert (step.do, step.note.reason, step.body) == (Do.CHANGE, "SuperNodeRestored", change)


def test_the_event_names_what_was_set_right() -> None:
    (step,) = plan([node(**labels(zone=None), spec={"taints": []})], {}, ONE, NOW)
    assert step.note.message == f"Set as configured: {ZONE}, taints"


def test_a_node_of_somebody_else_is_left_alone_whatever_it_lacks() -> None:
    foreign = node(**labels(manager="Helm", zone_name=None), spec={"taints": []})
    (step,) = plan([foreign], {}, ONE, NOW)
    assert (step.do, step.note.reason, step.note.type) == (Do.NOTHING, "SuperNodeNotOurs", "Warning")
    assert plan([foreign], {NAME: False}, settings(), NOW) == []


def test_a_node_that_is_no_longer_configured_is_closed_before_anything_else() -> None:
    (step,) = plan([node()], {NAME: False}, settings(), NOW)
    assert (step.do, step.note.reason) == (Do.CHANGE, "SuperNodeRetired")
    assert step.body == retired(timedelta())


@pytest.mark.parametrize(
    ("found", "occupied", "goes"),
    [
        pytest.param(retired(SETTLE), {NAME: False}, True, id="closed for long, and empty"),
        pytest.param(retired(SETTLE - timedelta(seconds=1)), {NAME: False}, False, id="closed a moment ago"),
        pytest.param(retired(SETTLE), {NAME: True}, False, id="with pods"),
        pytest.param(retired(SETTLE), {}, False, id="nobody has looked"),
        pytest.param(
            merged(retired(SETTLE), {"metadata": {"deletionTimestamp": NOW.isoformat()}}),
            {NAME: False},
            False,
            id="on its way out already",
        ),
    ],
)
def test_a_node_goes_only_when_it_was_closed_for_long_and_is_empty(
    found: dict[str, Any], occupied: dict[str, bool], goes: bool
) -> None:
    assert [step.do for step in plan([node(**found)], occupied, settings(), NOW)] == [Do.REMOVE] * goes


@pytest.mark.parametrize("written", ["", "yesterday", "2026-01-01T00:00:00"])
def test_a_node_whose_time_cannot_be_read_is_closed_once_more(written: str) -> None:
    (step,) = plan([node(**annotated(RETIRED_AT, written))], {NAME: False}, settings(), NOW)
    assert step.note.reason == "SuperNodeRetired"


def test_only_super_nodes_are_ever_closed() -> None:
    machine = node(metadata={"labels": {INSTANCE_TYPE: "S5.LARGE8"}})
    assert plan([machine], {}, settings(), NOW) == []


# What is done


class Cluster:
    """Nodes, and the pods on them, behind as much of a client as is needed; *before* a request may raise or meddle."""

    def __init__(self, *nodes: dict[str, Any], pods: tuple[dict[str, Any], ...] = ()) -> None:
        self.nodes = {each["metadata"]["name"]: each for each in copy.deepcopy(nodes)}
        self.pods = pods
        self.before: Callable[[str, str], None] = lambda verb, name: None
        self.writes = 0

    def seen(self) -> list[Node]:
        return [msgspec.convert(each, Node) for each in self.nodes.values()]

    def list(self, resource: Resource, *, type: type[Pod], field_selector: str) -> Listing[Pod]:  # noqa: A002
        field, _, name = field_selector.partition("=")
        assert (resource, field) == (PODS, "spec.nodeName")
        self.before("list", name)
        return Listing(
            [msgspec.convert(each, type) for each in self.pods if each["spec"]["nodeName"] == name], "1"
        )

    def create(self, resource: Resource, body: Any, *, type: type[Node]) -> Node:  # noqa: A002
        name = body["metadata"]["name"]
        self.before("create", name)
        if name in self.nodes:
            raise AlreadyExists(409, "AlreadyExists", name)
        return self._stored(resource, merged(body, {"metadata": {"uid": f"uid-{name}"}}), type)

    def patch(self, resource: Resource, name: str, patch: Any, *, type: type[Node]) -> Node:  # noqa: A002
        self.before("patch", name)
        self._check(name, patch["metadata"]["uid"], patch["metadata"]["resourceVersion"])
        return self._stored(resource, merged(self.nodes[name], patch), type)

    def delete(self, resource: Resource, name: str, *, preconditions: dict[str, str]) -> None:
        self.before("delete", name)
        assert resource == NODES
        self._check(name, preconditions["uid"], preconditions["resourceVersion"])
        self.writes += 1
        del self.nodes[name]

    def touch(self, name: str) -> None:
        """As a heartbeat does."""
        meta = self.nodes[name]["metadata"]
        meta["resourceVersion"] = str(int(meta["resourceVersion"]) + 1)

    def _stored(self, resource: Resource, body: Any, type: type[Node]) -> Node:  # noqa: A002
        assert resource == NODES
        self.writes += 1
        body = json.loads(msgspec.json.encode(body))
        name = body["metadata"]["name"]
        version = str(int(self.nodes.get(name, body)["metadata"].get("resourceVersion", "0")) + 1)
        self.nodes[name] = merged(body, {"metadata": {"resourceVersion": version}})
        return msgspec.convert(self.nodes[name], type)

    def _check(self, name: str, uid: str, version: str) -> None:
        if name not in self.nodes:
            raise NotFound(404, "NotFound", name)
        held = self.nodes[name]["metadata"]
        if (held["uid"], held["resourceVersion"]) != (uid, version):
            raise Conflict(409, "Conflict", name)


class Scene:
    """A reconciler of super nodes in a cluster."""

    def __init__(self, cluster: Cluster, configured: ElasticitySettings = ONE) -> None:
        self.cluster, self.configured, self.now = cluster, configured, NOW
        self.recorder = FakeRecorder()
        self.check: Callable[[], None] = lambda: None
        self.look: Callable[[], list[Node]] = cluster.seen
        self.reconciler = SuperNodeReconciler(
            context_of(cluster, self.recorder, lambda: self.check()),
            lambda: self.look(),
            lambda: self.configured,
            now=lambda: self.now,
        )

    def turn(self, *, after: timedelta = timedelta()) -> None:
        self.now += after
        self.reconciler.reconcile()


def test_all_subnets_have_their_nodes_after_one_turn_and_a_second_one_changes_nothing() -> None:
    scene = Scene(Cluster(), settings("subnet-1", "subnet-2"))
    scene.turn()
    assert set(scene.cluster.nodes) == {"eklet-subnet-1", "eklet-subnet-2"}
    writes = scene.cluster.writes
    scene.turn()
    assert (scene.cluster.writes, scene.recorder.reasons) == (writes, ["SuperNodeRegistered"] * 2)


def test_an_empty_node_whose_subnet_was_taken_away_goes_when_it_was_closed_for_a_while() -> None:
    scene = Scene(Cluster(raw_node(), pods=(on_node(NAME, "DaemonSet"), on_node("elsewhere"))), settings())
    scene.turn()
    assert scene.cluster.nodes[NAME]["spec"]["unschedulable"] is True
    scene.turn(after=SETTLE / 2)
    assert NAME in scene.cluster.nodes
    scene.turn(after=SETTLE / 2)
    assert scene.cluster.nodes == {}
    assert scene.recorder.reasons == ["SuperNodeRetired", "SuperNodeRemoved"]


def test_a_node_stays_as_long_as_a_pod_is_on_it_finished_or_not() -> None:
    finished = on_node(NAME, "Job") | {"status": {"phase": "Succeeded"}}
    scene = Scene(Cluster(raw_node(), pods=(finished,)), settings())
    scene.turn()
    scene.turn(after=SETTLE * 100)
    assert NAME in scene.cluster.nodes
    scene.cluster.pods = ()
    scene.turn()
    assert scene.cluster.nodes == {}


def test_a_node_stays_when_it_cannot_be_seen_whether_pods_are_on_it_and_holds_up_no_other() -> None:
    scene = Scene(Cluster(raw_node(**retired(SETTLE))), settings("subnet-2"))
    scene.cluster.before = lambda verb, name: fail(Unreachable("no answer")) if verb == "list" else None
    scene.turn()
    assert set(scene.cluster.nodes) == {NAME, "eklet-subnet-2"}


def test_a_node_that_is_configured_again_before_it_went_is_opened_again() -> None:
    scene = Scene(Cluster(raw_node()), settings())
    scene.turn()
    scene.configured = ONE
    scene.turn(after=SETTLE)
    assert "unschedulable" not in scene.cluster.nodes[NAME]["spec"]
    assert RETIRED_AT not in scene.cluster.nodes[NAME]["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("found", "configured"),
    [
        pytest.param(raw_node(**labels(zone=None)), ONE, id="set right"),
        pytest.param(raw_node(), settings(), id="closed"),
        pytest.param(raw_node(**retired(SETTLE)), settings(), id="taken away"),
    ],
)
def test_a_node_that_changed_since_it_was_seen_is_not_touched(
    found: dict[str, Any], configured: ElasticitySettings
) -> None:
    scene = Scene(Cluster(found), configured)
    seen = scene.cluster.seen()
    scene.look = lambda: seen
    scene.cluster.touch(NAME)
    before = copy.deepcopy(scene.cluster.nodes)
    scene.turn()
    assert (scene.cluster.nodes, scene.recorder.reasons) == (before, [])


def test_a_node_that_was_created_anew_under_its_name_is_not_touched() -> None:
    scene = Scene(Cluster(raw_node(**retired(SETTLE))), settings())
    seen = scene.cluster.seen()
    scene.look = lambda: seen
    scene.cluster.nodes[NAME]["metadata"]["uid"] = "another"
    scene.turn()
    assert NAME in scene.cluster.nodes


def test_one_node_that_cannot_be_written_holds_up_no_other() -> None:
    scene = Scene(Cluster(), settings("subnet-1", "subnet-2"))
    scene.cluster.before = lambda verb, name: (
        fail(Forbidden(403, "Forbidden", "no")) if name == NAME else None
    )
    scene.turn()
    assert set(scene.cluster.nodes) == {"eklet-subnet-2"}


def test_a_name_that_is_taken_is_told_once() -> None:
    scene = Scene(Cluster(raw_node(**labels(manager="Helm"))))
    scene.turn()
    scene.turn()
    assert (scene.recorder.reasons, scene.cluster.writes) == (["SuperNodeNotOurs"], 0)


def test_nothing_is_written_without_leadership() -> None:
    scene = Scene(Cluster())
    scene.check = lambda: fail(LeadershipLost("it is another's"))
    with pytest.raises(LeadershipLost):
        scene.turn()
    assert scene.cluster.nodes == {}


def test_one_node_that_cannot_be_written_keeps_no_other() -> None:
    scene = Scene(Cluster(), settings("subnet-1", "subnet-2", "subnet-3"))
    checks = iter(range(100))
    scene.check = lambda: fail(ValueError("a slip")) if next(checks) == 0 else None
    scene.turn()
    assert len(scene.cluster.nodes) == 2
    scene.turn()
    assert len(scene.cluster.nodes) == 3


def fail(error: Exception) -> Any:
    raise error
