"""`drawbridge simulate scale`: the placements that the leader decides, on the fake API server."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from cli.cluster import Cluster
from cli.errors import Failure
from cli.explain.reader import Installation, Reader
from cli.simulate.reader import REPLICA_SETS, STATEFUL_SETS, simulate_scale
from cli.simulate.scale import Scale
from cli.simulate.scale_in import ScaleIn
from dev.fake_api import FakeAPI
from kube.resources import DEPLOYMENTS, NAMESPACES, NODES, PODS
from tests.charts import helm_needed, render, settings_in
from tests.explained import VALUES, registered
from webhook.elasticity import LOCAL_REPLICAS, TAINT

pytestmark = helm_needed

Raw = dict[str, Any]
SUPER_TAINT = msgspec.to_builtins(TAINT)
SPEC = {"containers": [{"name": "app", "image": "app"}]}


@pytest.fixture
def api() -> FakeAPI:
    """A local node and a super node."""
    api = FakeAPI()
    api.put(NAMESPACES, {"metadata": {"name": "shop", "labels": {"kubernetes.io/metadata.name": "shop"}}})
    ready = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "8", "pods": "110"}}
    api.put(NODES, {"metadata": {"name": "home-1"}, "status": ready})
    labels = {"node.kubernetes.io/instance-type": "eklet"}
    api.put(
        NODES,
        {
            "metadata": {"name": "eklet-1", "labels": labels},
            "spec": {"taints": [SUPER_TAINT]},
            "status": ready,
        },
    )
    return api


def reader(api: FakeAPI, cloud: Raw | None = None, **elasticity: Any) -> Reader:
    objects = render(
        {**VALUES, "cloud": VALUES["cloud"] | (cloud or {}), "elasticity": {"enabled": True, **elasticity}}
    )
    made = Reader(Cluster(api.client()))
    made.__dict__["installation"] = Installation(registered(objects), settings_in(objects))
    return made


def template(annotations: dict[str, str], **labels: str) -> Raw:
    return {"metadata": {"annotations": annotations, "labels": {"app": "web", **labels}}, "spec": SPEC}


def deploy(api: FakeAPI, annotations: dict[str, str], replicas: int = 1, running: int | None = None) -> None:
    metadata = {"name": "web", "namespace": "shop", "uid": "uid-web"}
    selector = {"matchLabels": {"app": "web"}}
    spec = {"replicas": replicas, "selector": selector, "template": template(annotations)}
    api.put(DEPLOYMENTS, {"metadata": metadata, "spec": spec})
    owner = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": "web",
        "uid": "uid-web",
        "controller": True,
    }
    for revision in (1, 2):
        metadata = {
            "name": f"web-{revision}",
            "namespace": "shop",
            "uid": f"uid-rs-{revision}",
            "annotations": {"deployment.kubernetes.io/revision": str(revision)},
            "ownerReferences": [owner],
        }
        made = template(annotations, **{"pod-template-hash": str(revision)})
        api.put(REPLICA_SETS, {"metadata": metadata, "spec": spec | {"template": made}})
    for number in range(replicas if running is None else running):
        put_replica(api, number, annotations)


def put_replica(api: FakeAPI, number: int, annotations: dict[str, str]) -> None:
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "web-2",
        "uid": "uid-rs-2",
        "controller": True,
    }
    metadata = {
        "name": f"web-2-{number}",
        "namespace": "shop",
        "uid": f"uid-{number}",
        "labels": {"app": "web", "pod-template-hash": "2"},
        "annotations": annotations,
        "ownerReferences": [owner],
    }
    api.put(
        PODS, {"metadata": metadata, "spec": SPEC | {"nodeName": "home-1"}, "status": {"phase": "Running"}}
    )


def places(found: Scale | ScaleIn) -> list[str]:
    assert isinstance(found, Scale)
    return [each.place for each in found.placements]


def test_the_first_n_are_local_and_the_others_go_to_super_nodes(api: FakeAPI) -> None:
    deploy(api, {LOCAL_REPLICAS: "2"})

    found = simulate_scale(reader(api), "shop", "web", 4)

    assert (found.before, found.after, found.local, found.on_super_nodes) == (1, 4, 1, 0)
    assert places(found) == ["local node", "super node", "super node"]
    assert "LOCAL_REPLICAS=2, 1 local: stays local" in found.placements[0].why
    assert {each.method for each in api.calls} == {"GET"}


def test_a_limit_makes_replicas_wait(api: FakeAPI) -> None:
    deploy(api, {LOCAL_REPLICAS: "1"})

    found = simulate_scale(reader(api, maxSuperPods={"total": 1}), "shop", "deployment/web", 3)

    assert places(found) == ["super node", "waits"]
    assert "maxSuperPods.total is 1" in found.placements[1].why


def test_a_budget_in_cost_makes_replicas_wait(api: FakeAPI) -> None:
    deploy(api, {LOCAL_REPLICAS: "1"})
    costs = {"prices": {"cpu": 1.0}, "maxSuperPods": {"budgets": [{"maxCostPerHour": 1.5}]}}

    found = simulate_scale(reader(api, **costs), "shop", "deployment/web", 3)

    assert places(found) == ["super node", "waits"]
    assert "maxSuperPods.budgets allows 1.5 per hour" in found.placements[1].why


def test_a_budget_by_hours_makes_replicas_wait_until_these_end(api: FakeAPI) -> None:
    deploy(api, {LOCAL_REPLICAS: "1"})

    found = simulate_scale(reader(api, **at_hours(-3600)), "shop", "deployment/web", 3)

    assert places(found) == ["super node", "waits"]
    assert "its hours, every day" in found.placements[1].why
    assert isinstance(found, Scale)
    assert found.later == ()


def test_hours_that_are_still_to_come_are_named(api: FakeAPI) -> None:
    deploy(api, {LOCAL_REPLICAS: "1"})

    found = simulate_scale(reader(api, **at_hours(7200)), "shop", "deployment/web", 3)

    assert places(found) == ["super node", "super node"]
    assert isinstance(found, Scale)
    [later] = found.later
    assert later.startswith("maxSuperPods.budgets limits pods with app=web at every day ")
    assert "not now, but from " in later


def at_hours(seconds: float) -> dict[str, Any]:
    """Of two hours, which begin so many *seconds* from now."""
    begin = datetime.now(UTC) + timedelta(seconds=seconds)
    hours = [{"start": f"{begin:%H:%M}", "durationSeconds": 7200}]
    budgets = [{"labels": {"app": "web"}, "maxPods": 1, "hours": hours}]
    others = {"labels": {"app": "other"}, "maxPods": 1, "hours": hours}
    return {"maxSuperPods": {"budgets": [*budgets, others]}}


def test_the_first_tier_that_takes_a_replica_is_named(api: FakeAPI) -> None:
    labels = {"node.kubernetes.io/instance-type": "eklet"}
    kinds = {"eklet-1": {"tier": "1", "gpu": "false"}, "eklet-2": {"tier": "2", "gpu": "true"}}
    for name, kind in kinds.items():
        own = {f"drawbridge.io/{key}": value for key, value in kind.items()}
        node = {"metadata": {"name": name, "labels": labels | own}, "spec": {"taints": [SUPER_TAINT]}}
        api.put(NODES, node)
    subnets = [
        {"id": "subnet-1", "zone": "z-1"},
        {"id": "subnet-2", "zone": "z-1", "tier": 2, "gpu": True},
    ]

    for asking, tier in (({}, 1), ({"eks.tke.cloud.tencent.com/gpu-type": "T4"}, 2)):
        deploy(api, {LOCAL_REPLICAS: "1"} | asking)
        found = simulate_scale(reader(api, cloud={"subnets": subnets}), "shop", "web", 2)
        assert found.placements[0].why.endswith(f"to super node, tier {tier} first")


def test_a_share_is_of_the_replicas_that_are_simulated(api: FakeAPI) -> None:
    deploy(api, {LOCAL_REPLICAS: "30%"})

    found = simulate_scale(reader(api, percentages=True), "shop", "web", 10)

    assert places(found) == ["local node"] * 2 + ["super node"] * 7
    assert "LOCAL_REPLICAS=3 (30% of 10)" in found.placements[-1].why


def test_pods_that_are_not_gated_are_left_to_the_scheduler(api: FakeAPI) -> None:
    deploy(api, {})

    found = simulate_scale(reader(api), "shop", "web", 2)

    assert places(found) == ["local node"]
    assert "not gated: not called by matchCondition pod-is-to-be-changed" in found.placements[0].why


def test_replicas_of_a_stateful_set_go_by_their_ordinals(api: FakeAPI) -> None:
    metadata = {"name": "db", "namespace": "shop", "uid": "uid-db"}
    spec = {
        "replicas": 1,
        "serviceName": "db",
        "selector": {"matchLabels": {"app": "web"}},
        "template": template({LOCAL_REPLICAS: "2"}),
        "ordinals": {"start": 5},
    }
    api.put(STATEFUL_SETS, {"metadata": metadata, "spec": spec, "status": {"updateRevision": "db-1"}})

    found = simulate_scale(reader(api), "shop", "sts/db", 4)

    assert [(each.replica, each.place) for each in found.placements] == [
        ("db-6", "local node"),
        ("db-7", "super node"),
        ("db-8", "super node"),
    ]


def test_a_claim_that_nothing_makes_decides_after_its_time(api: FakeAPI) -> None:
    metadata = {"name": "db", "namespace": "shop", "uid": "uid-db"}
    spec = {
        "replicas": 0,
        "serviceName": "db",
        "selector": {"matchLabels": {"app": "web"}},
        "template": template({LOCAL_REPLICAS: "0"}),
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"storageClassName": "none"}}],
    }
    api.put(STATEFUL_SETS, {"metadata": metadata, "spec": spec})

    (placement,) = simulate_scale(reader(api), "shop", "sts/db", 1).placements

    assert placement.place != "waits", json.dumps(placement.why)


@pytest.mark.parametrize(
    ("workload", "expected"), [("web", "has 1 replicas already"), ("job/web", "neither")]
)
def test_what_cannot_be_simulated_is_said(api: FakeAPI, workload: str, expected: str) -> None:
    deploy(api, {})

    with pytest.raises(Failure, match=expected):
        simulate_scale(reader(api), "shop", workload, 1)
