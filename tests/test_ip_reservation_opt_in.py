"""Running pods get the annotation of their workload: which pods, when, and what goes wrong."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from api.ip_reservation import RESERVE, RESERVE_FROM
from controllers.ip_reservation.caches import decode_pod
from controllers.ip_reservation.opt_in import (
    KINDS,
    OptInReconciler,
    Workload,
    decode_workload,
)
from dev.fake_api.calls import Refused
from kube.errors import Forbidden
from kube.resources import PODS
from kube.types import Namespace, ObjectMeta, Pod
from tests.factories import raw_pod
from tests.fakes import FakeStore
from tests.ip_reservation_world import TERMINATING, Raw, Served, encoded
from tests.metrics import sample

BY = {
    "Deployment": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d8f", "controller": True},
    "StatefulSet": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "redis", "controller": True},
}
NAMES = {"Deployment": "web", "StatefulSet": "redis"}
COPIES = {kind: {RESERVE: "true", RESERVE_FROM: f"{kind}/{name}=true"} for kind, name in NAMES.items()}
each_kind = pytest.mark.parametrize("kind", KINDS)


class World(Served):
    def __init__(self, **settings: object) -> None:
        super().__init__(**({"workloadOptIn": True, "labelSelector": {}} | settings))
        workloads: Any = {kind: FakeStore(partial(self._workloads, kind)) for kind in KINDS}
        self.reconciler = OptInReconciler(
            self.caches, workloads, self.api.client(), lambda: self.settings, self.reporter
        )

    def _workloads(self, kind: str) -> list[Workload]:
        return [decode_workload(encoded(raw)) for raw in self.api.list(KINDS[kind])]

    def workload(self, kind: str, value: str | None = "true", namespace: str = "redis") -> Workload:
        annotations = {} if value is None else {RESERVE: value}
        metadata = {"name": NAMES[kind], "namespace": namespace, "annotations": annotations}
        return decode_workload(encoded(self.api.put(KINDS[kind], {"metadata": metadata})))

    def pod(self, kind: str, name: str = "a", **parts: Any) -> Pod:
        """A pod of the workload of *kind*, which exists."""
        namespace = parts.get("namespace", "redis")
        found = self.api.find(KINDS[kind], NAMES[kind], namespace)
        uid = found["metadata"]["uid"] if found and kind == "StatefulSet" else "uid-of-owner"
        metadata = {
            "labels": {"pod-template-hash": "5d8f"} if kind == "Deployment" else {},
            "ownerReferences": [BY[kind] | {"uid": uid}],
        }
        raw = raw_pod(name, **parts | {"metadata": metadata | parts.get("metadata", {})})
        return decode_pod(encoded(self.put_pod(raw)))

    def reconcile(self) -> None:
        """Twice: nothing more is to be done then."""
        self.reconciler.reconcile("redis/a")
        version = self.api.version
        if not self.stale:
            self.reconciler.reconcile("redis/a")
            assert self.api.version == version


def copies() -> list[float]:
    return [sample("drawbridge_copied_annotations_total", action=each) for each in ("copied", "removed")]


@each_kind
def test_a_running_pod_follows_its_workload(kind: str) -> None:
    world, (copied, removed) = World(), copies()
    world.workload(kind)
    uid = world.pod(kind).metadata.uid

    world.reconcile()
    assert world.annotations("a") == COPIES[kind]

    world.workload(kind, "FALSE")
    world.reconcile()
    assert world.annotations("a") == {RESERVE: "false", RESERVE_FROM: f"{kind}/{NAMES[kind]}=false"}

    world.workload(kind, None)
    world.reconcile()
    assert world.annotations("a") == {}
    assert world.api.get(PODS, "a", "redis")["metadata"]["uid"] == uid
    assert copies() == [copied + 2, removed + 1]


@each_kind
@pytest.mark.parametrize(
    "parts",
    [
        pytest.param({"metadata": {"annotations": {RESERVE: "false"}}}, id="it says itself"),
        pytest.param({"spec": {"hostNetwork": True}}, id="host network"),
        pytest.param({"metadata": TERMINATING["metadata"]}, id="terminating"),
        pytest.param({"status": {"phase": "Succeeded"}}, id="finished"),
        pytest.param({"metadata": {"ownerReferences": []}}, id="no owner"),
    ],
)
def test_a_pod_that_is_left_alone(kind: str, parts: Raw) -> None:
    world = World()
    world.workload(kind)
    world.pod(kind, **parts)
    before = world.api.get(PODS, "a", "redis")

    world.reconcile()
    assert world.api.get(PODS, "a", "redis") == before


def test_a_stateful_set_that_has_taken_the_name_of_another_says_nothing_about_its_pods() -> None:
    world = World()
    world.pod("StatefulSet")
    world.workload("StatefulSet")

    world.reconcile()
    assert world.annotations("a") == {}


@each_kind
def test_a_write_that_meets_another_one_changes_nothing(kind: str) -> None:
    """What a user said meanwhile stays."""
    world = World()
    world.workload(kind)
    world.pod(kind)
    world.stale = {"a": world.api.get(PODS, "a", "redis")}
    world.api.edit(PODS, "a", {"metadata": {"annotations": {RESERVE: "false"}}}, "redis")

    world.reconcile()
    assert world.annotations("a") == {RESERVE: "false"}

    world.stale = {}
    world.reconcile()
    assert world.annotations("a") == {RESERVE: "false"}
    assert world.recorder.reasons == []


def test_a_refused_write_is_retried_and_an_event_says_so() -> None:
    world = World()
    world.workload("Deployment")
    world.pod("Deployment")
    world.api.fault = lambda call: Refused(403, "Forbidden", "no").reply if call.method == "PATCH" else None

    with pytest.raises(Forbidden):
        world.reconcile()
    assert (world.recorder.reasons, world.recorder.about) == (["ReserveIPNotCopied"], ["a"])
    assert "of Deployment/web" in world.recorder.events[0][1]

    world.api.fault = lambda call: None
    world.reconcile()
    assert world.annotations("a") == COPIES["Deployment"]


# Which pods are reconciled, and when


@each_kind
def test_a_workload_whose_annotation_changes_has_its_pods_reconciled(kind: str) -> None:
    world = World()
    silent, says = world.workload(kind, None), world.workload(kind)
    for name in ("a", "b"):
        world.pod(kind, name)
    world.pod("StatefulSet" if kind == "Deployment" else "Deployment", "c")

    for old, new, expected in [
        (None, silent, {"redis/a", "redis/b"}),  # it may have said something before we came
        (silent, says, {"redis/a", "redis/b"}),
        (says, silent, {"redis/a", "redis/b"}),
        (says, says, set()),
        (says, None, set()),
    ]:
        assert {*world.reconciler.workload_changed(kind, old, new)} == expected


@each_kind
def test_a_namespace_that_is_selected_has_its_pods_reconciled(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the start each of them is: it costs no look at the pods of all others."""
    world = World()
    monkeypatch.setattr(world.caches.pods, "list", pytest.fail)
    world.workload(kind)
    world.pod(kind)
    observe, selected = world.reconciler.namespace_changed, Namespace(ObjectMeta(name="redis"))

    assert not [*observe(None, Namespace(ObjectMeta(name="other")))]
    assert not [*observe(selected, selected), *observe(selected, None)]
    assert [*observe(None, selected)] == ["redis/a"]
