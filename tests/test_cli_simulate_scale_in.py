"""`drawbridge simulate scale` to fewer replicas: which pods go, in which order, and which IPs that reserves."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from cli.simulate.reader import REPLICA_SETS, STATEFUL_SETS
from cli.simulate.scale_in import in_order
from dev.fake_api import FakeAPI
from tests import cli
from tests.factories import NOW
from webhook.elasticity import COST

PODS, DEPLOYMENTS, NAMESPACES = cli.resource("Pod"), cli.resource("Deployment"), cli.resource("Namespace")
Raw = dict[str, Any]
SPEC = {"containers": [{"name": "app", "image": "app"}]}


def pod(name: str, *, node: str = "", ready: float | None = 60, cost: str = "", **parts: Any) -> Raw:
    """Ready for so many seconds, on a node of its name unless another is given."""
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": ago(ready)}] if ready else []
    annotations = {COST: cost} if cost else {}
    metadata = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "annotations": annotations}
    created = ago(parts.pop("created", 3600))
    status = {"phase": "Running", "conditions": conditions, **parts.pop("status", {})}
    spec = {} if parts.pop("unscheduled", False) else {"nodeName": node or f"node-{name}"}
    return {
        "metadata": metadata | {"creationTimestamp": created} | parts,
        "spec": SPEC | spec,
        "status": status,
    }


def ago(seconds: float) -> str:
    moment: datetime = NOW - timedelta(seconds=seconds)
    return moment.isoformat()


def names(pods: list[Raw]) -> list[str]:
    return [each["metadata"]["name"] for each in pods]


RESTARTED = {"containerStatuses": [{"restartCount": 1}, {"restartCount": 3}]}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(
            pod("b", unscheduled=True, cost="9"), pod("a", cost="1"), id="one that is not scheduled"
        ),
        pytest.param(
            pod("b", status={"phase": "Pending"}, cost="9"), pod("a", cost="1"), id="one that is Pending"
        ),
        pytest.param(pod("b", ready=None, cost="9"), pod("a", cost="1"), id="one that is not ready"),
        pytest.param(pod("b", cost="-5"), pod("a", ready=1), id="the cheaper one"),
        pytest.param(pod("b", ready=5), pod("a", ready=500), id="the one that was ready later"),
        pytest.param(pod("b", cost="x"), pod("a", cost="1"), id="a cost that is no number counts as 0"),
        pytest.param(pod("b", status=RESTARTED), pod("a"), id="the one that was restarted more often"),
        pytest.param(pod("b", created=100), pod("a", created=4000), id="the one that was created later"),
        pytest.param(pod("a", ready=60), pod("b", ready=61), id="of about the same age the lower uid"),
        pytest.param(pod("a", ready=61), pod("b", ready=60), id="of about the same age, the other way round"),
    ],
)
def test_the_first_to_go_is(first: Raw, second: Raw) -> None:
    assert in_order([second, first], NOW) == in_order([first, second], NOW) == [first, second]


def test_a_pod_that_shares_its_node_with_another_goes_before_one_that_is_alone() -> None:
    crowded = [pod("y", node="n1", ready=9000), pod("z", node="n1", ready=9000)]
    assert names(in_order([pod("a", ready=1), *crowded], NOW)) == ["y", "z", "a"]


@pytest.fixture
def api() -> FakeAPI:
    api = cli.installed()
    labels = {"kubernetes.io/metadata.name": "shop", "ip-reserve": "enabled"}
    api.put(NAMESPACES, {"metadata": {"name": "shop", "labels": labels}})
    return api


def deploy(api: FakeAPI, replicas: int, current: int | None = None) -> None:
    """*current* is what its newest ReplicaSet has."""
    api.put(
        DEPLOYMENTS,
        {"metadata": {"name": "web", "namespace": "shop", "uid": "uid-web"}, "spec": {"replicas": replicas}},
    )
    metadata = {"name": "web-1", "namespace": "shop", "uid": "uid-rs", "ownerReferences": [owner("uid-web")]}
    metadata["annotations"] = {"deployment.kubernetes.io/revision": "1"}
    api.put(REPLICA_SETS, {"metadata": metadata, "spec": {"replicas": current or replicas}})


def owner(uid: str, kind: str = "ReplicaSet") -> Raw:
    return {"apiVersion": "apps/v1", "kind": kind, "name": "x", "uid": uid, "controller": True}


def put(api: FakeAPI, raw: Raw, uid: str, number: int) -> None:
    ip = f"10.0.0.{number}"
    labels = {"labels": {"brokerId": "1"}, "ownerReferences": [owner(uid)]}
    status = raw["status"] | {"podIP": ip, "podIPs": [{"ip": ip}]}
    api.put(PODS, raw | {"metadata": raw["metadata"] | labels, "status": status})


def test_the_pods_that_go_and_their_ips_are_named_and_nothing_is_written(api: FakeAPI) -> None:
    deploy(api, 3)
    for number, cost in enumerate(("1", "-1", "0")):
        put(api, pod(f"web-{number}", cost=cost), "uid-rs", number)
    put(api, pod("other", cost="-9"), "uid-other", 9)
    before = len(api.calls)
    found = cli.shown(api, "simulate", "scale", "web", "1", "-n", "shop")

    assert [(each["pod"], each["why"].partition(";")[0]) for each in found["going"]] == [
        ("shop/web-1", "deletion cost -1"),
        ("shop/web-2", f"ready since {NOW - timedelta(seconds=60):%Y-%m-%dT%H:%M:%SZ}"),
    ]
    assert {each["ip"] for each in found["removal"]["reserved"]} == {"10.0.0.1", "10.0.0.2"}
    assert {each.method for each in api.calls[before:]} == {"GET"}
    printed = cli.run(api, "simulate", "scale", "web", "1", "-n", "shop").output
    assert "Scaling shop/web from 3 to 1: 2 IPs reserved, 2 pods removed" in printed


def test_the_highest_ordinals_of_a_stateful_set_go_first(api: FakeAPI) -> None:
    metadata = {"name": "db", "namespace": "shop", "uid": "uid-db"}
    api.put(STATEFUL_SETS, {"metadata": metadata, "spec": {"replicas": 4, "ordinals": {"start": 8}}})
    for number in range(8, 12):
        put(api, pod(f"db-{number}", cost="-1" if number == 8 else ""), "uid-db", number)

    found = cli.shown(api, "simulate", "scale", "sts/db", "2", "-n", "shop")
    assert [each["pod"] for each in found["going"]] == ["shop/db-11", "shop/db-10"]


def test_pods_that_go_already_do_not_count(api: FakeAPI) -> None:
    deploy(api, 2)
    put(api, pod("web-0", deletionTimestamp=ago(1)), "uid-rs", 0)
    put(api, pod("web-1"), "uid-rs", 1)

    assert cli.shown(api, "simulate", "scale", "web", "1", "-n", "shop")["going"] == []


def test_while_a_rollout_shares_the_replicas_it_is_not_foreseen(api: FakeAPI) -> None:
    deploy(api, 3, current=2)
    result = cli.run(api, "simulate", "scale", "web", "1", "-n", "shop")

    assert (result.exit_code, "a rollout of deployment web is under way" in result.output) == (1, True)
