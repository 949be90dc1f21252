"""Charts of the field with one local replica for all pods: each pod is placed, and where a node takes it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from controllers.elasticity.filters import Request
from controllers.elasticity.fleet import Fleet
from controllers.elasticity.patches import as_sent
from controllers.elasticity.pod_spec import PodSpec
from controllers.elasticity.pods import Pod
from kube.types import INSTANCE_TYPE, SUPER_NODE
from settings import ElasticitySettings
from tests import field_charts
from tests.elasticity_world import World, fleet, is_gated
from tests.field_charts import Raw
from tests.test_elasticity_gate import outcome, request
from webhook.elasticity.webhook import PlacementWebhook

SETTINGS = ElasticitySettings(enabled=True, local_replicas=1)
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.fixture(params=field_charts.CHARTS)
def installed(request: pytest.FixtureRequest) -> World:
    """All pods of a chart, as they come out of admission, and the storage that they ask for."""
    world = World(settings=SETTINGS)
    world.cluster.others["storageclasses", "local-path"] = field_charts.LOCAL_PATH
    for workload in field_charts.workloads_of(request.param):
        world.cluster.first_ordinals[f"uid-{workload['metadata']['name']}"] = 0
        for number in range(field_charts.replicas_of(workload)):
            _create(world, _pod_of(workload, number), workload)
    return world


def _create(world: World, pod: Raw, workload: Raw) -> None:
    admitted, _ = outcome(
        pod, request(pod), PlacementWebhook(lambda: SETTINGS).review(request(pod), deadline=0)
    )
    for each in workload["spec"].get("volumeClaimTemplates", ()):
        name = f"{each['metadata']['name']}-{pod['metadata']['name']}"
        world.cluster.others["persistentvolumeclaims", name] = {
            "metadata": {"name": name},
            "spec": each["spec"],
        }
    world.cluster.put(admitted)


def _pod_of(workload: Raw, number: int) -> dict[str, Any]:
    kind, name = workload["kind"], workload["metadata"]["name"]
    template, group = workload["spec"]["template"], workload["apiVersion"]
    volumes = [
        {
            "name": each["metadata"]["name"],
            "persistentVolumeClaim": {"claimName": f"{each['metadata']['name']}-{name}-{number}"},
        }
        for each in workload["spec"].get("volumeClaimTemplates", ())
    ]
    owner = {"apiVersion": group, "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}
    metadata = {
        "name": f"{name}-{number}",
        "namespace": "field",
        "uid": f"uid-{name}-{number}",
        "labels": {**template["metadata"]["labels"], "pod-template-hash": "1"},
        "annotations": template["metadata"].get("annotations", {}),
        "ownerReferences": [owner],
        "creationTimestamp": "2026-01-02T03:04:05Z",
    }
    spec = {**template["spec"], "volumes": [*template["spec"].get("volumes", ()), *volumes]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": "Pending"},
    }


def test_nothing_of_a_chart_is_stuck(installed: World) -> None:
    installed.leader.settle()
    installed.leader.settle()

    assert [name for name, raw in installed.cluster.pods.items() if is_gated(raw)] == []
    for pod in installed.cluster.decoded():
        if pod.metadata.controller and pod.metadata.controller.kind == "DaemonSet":
            assert _keeps_off(pod)
        elif pod.placed == "super":
            request = Request(pod, msgspec.convert(as_sent(pod), PodSpec))
            assert Fleet(fleet(), lambda _: ()).why_not(request) == ""


def test_each_workload_of_a_chart_keeps_one_local(installed: World) -> None:
    installed.leader.settle()

    placed: dict[str, list[str]] = {}
    for pod in installed.cluster.decoded():
        if pod.metadata.controller and pod.metadata.controller.kind != "DaemonSet":
            placed.setdefault(pod.metadata.controller.name, []).append(pod.placed)
    for name, places in placed.items():
        assert places.count("local") >= 1, name
        # What has a volume of local-path stays, whatever the number.
        assert "super" in places or len(places) == 1 or name.startswith(("prometheus-", "redis-"))


def _keeps_off(pod: Pod) -> bool:
    required = msgspec.convert(
        msgspec.json.decode(pod.unbound.spec if pod.unbound else b"{}"), PodSpec
    ).required
    terms = required.node_selector_terms if required else ()
    return bool(terms) and all(
        any(
            (each.key, each.operator, each.values) == (INSTANCE_TYPE, "NotIn", (SUPER_NODE,))
            for each in term.match_expressions
        )
        for term in terms
    )
