"""`drawbridge addresses`, `elasticity` and `rollout`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from controllers.anycast_ip.claim import Claim, body
from controllers.anycast_ip.entries import LABEL, Entry, data_of
from dev.fake_api import Denied, FakeAPI, refusal
from tests import cli
from tests.factories import NOW, raw_pod

NEED = {"tke.cloud.tencent.com/need-aia-ip": "true"}
TAINT = {"key": "tke.cloud.tencent.com/no-aia-ip", "value": "true", "effect": "NoSchedule"}
NODES, PODS, CLAIMS = cli.resource("Node"), cli.resource("Pod"), cli.resource("ConfigMap")
IDS = cli.resource("IngressDaemonSet")
FORBIDDEN = refusal(403, "Forbidden", 'cannot list resource "namespaces" in API group ""')


def claim(api: FakeAPI, uid: str, node: str, address: str, **fields: Any) -> None:
    held = Claim(uid=uid, node=node, instance="ins-1", token="t", name="n", asked=NOW, address=address)
    raw = body(replace(held, **fields))
    api.put(CLAIMS, raw | {"metadata": raw["metadata"] | {"namespace": "drawbridge"}})


def test_addresses_of_nodes_and_of_gone_ones_are_listed() -> None:
    api = cli.installed("anycastIP")
    proof = {
        "drawbridge.io/anycast-ip-bound": "a/eip-1",
        "tke.cloud.tencent.com/anycast-ip-id": "eip-1",
        "tke.cloud.tencent.com/anycast-ip-address": "1.2.3.4",
    }
    api.put(NODES, {"metadata": {"name": "open", "uid": "a", "labels": NEED, "annotations": proof}})
    api.put(NODES, {"metadata": {"name": "new", "uid": "b", "labels": NEED}, "spec": {"taints": [TAINT]}})
    api.put(NODES, {"metadata": {"name": "other", "uid": "c"}})
    claim(api, "a", "open", "eip-1")
    claim(api, "d", "gone", "eip-4")

    found = cli.shown(api, "addresses", "list")["addresses"]
    assert [(each["node"], each["state"], each["id"], each["address"]) for each in found] == [
        ("gone", "releasing", "eip-4", ""),
        ("new", "tainted", "", ""),
        ("open", "open", "eip-1", "1.2.3.4"),
    ]
    assert "open   1.2.3.4   eip-1   open" in cli.run(api, "addresses", "list").output


def test_idle_addresses_are_listed_in_the_order_in_which_nodes_get_them() -> None:
    api = cli.installed("anycastIP")
    claim(api, "a", "gone", "eip-1", pooled=NOW, ip="9.0.0.1")
    claim(api, "b", "long-gone", "eip-2", pooled=NOW - timedelta(hours=1), ip="9.0.0.2")
    claim(api, "d", "drawbridge:pool", "", pooled=NOW)
    claim(api, "c", "too-old", "eip-3", pooled=NOW - timedelta(hours=9), releasing=True)

    found = cli.shown(api, "addresses", "list")["addresses"]
    assert [(each["node"], each["state"], each["id"], each["address"]) for each in found] == [
        ("", "ordered for the pool", "", ""),
        ("too-old", "releasing", "eip-3", ""),
        ("", "idle", "eip-2", "9.0.0.2"),
        ("", "idle", "eip-1", "9.0.0.1"),
    ]
    assert "9.0.0.1   eip-1   idle" in cli.run(api, "addresses", "list").output


def test_addresses_that_are_announced_are_listed_with_the_time_that_is_left() -> None:
    api = cli.installed("anycastIP")
    waiting = Entry(
        address="9.0.0.1", id="eip-1", node="new", state="promised", since=NOW - timedelta(minutes=4)
    )
    spare = replace(waiting, address="9.0.0.2", id="eip-2", node="", state="idle", since=NOW)
    others = (
        replace(waiting, address="9.0.0.3", id="eip-3", state="in use", since=NOW),
        replace(waiting, address="9.0.0.4", id="eip-4", since=NOW - timedelta(hours=1)),
    )
    put_allow_list(api, spare, waiting, *others)
    assert cli.shown(api, "addresses", "list")["announcing"] == []
    announce_before(api, "10m")

    found = cli.shown(api, "addresses", "list")["announcing"]
    assert [(each["node"], each["address"]) for each in found] == [("new", "9.0.0.1"), ("", "9.0.0.2")]
    printed = cli.run(api, "addresses", "list").output
    assert "IN THE ALLOW-LIST SINCE" in printed
    assert "9.0.0.1     new    " in printed
    api.fault = denied_config_map
    assert cli.shown(api, "addresses", "list")["announcing"] == []


def denied_config_map(call: Any) -> Any:
    return FORBIDDEN if call.path.endswith("/configmaps/anycast-ips") else None


def put_allow_list(api: FakeAPI, *found: Entry) -> None:
    metadata = {"name": "anycast-ips", "namespace": "drawbridge", "labels": {LABEL: "anycast-ip"}}
    api.put(CLAIMS, {"metadata": metadata, "data": data_of(found)})


def announce_before(api: FakeAPI, duration: str) -> None:
    """As `helm upgrade` would."""
    held = api.get(CLAIMS, "drawbridge-config", "drawbridge")
    document = yaml.safe_load(held["data"]["config.yaml"])
    document["anycastIP"]["allowList"] |= {"configMap": "anycast-ips", "announceBefore": duration}
    api.put(CLAIMS, held | {"data": {"config.yaml": yaml.safe_dump(document)}})


def placed(api: FakeAPI, name: str, node: str = "", **annotations: str) -> None:
    named = {f"drawbridge.io/{key}": value for key, value in annotations.items()}
    gates = [] if node else [{"name": "drawbridge.io/placement"}]
    spec = {"nodeName": node, "schedulingGates": gates}
    ip = "10.0.0.1" if node else ""
    api.put(PODS, raw_pod(name, namespace="default", ip=ip, spec=spec, metadata={"annotations": named}))


def test_the_wide_list_says_which_pods_never_return_from_super_nodes(elastic: FakeAPI) -> None:
    placed(elastic, "keeps", "super", burst="allowed", **{"return-home": "false"})

    found = cli.shown(elastic, "elasticity", "list")["placements"]

    assert {each["pod"]: each["stays"] for each in found if each["node"] == "super"} == {
        "beyond": "it did not go to a super node for want of local room",
        "burst": "",
        "keeps": "it has annotation drawbridge.io/return-home=false",
    }
    assert "STAYS BECAUSE" in cli.run(elastic, "-o", "wide", "elasticity", "list").output
    assert "STAYS BECAUSE" not in cli.run(elastic, "elasticity", "list").output


@pytest.fixture
def elastic() -> FakeAPI:
    api = cli.installed("elasticity")
    labels = {"node.kubernetes.io/instance-type": "eklet"}
    api.put(NODES, {"metadata": {"name": "super", "labels": labels}})
    placed(api, "local", "node-1", placement="local")
    placed(api, "beyond", "super", placement="super")
    placed(api, "burst", "super", placement="any", burst="true")
    placed(api, "gated", **{"placement-reason": "waits for the cap"})
    api.put(PODS, raw_pod("unrelated", namespace="default"))
    return api


def test_placements_are_listed_with_their_reason(elastic: FakeAPI) -> None:
    found = cli.shown(elastic, "elasticity", "list")["placements"]

    assert [(each["pod"], each["place"], each["reason"]) for each in found] == [
        ("gated", "gated", "waits for the cap"),
        ("local", "local", ""),
        ("beyond", "super node", ""),
        ("burst", "super node", ""),
    ]


def pods(api: FakeAPI) -> set[str]:
    going = {each["metadata"]["name"] for each in api.list(PODS) if "deletionTimestamp" in each["metadata"]}
    return {each["metadata"]["name"] for each in api.list(PODS)} - going


def test_pods_that_local_nodes_had_no_room_for_return(elastic: FakeAPI) -> None:
    result = cli.run(elastic, "elasticity", "return", answer="y\n")

    assert result.output.splitlines()[-1] == "burst: evicted from super"
    assert pods(elastic) == {"local", "beyond", "gated", "unrelated"}


def test_all_namespaces_are_listed_also_without_permission_to_list_them(elastic: FakeAPI) -> None:
    elastic.put(cli.resource("Namespace"), {"metadata": {"name": "other"}})
    annotations = {"drawbridge.io/placement": "local"}
    third = raw_pod("third", namespace="other", metadata={"annotations": annotations})
    elastic.put(PODS, third)

    allowed = cli.shown(elastic, "elasticity", "list", "-A")["placements"]
    elastic.fault = lambda call: FORBIDDEN if call.path.endswith("/namespaces") else None
    refused = cli.shown(elastic, "elasticity", "list", "-A")["placements"]

    assert [each["pod"] for each in refused] == ["gated", "local", "third", "beyond", "burst"]
    assert {each["pod"]: each["node"] for each in refused}["third"] == "node-1"
    assert allowed == refused


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("beyond", "Error: beyond would not return: its workload has its"),
        ("local", "Error: local is not a pod on a"),
    ],
)
def test_a_pod_whose_replacement_would_not_be_local_stays(elastic: FakeAPI, name: str, expected: str) -> None:
    result = cli.run(elastic, "elasticity", "return", "burst", name, "--yes")

    assert result.exit_code == 1
    assert result.output.startswith(expected)
    assert "burst" in pods(elastic)


def test_an_eviction_that_is_refused_is_named(elastic: FakeAPI) -> None:
    def refuse(review: Any) -> None:
        if review.subresource == "eviction":
            raise Denied("the budget of redis is used up", 429, "TooManyRequests")

    elastic.validate(PODS, refuse)
    result = cli.run(elastic, "elasticity", "return", "--yes")

    assert result.exit_code == 1
    assert "burst: not evicted: " in result.output


@pytest.fixture
def edge() -> FakeAPI:
    api = cli.installed("ingressDaemonSet")
    conditions = [
        {
            "type": "Progressing",
            "status": "True",
            "reason": "RollingOut",
            "message": "1 of 3 nodes are as desired",
            "lastTransitionTime": NOW.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
    ]
    waiting = [{"node": "edge-2", "phase": "Outdated", "reason": "it waits for its turn"}]
    status = {
        "desiredNodes": 3,
        "updatedNodes": 1,
        "readyNodes": 3,
        "conditions": conditions,
        "waitingFor": waiting,
    }
    labels = {"metadata": {"labels": {"app": "edge"}}, "spec": {"containers": [{"name": "a", "image": "b"}]}}
    raw = {
        "metadata": {"name": "edge", "namespace": "default"},
        "spec": {"template": labels},
        "status": status,
    }
    api.put(IDS, raw)
    return api


def test_a_rollout_shows_how_far_it_is_and_what_it_waits_for(edge: FakeAPI) -> None:
    result = cli.run(edge, "rollout", "get", "edge")

    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0] == "IngressDaemonSet default/edge: RollingOut"
    assert lines[1].startswith("1 of 3 nodes updated, 3 ready")
    assert lines[-1].split(maxsplit=2) == ["edge-2", "Outdated", "it waits for its turn"]
    [listed] = cli.shown(edge, "rollout", "get", "-A")["rollouts"]
    assert (listed["updatedNodes"], listed["desiredNodes"]) == (1, 3)


PLAN = {
    "fromRevision": "aaaaaaaaaa",
    "toRevision": "bbbbbbbbbb",
    "startedAt": "2026-01-02T03:00:05Z",
    "nodes": 3,
    "nodesLeft": 2,
    "atATime": 1,
    "wave": 2,
    "waves": 3,
    "nextNodes": ["edge-3"],
    "estimatedEnd": "2099-01-02T03:04:05Z",
}
ENDED = {
    "fromRevision": "0000000000",
    "toRevision": "aaaaaaaaaa",
    "startedAt": "2026-01-01T03:00:05Z",
    "endedAt": "2026-01-01T03:05:05Z",
    "result": "Complete",
    "nodes": 3,
    "seconds": 300,
    "atATime": 1,
}


def test_a_rollout_shows_its_plan_and_how_the_last_ones_ended(edge: FakeAPI) -> None:
    edge.edit(IDS, "edge", {"status": {"rollout": PLAN, "history": [ENDED]}}, "default")

    lines = cli.run(edge, "rollout", "get", "edge").output.splitlines()
    assert lines[2].startswith(
        "Rollout aaaaaaaaaa → bbbbbbbbbb: wave 2 of 3, 2 of 3 nodes left, 1 at a time; "
    )
    assert lines[2].endswith("left, until 03:04:05 UTC")
    assert lines[3] == "Next: edge-3"
    assert lines[-1].split()[1:] == ["Complete", "3", "5m", "0000000000", "→", "aaaaaaaaaa"]
    [shown] = cli.shown(edge, "rollout", "get", "-A")["rollouts"]
    assert shown["course"]["estimatedEnd"] == "2099-01-02T03:04:05Z"
    assert shown["history"][0]["seconds"] == 300


@pytest.mark.parametrize(
    ("end", "said"),
    [(None, "its end is not known"), ("2020-01-01T00:00:00Z", "it should have ended")],
    ids=["unknown", "overdue"],
)
def test_a_plan_without_an_end_in_sight_says_so(edge: FakeAPI, end: str | None, said: str) -> None:
    edge.edit(IDS, "edge", {"status": {"rollout": PLAN | {"estimatedEnd": end}}}, "default")

    assert said in cli.run(edge, "rollout", "get", "edge").output


def test_a_halted_rollout_ends_with_1(edge: FakeAPI) -> None:
    conditions = [{"type": "Progressing", "status": "False", "reason": "Halted"}]
    edge.edit(IDS, "edge", {"status": {"conditions": conditions}}, "default")

    assert cli.run(edge, "rollout", "get").exit_code == cli.run(edge, "rollout", "get", "edge").exit_code == 1


def test_a_rollout_is_paused_and_resumed(edge: FakeAPI) -> None:
    assert cli.run(edge, "rollout", "pause", "edge", answer="y\n").exit_code == 0
    assert edge.get(IDS, "edge", "default")["spec"]["paused"] is True
    assert "nothing was changed" in cli.run(edge, "rollout", "pause", "edge").output

    assert cli.run(edge, "rollout", "resume", "edge", "--yes").exit_code == 0
    assert edge.get(IDS, "edge", "default")["spec"]["paused"] is False


def test_a_restart_changes_the_template(edge: FakeAPI) -> None:
    result = cli.run(edge, "rollout", "restart", "edge", "--yes")

    template = edge.get(IDS, "edge", "default")["spec"]["template"]
    assert "kubectl.kubernetes.io/restartedAt" in template["metadata"]["annotations"]
    assert template["metadata"]["labels"] == {"app": "edge"}
    assert result.output == "default/edge: restarted; drawbridge rollout get edge -n default -w shows it\n"


def test_an_unknown_rollout_is_named(edge: FakeAPI) -> None:
    result = cli.run(edge, "rollout", "pause", "nginx", "--yes")

    assert result.exit_code == 1
    assert '"nginx" not found' in result.output
