"""`drawbridge status`: what is wrong comes first, and each feature has its line."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from calico.segment import LEVEL, MANAGED_BY, MANAGER, body
from dev.fake_api import FakeAPI, refusal
from tests import cli
from tests.calico_pools import BLOCKS, KINDS, POOLS, block, pool
from tests.factories import NOW, raw_pod, record

NEED = {"tke.cloud.tencent.com/need-aia-ip": "true"}
TAINT = {"key": "tke.cloud.tencent.com/no-aia-ip", "value": "true", "effect": "NoSchedule"}


def problems(api: FakeAPI) -> list[str]:
    return [each["what"] for each in cli.shown(api, "status")["problems"]]


def test_a_healthy_installation_has_no_problem() -> None:
    api = cli.installed()
    result = cli.run(api, "status")

    assert result.exit_code == 0
    assert result.output.startswith("Drawbridge 0.1.0 in namespace drawbridge: nothing is wrong")
    found = cli.shown(api, "status")
    assert [(each["name"], each["ready"]) for each in found["programs"]] == [
        ("webhook", 3),
        ("controllers", 2),
    ]
    assert found["leader"]["holder"] == "drawbridge-controllers-a"
    assert found["settings"]["features"]["ipReservation"]


def test_drawbridge_must_be_installed() -> None:
    result = cli.run(FakeAPI(), "status")

    assert result.exit_code == 1
    assert result.output.startswith("Error: Drawbridge is not installed in this cluster")


def test_pods_that_are_not_ready_are_a_problem() -> None:
    api = cli.installed()
    api.edit(cli.DEPLOYMENTS, "drawbridge-webhook", {"status": {"readyReplicas": 1}}, "drawbridge")

    assert problems(api) == ["1 of 3 webhook pods are ready"]
    assert cli.run(api, "status").exit_code == 1


@pytest.mark.parametrize("renewed", [None, NOW - timedelta(minutes=5)], ids=["no Lease", "an old Lease"])
def test_without_a_leader_nothing_is_done(renewed: datetime | None) -> None:
    api = cli.installed(leads=False)
    if renewed:
        api.put(cli.resource("Lease"), cli.lease(renewed))

    [problem] = problems(api)
    assert problem.startswith("no replica of the controllers leads")


def test_settings_that_are_refused_are_named() -> None:
    api = cli.installed()
    text = "apiVersion: drawbridge.io/v1\nkind: DrawbridgeConfig\nipReservation: {ipReserveTime: soon}\n"
    api.edit(cli.resource("ConfigMap"), "drawbridge-config", {"data": {"config.yaml": text}}, "drawbridge")

    [problem] = problems(api)
    assert problem.startswith(
        "settings refused, the last good ones stay in force: ipReservation.ipReserveTime"
    )


def test_a_ca_bundle_must_be_there_and_trust_the_certificate() -> None:
    api = cli.installed()
    found = api.get(cli.CONFIGURATIONS, "drawbridge")
    for each in found["webhooks"]:
        each["clientConfig"]["caBundle"] = ""
    api.put(cli.CONFIGURATIONS, found)

    assert problems(api)[0].startswith("the CA in the validating webhook configuration drawbridge is missing")


def test_deleted_webhook_configurations_are_the_first_problem() -> None:
    api = cli.installed()
    api.remove(cli.CONFIGURATIONS, "drawbridge")

    [problem] = problems(api)
    assert problem.startswith("there is no webhook configuration")


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        pytest.param("Mutating", "/mutate/nodes/anycast-ip", id="mutating"),
        pytest.param("Validating", "/validate/pods/ip-reservation", id="validating"),
    ],
)
def test_one_of_two_webhook_configurations_that_was_deleted_is_a_problem(kind: str, missing: str) -> None:
    api = cli.installed("anycastIP")
    assert problems(api) == []
    api.remove(cli.resource(f"{kind}WebhookConfiguration"), "drawbridge")

    [problem] = problems(api)
    assert problem.startswith(f"no {kind.lower()} webhook configuration has {missing}: ")
    assert cli.run(api, "doctor").exit_code == 1


def test_without_leader_election_there_is_no_lease_to_miss() -> None:
    api = cli.installed(leads=False)
    text = "apiVersion: drawbridge.io/v1\nkind: DrawbridgeConfig\nleaderElection: {leaderElect: false}\n"
    api.edit(cli.resource("ConfigMap"), "drawbridge-config", {"data": {"config.yaml": text}}, "drawbridge")

    assert problems(api) == []
    assert "no leader election" in cli.run(api, "status").output


def reserved(api: FakeAPI, *records: Any) -> None:
    raw = body(records)
    raw["metadata"] |= {"name": "segment", "labels": {MANAGED_BY: MANAGER, LEVEL: "0"}}
    api.put(cli.resource("IPReservation"), raw)


def test_reserved_ips_are_counted_by_reason_with_their_next_releases() -> None:
    api = cli.installed()
    reserved(
        api,
        record("10.0.0.1/32", reason="evicted", uid="a", ended=NOW - timedelta(minutes=30)),
        record("10.0.0.2/32", reason="deleted", uid="b", ended=NOW - timedelta(minutes=10)),
        record("10.0.0.3/32", reason="deleted", uid="c"),
    )

    found = cli.shown(api, "status")["ipReservation"]
    assert (found["addresses"], found["notEnded"]) == (3, 1)
    assert found["byReason"] == {"deleted": 2, "evicted": 1}
    assert [each["address"] for each in found["nextReleases"]] == ["10.0.0.1", "10.0.0.2"]
    assert "next release in 10m" in cli.run(api, "status").output


@pytest.mark.parametrize(
    ("enabled", "assigned", "expected"),
    [
        pytest.param(True, 15, ["pool main has 1 of 16 IPs free: 15 are assigned, 0 reserved"], id="low"),
        pytest.param(True, 14, [], id="enough"),
        pytest.param(False, 16, [], id="not followed"),
    ],
)
def test_a_pool_that_runs_low_is_a_problem_where_pools_are_followed(
    enabled: bool, assigned: int, expected: list[str]
) -> None:
    api = with_pools(enabled=enabled)
    api.put(BLOCKS, block("10.0.0.0/28", *(f"10.0.0.{number}" for number in range(assigned))))

    assert problems(api) == expected


def test_pools_that_are_not_known_are_a_problem_where_they_are_followed() -> None:
    api = with_pools(enabled=True)
    api.unserved = {"crd.projectcalico.org/v1"}

    [problem] = problems(api)
    assert problem.startswith("Calico's pools are not known")


def with_pools(*, enabled: bool) -> FakeAPI:
    api = cli.installed(kinds=KINDS)
    text = (
        "apiVersion: drawbridge.io/v1\nkind: DrawbridgeConfig\n"
        f"ipReservation: {{pools: {{enabled: {str(enabled).lower()}}}}}\n"
    )
    api.edit(cli.resource("ConfigMap"), "drawbridge-config", {"data": {"config.yaml": text}}, "drawbridge")
    api.put(POOLS, pool("10.0.0.0/28"))
    return api


def test_nodes_are_open_or_tainted() -> None:
    api = cli.installed("anycastIP")
    api.put(cli.resource("Node"), {"metadata": {"name": "open", "labels": NEED}})
    for name, since in (("new", NOW), ("late", NOW - timedelta(hours=1))):
        metadata = {"name": name, "labels": NEED, "creationTimestamp": since.strftime("%Y-%m-%dT%H:%M:%SZ")}
        api.put(cli.resource("Node"), {"metadata": metadata, "spec": {"taints": [TAINT]}})
    api.put(cli.resource("Node"), {"metadata": {"name": "other"}})

    found = cli.shown(api, "status")
    assert found["anycastIp"] == {"nodes": 3, "open": 1, "tainted": ["late", "new"]}
    assert [each["what"] for each in found["problems"]] == [
        "late still has the taint tke.cloud.tencent.com/no-aia-ip after 10 minutes"
    ]


def test_pods_are_gated_local_or_on_super_nodes() -> None:
    api = cli.installed("elasticity")
    labels = {"node.kubernetes.io/instance-type": "eklet"}
    api.put(cli.resource("Node"), {"metadata": {"name": "super", "labels": labels}})
    pods = cli.resource("Pod")
    for number in range(3):
        api.put(pods, raw_pod(f"local-{number}"))
    api.put(pods, raw_pod("away", spec={"nodeName": "super"}))
    created = (NOW - timedelta(minutes=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
    gates = {"nodeName": "", "schedulingGates": [{"name": "drawbridge.io/placement"}]}
    api.put(pods, raw_pod("gated", ip="", spec=gates, metadata={"creationTimestamp": created}))

    found = cli.shown(api, "status")
    assert found["elasticity"] == {"pods": 5, "gated": 1, "local": 3, "onSuperNodes": 1, "superNodes": 1}
    assert [each["what"] for each in found["problems"]] == ["redis/gated is gated for over a minute"]


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ("Halted", "is halted"),
        ("CanaryDegraded", "waits for its canary, which fails"),
        ("RolledBack", "has failed, and nodes have the former template"),
    ],
)
def test_a_rollout_that_has_stopped_is_a_problem(state: str, said: str) -> None:
    api = cli.installed("ingressDaemonSet")
    conditions = [{"type": "Progressing", "status": "False", "reason": state, "message": "1 of 3 nodes"}]
    status = {"desiredNodes": 3, "updatedNodes": 1, "readyNodes": 2, "conditions": conditions}
    api.put(
        cli.resource("IngressDaemonSet"), {"metadata": {"name": "edge", "namespace": "web"}, "status": status}
    )

    assert problems(api) == [f"the rollout of web/edge {said}: 1 of 3 nodes"]
    assert f"web/edge   {state}   1/3" in cli.run(api, "status").output


def test_what_the_user_may_not_read_is_named_with_the_permission() -> None:
    api = cli.installed()
    cannot = 'User "eve" cannot get resource "secrets" in API group "" in the namespace "drawbridge"'
    api.fault = lambda call: refusal(403, "Forbidden", cannot) if "/secrets/" in call.path else None

    [problem] = cli.shown(api, "status")["problems"]
    assert problem["what"] == "the serving certificate: not readable by you"
    assert problem["wayOut"] == "have an administrator allow you to get secrets in namespace drawbridge"


def test_pods_are_not_read_as_a_whole() -> None:
    """A cluster has 20,000: one is read for the count, and those that are pending or on super nodes."""
    api = cli.installed("elasticity")
    cli.run(api, "status")

    reads = [call.query for call in api.calls if call.path == "/api/v1/pods"]
    assert sorted(reads, key=str) == [
        {"fieldSelector": "status.phase=Pending", "resourceVersion": "0"},
        {"limit": "1"},
    ]
