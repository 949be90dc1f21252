"""A rollout over nodes: who is off when, for how long, and what is left behind."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from api.health_checks import SCHEDULED
from api.ingress_daemonset import APPLIED_TEMPLATE, DETACHED_BY, FINALIZER, TO_BE_UPDATED
from api.ingress_daemonset.types import share
from controllers.ingress_daemonset.children import STUCK, Change, Create, Kind, Target, Workload, Writes
from controllers.ingress_daemonset.detachment import NodeBackends
from controllers.ingress_daemonset.planner import Plan, plan
from tests.ingress_daemonset_rolling import Rolling
from tests.ingress_daemonset_world import (
    COMPLETE,
    DETACHED,
    TIMESTAMP,
    UID,
    World,
    complete,
    merge,
    raw_node,
    raw_resource,
)
from tests.tables import table

NODES = ("n1", "n2", "n3", "n4", "n5")
BY_NODE = {"annotateNodeToDetach": {"key": DETACHED, "value": "true", "gracePeriodSeconds": 10}}
BY_BOTH = BY_NODE | {"annotateDeploymentToDetach": {"gracePeriodSeconds": 20}}
CONFIRMED = BY_NODE | {"waitForDetachmentByAnnotatedTimestamp": {"key": TIMESTAMP, "gracePeriodSeconds": 30}}


def world(*nodes: str, **spec: Any) -> World:
    """That has come to rest with its first template."""
    created = World(raw_resource(**spec), *(nodes or NODES))
    created.settle()
    return created


def outdated(*nodes: str, **spec: Any) -> World:
    """At rest, before another template is rolled out."""
    created = world(*nodes, **spec)
    created.retemplate("proxy:2")
    return created


def begun(*nodes: str, **spec: Any) -> World:
    """The first nodes are being updated."""
    created = outdated(*nodes, **spec)
    created.turn()
    return created


def detaching(limit: int | str = 2, **parts: Any) -> dict[str, Any]:
    return {"maxUnavailableNodes": limit, **(parts or BY_NODE)}


def test_every_node_gets_its_deployment_in_one_write_and_only_the_first_answer_is_recorded() -> None:
    fresh = World(raw_resource(healthCheckNodePorts=[10080]), *NODES)

    kinds = {each.target.kind for each in fresh.turn().actions if isinstance(each, Create)}
    assert kinds == {"DaemonSet", "Deployment", "RoleBinding", "ControllerRevision"}
    assert set(fresh.deployments) == {f"web-{name}" for name in NODES}
    fresh.run_pods()
    recorded = {
        (each.target.kind, each.target.name) for each in fresh.turn().actions if isinstance(each, Change)
    }
    assert recorded == {("Deployment", "web-n1"), ("DaemonSet", "web-10080")}
    fresh.run_pods()
    assert fresh.plan().actions == ()


def test_only_as_many_nodes_as_allowed_are_detached_and_all_are_attached_again() -> None:
    here = begun(rolling=detaching(2))
    assert here.off() == {"n1", "n2"}
    assert here.plan().actions == ()
    here.settle()

    assert here.updated() == set(NODES)
    assert here.off() == set()
    assert here.status()["waitingFor"] == []
    assert not [each for each in here.nodes.values() if DETACHED_BY in each["metadata"]["annotations"]]
    assert not [each for each in here.deployments.values() if SCHEDULED in each["metadata"]["annotations"]]


def test_no_pod_is_touched_before_the_last_grace_is_over() -> None:
    here = begun(rolling=detaching(1, **BY_BOTH))
    assert TO_BE_UPDATED in here.deployments["web-n1"]["metadata"]["annotations"]
    assert here.plan().requeue_at == here.now + timedelta(seconds=20)

    here.later(19)
    here.turn()
    assert here.updated() == set()
    here.later(1)
    here.turn()
    assert here.updated() == {"n1"}


def test_a_timestamp_that_stood_there_before_or_is_no_time_confirms_nothing() -> None:
    here = world(rolling=detaching(1, **CONFIRMED))
    here.confirm("n1", here.now + timedelta(days=1))
    here.retemplate("proxy:2")
    here.turn()
    here.later(99999)
    planned = here.turn()

    assert here.updated() == set()
    assert planned.requeue_at is None
    assert here.conditions()["Progressing"]["reason"] == "WaitingForDetachment"

    for said in ("yesterday", "2026-01-02T03:04:05", ""):
        here.nodes["n1"]["metadata"]["annotations"][TIMESTAMP] = said
        here.later(99999)
        here.turn()
        assert here.updated() == set()

    here.confirm("n1", here.now)
    assert here.turn().requeue_at == here.now + timedelta(seconds=30)
    here.later(30)
    here.turn()
    assert here.updated() == {"n1"}
    assert TIMESTAMP in here.nodes["n1"]["metadata"]["annotations"]


def test_a_node_that_a_human_detached_counts_and_stays_detached() -> None:
    here = world(rolling=detaching(1))
    here.annotate_node("n3", **{DETACHED: "by hand"})
    here.retemplate("proxy:2")

    here.turn()
    here.later(10)
    here.turn()
    assert here.updated() == {"n3"}
    assert here.off() == {"n3"}
    here.run_pods()
    here.settle()
    assert here.updated() == {"n3"}
    assert here.nodes["n3"]["metadata"]["annotations"] == {DETACHED: "by hand"}

    del here.nodes["n3"]["metadata"]["annotations"][DETACHED]
    here.settle()
    assert here.updated() == set(NODES)


def test_a_node_stays_detached_while_another_ingress_daemonset_needs_it() -> None:
    here = world("n1", rolling=detaching(1))
    other = {"uid-other": {"at": "2026-01-01T00:00:00Z", "key": DETACHED}}
    here.annotate_node("n1", **{DETACHED: "true", DETACHED_BY: json.dumps(other)})
    here.retemplate("proxy:2")
    here.settle()

    assert here.updated() == {"n1"}
    assert here.off() == {"n1"}
    assert list(json.loads(here.nodes["n1"]["metadata"]["annotations"][DETACHED_BY])) == ["uid-other"]


def test_a_node_to_which_another_ingress_daemonset_gives_weight_0_counts() -> None:
    here = outdated("n1", "n2", rolling=detaching(1, setWeightToDetach={"loadBalancers": ["lb-1"]}))
    nothing = {"n2": (NodeBackends("lb-1", detached_since=here.now),)}
    planned = plan(replace(here.snapshot(), backends=nothing))

    assert written(planned) == {"web-n2"}


def test_without_detaching_no_more_nodes_are_degraded_than_allowed() -> None:
    here = world(rolling={"maxDegradedNodes": 2})
    complete(here.deployments["web-n5"])
    here.set_available("n5", 1)
    here.set_ready("n5", False)
    here.set_available("n4", 1)
    here.retemplate("proxy:2")

    here.turn()
    # n4 has lost a pod, and n5 is not ready: the one counts, the other does not.
    assert here.updated() == {"n4", "n1"}
    assert here.off() == set()
    here.settle()
    assert here.updated() >= {"n1", "n2", "n3", "n4"}


def test_nodes_that_are_not_ready_come_last() -> None:
    here = world(rolling=detaching(2))
    here.set_ready("n1", False)
    here.retemplate("proxy:2")
    here.settle()

    assert here.updated() == set(NODES)
    assert here.off() == {"n1"}
    (waiting,) = here.waiting().values()
    assert (waiting["node"], waiting["phase"]) == ("n1", "Updating")
    assert "NotReady" in waiting["reason"]


def test_a_leader_whose_clock_is_behind_gives_back_what_it_has_not_touched() -> None:
    here = world(rolling=detaching(1))
    began = here.now
    here.later(600)
    here.retemplate("proxy:3")
    here.settle()
    here.now = began
    here.retemplate("proxy:2")
    while here.off() != {"n2"}:
        here.turn()
        here.later(10)
        here.run_pods()
    here.set_available("n1", 0)
    here.turn()

    assert (here.updated(), here.off()) == ({"n1"}, set())


def test_a_cordoned_node_waits_while_as_many_as_allowed_are_updated() -> None:
    here = begun("n1", "n2", rolling=detaching(1))
    here.nodes["n2"]["spec"]["unschedulable"] = True
    here.turn()

    assert here.off() == {"n1"}


def test_a_pause_lets_an_update_that_has_begun_end() -> None:
    here = begun("n1", "n2", rolling=detaching(1))
    here.later(10)
    here.turn()
    here.raw["spec"]["paused"] = True
    here.settle()
    assert (here.updated(), here.off()) == ({"n1"}, set())

    here.raw["spec"]["paused"] = False
    here.settle()
    assert here.updated() == {"n1", "n2"}


CRASH_LOOP = {"type": "Progressing", "status": "True", "reason": "ReplicaSetUpdated"}
GRACE = 30
"""Seconds, for old pods to terminate."""


@table(
    "rolling, progress, deadline",
    {
        "complete, after a conflict at its condition": (detaching(1), COMPLETE, 60 + 20 + GRACE),
        "making progress, at each crash": (detaching(1), CRASH_LOOP, 60 + 20 + GRACE),
        "and for each pod that is replaced by itself": ({}, CRASH_LOOP, 2 * (60 + 20) + GRACE),
    },
)
def test_a_rollout_halts_though_the_deployment_controller_counts_it_as(
    rolling: Any, progress: Any, deadline: int
) -> None:
    here = begun(rolling=rolling, progressDeadlineSeconds=60, minReadySeconds=20)
    here.later(10)
    while "n1" not in here.updated():
        here.turn()
    here.turn()
    [at] = {each.baseline.updated for each in here.plan().rollouts if each.baseline and each.baseline.updated}
    none = dict.fromkeys(("replicas", "updatedReplicas", "availableReplicas"), 0)
    here.deployments["web-n1"]["status"] |= none | {"observedGeneration": 99, "conditions": [progress]}
    here.now = at + timedelta(seconds=deadline - 1)

    assert here.conditions()["Progressing"]["reason"] == "RollingOut"
    assert here.plan().requeue_at == here.now + timedelta(seconds=1)
    here.later(1)
    assert here.conditions()["Progressing"]["reason"] == "Halted"
    assert here.conditions()["Degraded"]["reason"] == "RolloutStuck"
    assert "has not become available within" in here.waiting()["n1"]["reason"]
    here.settle()
    assert here.conditions()["Progressing"]["reason"] == "Complete"


def test_a_rollout_whose_last_node_never_comes_back_says_that_it_waits_for_it() -> None:
    here = begun("n1", "n2", rolling=detaching(1))
    [last] = here.off()
    here.set_ready(last, False)
    here.set_available(last, 0)
    here.retemplate("proxy:1")
    here.settle()
    here.later(3600)

    progressing = here.conditions()["Progressing"]
    assert progressing["reason"] == "WaitingForNodes"
    assert f"{last}: " in progressing["message"]
    assert progressing["message"].endswith("the node is NotReady")
    here.set_ready(last, True)
    here.settle()
    assert here.conditions()["Progressing"]["reason"] == "Complete"


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_new_node_whose_pods_do_not_start_in_time_is_waited_for_and_degraded(is_refused: bool) -> None:
    here = world("n1")
    here.nodes["n2"] = raw_node("n2")
    here.refused = "proxy:1" if is_refused else None
    here.turn()
    if not is_refused:
        assert here.conditions()["Progressing"]["reason"] == "RollingOut"
        here.deployments["web-n2"]["status"] = {"conditions": [COMPLETE | {"reason": STUCK}]}

    conditions = here.conditions()
    reasons = [conditions[each]["reason"] for each in ("Progressing", "Degraded")]
    assert reasons == ["WaitingForNodes", "PodsUnavailable"]
    said = (
        "refuses to create Deployment web-n2: no such image"
        if is_refused
        else "n2: 0 of 2 pods are available"
    )
    assert all(said in conditions[each]["message"] for each in ("Progressing", "Degraded"))


def test_a_node_that_loses_its_pods_before_its_turn_is_degraded() -> None:
    """A pause, a canary and a window may last."""
    here = outdated("n1", "n2", rolling=detaching(1))
    here.raw["spec"]["paused"] = True
    assert here.conditions()["Degraded"]["reason"] == "AsDesired"
    here.set_available("n1", 1)

    degraded, why = here.conditions()["Degraded"], "it waits for its turn; 1 of 2 pods are available"
    assert degraded["reason"] == "PodsUnavailable"
    assert degraded["message"] == f"1 nodes lack pods; n1: {why}"
    assert here.waiting()["n1"]["reason"] == why


def test_a_deployment_that_is_still_being_deleted_is_what_is_waited_for() -> None:
    """As in the foreground, while its pods take their time to end."""
    here = world("n1", "n2")
    here.deployments["web-n2"]["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"

    conditions = here.conditions()
    reasons = [conditions[each]["reason"] for each in ("Progressing", "Degraded")]
    assert reasons == ["WaitingForNodes", "PodsUnavailable"]
    assert here.waiting()["n2"]["reason"] == "Deployment web-n2 is being deleted; another one follows"

    here.retemplate("proxy:2")
    assert here.status()["updatedNodes"] == 0


def test_pods_that_may_take_longer_to_end_than_there_is_time_are_replaced() -> None:
    """As many seconds as the API server stores."""
    here = Rolling("n1", "n2", pod={"terminationGracePeriodSeconds": 2**63 - 1})
    here.roll_out()
    here.finish()

    assert here.updated() == {"n1", "n2"}


def test_marks_and_a_baseline_whose_times_have_no_zone_are_unreadable_and_stop_no_rollout() -> None:
    here, time = Rolling("n1", "n2", "n3"), "2026-01-02T03:04:05"
    applied = json.loads(here.world.annotations_on("n3")[APPLIED_TEMPLATE])
    here.world.annotations_on("n1")[SCHEDULED] = json.dumps({"at": time})
    here.world.annotate_node("n2", **{DETACHED_BY: json.dumps({UID: {"at": time}})})
    here.world.annotations_on("n3")[APPLIED_TEMPLATE] = json.dumps(applied | {"updated": time})
    here.roll_out()
    here.finish()

    assert here.updated() == {"n1", "n2", "n3"}


def test_a_node_that_is_updated_while_it_serves_is_not_said_to_be_detached() -> None:
    surge = {"maxSurgedPodsPerNode": 1, "maxUnavailablePodsPerNode": 0}
    here = begun("n1", "n2", rolling={"maxDegradedNodes": 1, **surge})

    assert here.updated() == {"n1"}
    assert (here.status()["detachedNodes"], here.status()["degradedNodes"]) == (0, 1)


def test_a_node_that_counts_is_not_waited_for_while_others_may_begin() -> None:
    here = outdated(rolling=detaching(2))
    here.nodes["n5"]["spec"]["unschedulable"] = True

    assert here.conditions()["Progressing"]["reason"] == "RollingOut"


def test_the_finalizer_goes_after_the_last_node_is_attached() -> None:
    here = begun(rolling=detaching(2))
    here.raw["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"

    here.turn()
    assert here.off() == set()
    assert here.raw["metadata"]["finalizers"] == [FINALIZER]
    here.turn()
    assert here.raw["metadata"]["finalizers"] == []
    assert here.plan().actions == ()


def test_no_node_is_detached_before_the_finalizer_is_there() -> None:
    here = outdated(rolling=detaching(2))
    here.raw["metadata"]["finalizers"] = ["else/where"]
    here.turn()
    assert here.off() == set()
    assert here.raw["metadata"]["finalizers"] == ["else/where", FINALIZER]
    here.turn()
    assert here.off() == {"n1", "n2"}


def test_one_that_is_going_already_is_given_no_finalizer() -> None:
    here = begun("n1", rolling=detaching(1))
    here.raw["metadata"] |= {"deletionTimestamp": "2026-01-02T03:04:05Z", "finalizers": ["else/where"]}

    here.turn()
    assert here.off() == set()
    assert here.raw["metadata"]["finalizers"] == ["else/where"]


def test_a_node_that_leaves_holds_its_place_until_its_pods_go() -> None:
    here = begun(rolling=detaching(1))
    here.nodes["n1"]["metadata"]["labels"]["node.kubernetes.io/instance-type"] = "eklet"

    here.turn()
    assert here.off() == {"n1"}
    here.later(9)
    here.turn()
    assert here.off() == {"n1"}
    here.later(1)
    here.turn()
    assert "web-n1" not in here.deployments
    here.turn()
    assert here.nodes["n1"]["metadata"]["annotations"] == {}
    assert here.off() == set()
    here.turn()
    assert here.off() == {"n2"}


def test_an_annotation_that_is_removed_during_a_rollout_is_restored() -> None:
    here = outdated("n1", rolling=detaching(1))
    for _ in range(2):
        here.turn()
        here.later(10)
    assert here.updated() == {"n1"}
    del here.nodes["n1"]["metadata"]["annotations"][DETACHED]
    del here.deployments["web-n1"]["metadata"]["annotations"][TO_BE_UPDATED]

    here.turn()
    assert here.off() == {"n1"}
    assert TO_BE_UPDATED in here.deployments["web-n1"]["metadata"]["annotations"]
    here.settle()
    assert here.off() == set()
    assert TO_BE_UPDATED not in here.deployments["web-n1"]["metadata"]["annotations"]


@table(
    "stale, confirmed",
    {
        "it stood there before the other detached the node": ("2026-01-01T00:00:00Z", False),
        "it was written for the other": ("", True),
    },
)
def test_a_timestamp_counts_for_all_that_detach_the_node_or_for_none(stale: str, confirmed: bool) -> None:
    here = world("n1", rolling=detaching(1, **CONFIRMED))
    other = {"uid-other": {"at": "2026-01-01T00:00:00Z", "key": DETACHED, "stale": stale}}
    here.annotate_node("n1", **{DETACHED: "true", DETACHED_BY: json.dumps(other)})
    here.annotate_node("n1", **{TIMESTAMP: "2026-01-01T00:00:00Z"})
    here.retemplate("proxy:2")
    here.turn()
    here.later(99999)
    here.turn()
    assert here.updated() == ({"n1"} if confirmed else set())


def test_a_health_checker_without_its_port_is_deleted_and_an_unmanaged_one_stays() -> None:
    here = world(healthCheckNodePorts=[10080, 10081])
    here.daemonsets["theirs"] = {"metadata": {"name": "theirs", "uid": "theirs"}, "spec": {}}
    here.deployments["theirs"] = {"metadata": {"name": "theirs", "uid": "theirs"}, "spec": {}}
    here.raw["spec"]["healthCheckNodePorts"] = [10081]
    here.settle()

    assert set(here.daemonsets) == {"web-10081", "theirs"}
    assert "theirs" in here.deployments


def test_the_status_counts_the_nodes_and_says_what_each_waits_for() -> None:
    here = begun(rolling=detaching(2))
    status = here.status()

    assert [status[name] for name in ("desiredNodes", "updatedNodes", "readyNodes", "detachedNodes")] == [
        5,
        0,
        5,
        2,
    ]
    assert status["observedGeneration"] == 1
    turns = [{"node": name, "phase": "Outdated", "reason": "it waits for its turn"} for name in NODES[2:]]
    assert status["waitingFor"][2:] == turns
    assert status["waitingFor"][:2] == [
        {
            "node": name,
            "phase": "Detaching",
            "reason": "the load balancer has until 2026-01-02T03:04:15Z to stop sending traffic",
            "since": "2026-01-02T03:04:05Z",
        }
        for name in ("n1", "n2")
    ]
    assert {kind: each["status"] for kind, each in here.conditions().items()} == {
        "Available": "True",
        "Progressing": "True",
        "Degraded": "False",
    }


@table("names", {"no node": (), "no pods yet": NODES})
def test_without_available_pods_it_is_not_available(names: tuple[str, ...]) -> None:
    assert World(raw_resource(), *names).conditions()["Available"]["status"] == "False"


def test_what_is_known_of_a_node_is_worked_out_again_for_its_own_writes_alone() -> None:
    here, uncertain = world(), Writes(frozenset({Target("Deployment", "edge", "web-n2")}))
    snapshots = [here.snapshot(each) for each in (None, uncertain, None, uncertain)]
    plans = [plan(snapshots[0])]
    for each in snapshots[1:]:
        plans.append(plan(each, plans[-1].rollouts))

    for before, after in pairwise(plans):
        changed = [each.node.name for each in after.rollouts if each not in before.rollouts]
        assert changed == ["n2"]


def test_a_node_that_is_not_detached_costs_no_look_at_who_detached_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here, decoded = world(), list[str]()
    snapshot, decode = here.snapshot(), msgspec.json.decode
    known = plan(snapshot).rollouts
    monkeypatch.setattr(
        "msgspec.json.decode", lambda text, **how: decoded.append(text) or decode(text, **how)
    )
    plan(snapshot, known)

    assert decoded == []


def test_a_node_of_whose_write_nothing_was_heard_counts_as_off_and_is_left_alone() -> None:
    here = outdated(rolling=detaching(1))

    assert written(here.plan(Writes(frozenset({Target("Node", "", "n2")})))) == set()
    assert written(here.plan(Writes(frozenset({Target("Deployment", "edge", "web-n2")})))) == set()
    assert written(here.plan()) == {"n1", "web-n1"}


@pytest.mark.parametrize(
    ("kind", "namespace", "name", "later"),
    [("Node", "", "n1", 15), ("Deployment", "edge", "web-n1", 1), ("Node", "", "n1", -1)],
)
def test_a_grace_counts_from_when_its_mark_was_first_seen(
    kind: Kind, namespace: str, name: str, later: int
) -> None:
    here = begun("n1", rolling=detaching(1, **BY_BOTH))
    seen = {(Target(kind, namespace, name), here.now): here.now + timedelta(seconds=later)}
    here.later(20)
    assert bool(here.plan(Writes(seen=seen)).actions) == (later < 0)


@table("how", {"at rest": {}, "deleted": {"deletionTimestamp": "2026-01-02T03:04:05Z"}})
def test_the_finalizer_stays_while_a_node_may_yet_be_detached(how: dict[str, str]) -> None:
    here = world("n1", rolling=detaching(1))
    here.raw["metadata"] |= {"finalizers": [FINALIZER]} | how

    assert here.plan(Writes(frozenset({Target("Node", "", "n1")}))).actions == ()
    assert written(here.plan()) == {"web"}


def test_a_deployment_of_another_selector_is_left_alone_though_it_is_ours() -> None:
    here = world("n1", "n2", rolling=detaching(1), healthCheckNodePorts=[10080])
    old = {"matchLabels": {"ingress-daemonset-node": "web-n1"}}
    here.deployments["web-n1"]["spec"]["selector"] = old
    here.daemonsets["web-10080"]["spec"]["selector"] = old
    here.retemplate("proxy:2")
    here.settle()

    assert here.updated() == {"n2"}
    assert here.conditions()["Degraded"]["reason"] == "ForeignDeployment"
    assert "another selector" in here.conditions()["Degraded"]["message"]
    assert here.conditions()["Progressing"]["message"] == "1 of 2 nodes are updated and in service"
    assert here.daemonsets["web-10080"]["spec"]["selector"] == old

    del here.deployments["web-n1"]
    here.settle()
    assert here.updated() == {"n1", "n2"}
    assert here.conditions()["Degraded"]["reason"] == "ForeignObject"


def written(planned: Plan) -> set[str]:
    return {each.target.name for each in planned.actions if isinstance(each, Change)}


def test_what_health_checkers_are_allowed_is_put_right_and_goes_with_the_ports() -> None:
    here = world("n1", healthCheckNodePorts=[10080])
    here.bindings["web-health-checker"]["subjects"] = []
    here.settle()

    assert here.bindings["web-health-checker"]["subjects"][0]["name"] == "default"

    here.raw["spec"]["healthCheckNodePorts"] = []
    here.settle()
    assert (here.bindings, here.daemonsets) == ({}, {})


def test_a_pod_with_a_host_port_gets_no_second_one_before_its_template_is_replaced() -> None:
    """The kubelet would refuse it, again and again, for as long as the rollout is paused."""
    proxy = {"name": "proxy", "image": "proxy:1", "ports": [{"containerPort": 80, "hostPort": 80}]}
    here = world("n1", pod={"containers": [proxy]}, podsPerNode=1)
    here.set_available("n1", 0)
    here.raw["spec"] |= {"podsPerNode": 2, "paused": True}
    here.retemplate("proxy:2")
    for _ in range(3):
        here.turn()
    assert here.deployments["web-n1"]["spec"]["replicas"] == 1

    here.raw["spec"]["paused"] = False
    here.settle()
    assert (here.deployments["web-n1"]["spec"]["replicas"], here.updated()) == (2, {"n1"})


@pytest.mark.parametrize(("pod", "spec"), [({}, {"podsPerNode": 3}), ({"hostNetwork": True}, {})])
def test_a_shorter_deadline_waits_for_the_shorter_time_that_it_must_exceed(
    pod: dict[str, Any], spec: dict[str, Any]
) -> None:
    here = world("n1", "n2", pod=pod, minReadySeconds=60, progressDeadlineSeconds=120)
    here.raw["spec"] |= {"minReadySeconds": 5, "progressDeadlineSeconds": 60} | spec
    here.retemplate("proxy:2")
    for _ in range(20):
        here.turn()
        specs = [each["spec"] for each in here.deployments.values()]
        assert all(each["progressDeadlineSeconds"] > each["minReadySeconds"] for each in specs)
        here.run_pods()
        here.later(10)

    assert here.updated() == {"n1", "n2"}
    assert {(each["progressDeadlineSeconds"], each["minReadySeconds"]) for each in specs} == {(60, 5)}


def test_health_checkers_follow_their_deployments_until_those_of_another_account_replace_them() -> None:
    """Else nodes answer 200 for pods that are gone, or 503, until they have one of the new account."""
    here = world("n1", "n2", healthCheckNodePorts=[10080])

    def accounts(observed: int, updated: int) -> list[str]:
        counts = {"desiredNumberScheduled": 2, "updatedNumberScheduled": updated}
        here.daemonsets["web-10080"]["status"] = {"observedGeneration": observed} | counts
        here.settle()
        return [each["name"] for each in here.bindings["web-health-checker"]["subjects"]]

    assert accounts(1, 2) == ["default"]
    here.raw["spec"]["healthChecker"] = {"serviceAccountName": "other"}
    assert accounts(1, 2) == accounts(2, 0) == accounts(2, 1) == ["other", "default"]
    assert accounts(2, 2) == ["other"]


def test_a_binding_to_another_role_is_replaced_because_it_cannot_be_changed() -> None:
    here = world("n1", healthCheckNodePorts=[10080])
    here.bindings["web-health-checker"]["roleRef"] = {"kind": "Role", "name": "web-health-checker"}
    here.settle()

    assert here.bindings["web-health-checker"]["roleRef"]["name"] == "drawbridge-health-checker"


UNAVAILABLE = [
    pytest.param(
        {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, "NotReady", id="not ready"
    ),
    pytest.param({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, "NotReady", id="lost"),
    pytest.param({"spec": {"unschedulable": True}}, "cordoned", id="cordoned"),
    pytest.param(
        {"metadata": {"labels": {"node.kubernetes.io/exclude-from-external-load-balancers": ""}}},
        "detached",
        id="left out by its label",
    ),
    pytest.param(
        {"metadata": {"annotations": {DETACHED: "by hand"}}}, "detached", id="with the annotation of another"
    ),
]


@pytest.mark.parametrize(("change", "said"), UNAVAILABLE)
def test_nodes_that_use_up_the_whole_budget_are_named_and_hold_the_rollout_until_they_are_back(
    change: dict[str, Any], said: str
) -> None:
    here = outdated("n1", "n2", rolling=detaching(1))
    here.settle()
    well = copy.deepcopy(here.nodes["n2"])
    merge(here.nodes["n2"], change)
    edited = {"template": {"spec": {"containers": [{"name": "proxy", "image": "mine:1"}]}}}
    here.edit("web-n1", {"spec": edited})
    here.settle()

    progressing = here.conditions()["Progressing"]
    assert progressing["reason"] == "WaitingForNodes"
    assert f"these also count against maxUnavailableNodes: n2 is {said}" in progressing["message"]
    assert here.status()["unavailableNodes"] == 1
    assert here.image_on("n1") == "mine:1"

    here.nodes["n2"] = well
    here.settle()
    assert here.updated() == {"n1", "n2"}


@pytest.mark.parametrize(
    ("value", "whole", "number"),
    [(2, 30, 2), (0, 30, 0), ("10%", 30, 3), ("10%", 31, 4), ("1%", 3, 1), ("0%", 30, 0), ("100%", 30, 30)],
)
def test_a_percentage_is_rounded_up_and_at_least_one(value: int | str, whole: int, number: int) -> None:
    assert share(value, whole) == number


@table(
    "status, said",
    {
        "not observed": ({"observedGeneration": 1}, "has not begun with its new template"),
        "old pods are available": (
            {"replicas": 3, "updatedReplicas": 1, "availableReplicas": 2},
            "1 of 2 pods have the new template; 2 of 2 are available",
        ),
        "old pods are left": (
            {"replicas": 3, "updatedReplicas": 2, "availableReplicas": 2},
            "pods of the former template are still there: 1; 2 of 2 are available",
        ),
        "pods start": ({"replicas": 2, "updatedReplicas": 2, "availableReplicas": 1}, ""),
    },
)
def test_what_an_update_lacks_beside_available_pods(status: dict[str, int], said: str) -> None:
    raw = {
        "metadata": {"generation": 2},
        "spec": {"replicas": 2},
        "status": {"observedGeneration": 2} | status,
    }

    assert msgspec.convert(raw, Workload).lacks.endswith(said)


def test_what_is_updated_pod_by_pod_goes_on_so_when_nodes_are_to_be_detached() -> None:
    gradual = {"maxUnavailableNodes": 0, "maxDegradedNodes": 2, "annotateNodeToDetach": None}
    here = Rolling(rolling=gradual)
    here.roll_out()
    here.play(lambda: here.updated())
    began = here.updated()
    here.world.raw["spec"]["updateStrategy"]["rollingUpdate"] = detaching()
    here.world.raw["metadata"]["generation"] += 1

    def at_once(name: str) -> bool:
        strategy = here.world.deployments[f"web-{name}"]["spec"]["strategy"]
        return bool(strategy["rollingUpdate"]["maxUnavailable"] == "100%")

    for _ in range(5):
        here.world.turn()
    assert not any(map(at_once, began))
    here.finish()

    assert here.updated() == {*here.world.nodes}
    assert all(map(at_once, here.world.nodes))
