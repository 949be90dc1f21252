"""A node that is to be drained is off the load balancer before its pods are evicted, and back when that is over."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from api.health_checks import SCHEDULED
from api.ingress_daemonset import DRAIN_REQUESTS, EVICTABLE_NODES, TO_BE_UPDATED
from controllers.ingress_daemonset.children import Change, Target, Writes
from kube.types import rfc3339
from tests.ingress_daemonset_leader import KEY, settled
from tests.ingress_daemonset_rolling import Rolling
from tests.ingress_daemonset_world import DETACHED, UID, World, raw_resource
from tests.tables import table

NODES = ("n1", "n2", "n3")
GRACE, TIMEOUT, HELD = 20, 90, 90 + 60
BY_NODE = {"annotateNodeToDetach": {"key": DETACHED, "gracePeriodSeconds": 10}}


def world(*nodes: str, limit: int = 1, spec: dict[str, Any] | None = None, **rolling: Any) -> World:
    parts = {"maxUnavailableNodes": limit, "annotateDeploymentToDetach": {"gracePeriodSeconds": GRACE}}
    parts |= rolling
    here = World(raw_resource(healthCheckNodePorts=[10080], rolling=parts, **(spec or {})), *(nodes or NODES))
    here.settle()
    return here


def request(where: World, node: str = "n1") -> None:
    """As the webhook does for an eviction."""
    where.raw.setdefault("status", {}).setdefault(DRAIN_REQUESTS, {})[node] = rfc3339(where.now)


def handed(where: World, part: str = EVICTABLE_NODES) -> set[str]:
    return {*where.raw.get("status", {}).get(part, {})}


def cordon(where: World, node: str = "n1") -> None:
    where.nodes[node]["spec"]["unschedulable"] = True


def taint(where: World, node: str = "n1") -> None:
    where.taint(node, "ToBeDeletedByClusterAutoscaler")


def turns(where: World, number: int = 4) -> None:
    for _ in range(number):
        where.turn()


def marked(where: World) -> set[str]:
    return {name for name in where.nodes if TO_BE_UPDATED in where.annotations_on(name)}


def requested() -> World:
    here = world()
    request(here)
    turns(here)
    return here


def cordoned(**parts: Any) -> World:
    """An administrator drains n1."""
    here = world(**parts)
    cordon(here)
    request(here)
    return here


@table("ask", {"an eviction": request, "an autoscaler": taint})
def test_a_node_is_detached_and_its_pods_may_be_evicted_when_the_grace_is_over(ask: Any) -> None:
    here = world(**BY_NODE)
    cordon(here)
    ask(here)
    turns(here)
    assert marked(here) == here.off() == {"n1"}
    assert handed(here) == set()
    assert here.waiting()["n1"]["phase"] == "Draining"

    here.later(GRACE - 1)
    turns(here)
    assert handed(here) == set()
    here.later(1)
    turns(here)
    assert handed(here) == {"n1"}
    assert here.plan().actions == ()
    assert here.image_on("n1") == "proxy:1"


def test_a_drain_waits_while_a_node_that_failed_with_the_template_is_not_trusted_again() -> None:
    here = Rolling(*NODES, rolling={"maxUnavailableNodes": 1})
    here.roll_out()
    here.play(lambda: here.world.image_on("n1") == "proxy:2" and "n1" not in here.world.off())
    here.world.set_available("n1", 0)
    here.turn()
    here.world.run_pods("n1")
    request(here.world, "n3")
    for _ in range(5):
        here.turn()
    assert "n3" not in here.world.off()


def test_a_node_that_stays_cordoned_stays_detached_and_comes_back_when_it_is_uncordoned() -> None:
    here = cordoned()
    here.settle()
    here.later(86400)
    here.settle()
    assert marked(here) == {"n1"}

    del here.nodes["n1"]["spec"]["unschedulable"]
    here.settle()
    assert marked(here) == set()
    assert SCHEDULED not in here.annotations_on("n1")
    assert handed(here) == handed(here, DRAIN_REQUESTS) == set()
    assert here.raw["metadata"]["finalizers"] == []


def test_one_that_was_never_cordoned_comes_back_after_the_time_for_which_evictions_are_held() -> None:
    here = world()
    request(here)
    asked = here.now
    turns(here)
    here.later(GRACE)
    assert here.turn().actions
    assert here.turn().requeue_at == asked + timedelta(seconds=TIMEOUT)
    here.later(TIMEOUT - GRACE)
    assert here.turn().requeue_at == asked + timedelta(seconds=HELD)
    assert marked(here) == {"n1"}

    here.settle()
    assert marked(here) == set()
    assert here.now == asked + timedelta(seconds=HELD)


def test_one_whose_pods_are_missing_stays_detached_until_they_are_back() -> None:
    here = requested()
    here.later(HELD)
    here.run_pods()
    here.set_available("n1", 1)
    turns(here)
    assert marked(here) == {"n1"}
    progressing = here.conditions()["Progressing"]
    assert progressing["reason"] == "WaitingForNodes"
    assert "n1: 1 of 2 pods are available" in progressing["message"]

    here.settle()
    assert marked(here) == set()


def test_a_drain_asks_for_no_place_in_the_budget_and_takes_one() -> None:
    here = world(limit=1)
    for name in ("n1", "n2"):
        request(here, name)
        cordon(here, name)
    here.settle()
    assert marked(here) == {"n1", "n2"}

    here.retemplate("proxy:2")
    here.settle()
    assert here.image_on("n3") == "proxy:1"
    assert marked(here) == {"n1", "n2"}

    for name in ("n1", "n2"):
        del here.nodes[name]["spec"]["unschedulable"]
    here.later(HELD)
    here.settle()
    assert {here.image_on(name) for name in NODES} == {"proxy:2"}
    assert marked(here) == set()


def test_a_drain_waits_for_no_rollout_that_is_paused() -> None:
    here = world(spec={"paused": True})
    here.raw["spec"]["template"]["spec"]["containers"][0]["image"] = "proxy:2"
    cordon(here)
    request(here)
    here.settle()

    assert handed(here) == {"n1"}
    assert here.image_on("n1") == "proxy:1"


def test_an_eviction_waits_for_the_confirmation_too() -> None:
    here = world()
    here.unread = {"n1"}
    cordon(here)
    request(here)
    turns(here)
    here.later(GRACE)
    turns(here)
    assert handed(here) == set()
    (waiting,) = here.plan().unconfirmed
    assert "it is to be drained; its detachment is not confirmed" in waiting.why

    here.unread = set()
    turns(here)
    assert handed(here) == {"n1"}


@table(
    "parts",
    {
        "drains are off": {"spec": {"drainTimeoutSeconds": 0}},
        "nodes are never detached": {"limit": 0, "annotateDeploymentToDetach": None},
        "it is only cordoned": None,
    },
)
def test_a_node_that_cannot_or_need_not_be_detached_is_left_alone(parts: dict[str, Any] | None) -> None:
    here = world(**(parts or {}))
    cordon(here)
    if parts:
        request(here)
        taint(here, "n2")
    here.settle()

    assert marked(here) == set()
    assert here.raw["metadata"]["finalizers"] == []


@pytest.mark.parametrize("how", ["deleted", "unlabelled", "finalized"])
def test_the_pods_of_a_node_that_leaves_go_when_its_health_checks_have_failed_for_the_grace(how: str) -> None:
    here = world()
    if how == "deleted":
        del here.nodes["n1"]
    elif how == "unlabelled":
        here.nodes["n1"]["metadata"]["labels"]["node.kubernetes.io/instance-type"] = "eklet"
    else:
        here.nodes["n1"]["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    here.turn()
    left = here.now
    assert TO_BE_UPDATED in here.annotations_on("n1")
    assert here.turn().requeue_at == left + timedelta(seconds=GRACE)
    assert here.waiting()["n1"]["phase"] == "Leaving"

    here.later(GRACE - 1)
    here.turn()
    assert "web-n1" in here.deployments
    here.later(1)
    here.turn()
    assert "web-n1" not in here.deployments


@table(
    "parts",
    {
        "annotated": {"annotateNodeToDetach": {"key": DETACHED, "gracePeriodSeconds": 60}},
        "labelled": {"labelNodeToDetach": True, "confirmTimeoutSeconds": 60},
    },
)
def test_a_node_that_its_autoscaler_deletes_with_a_finalizer_keeps_its_pods_for_its_own_grace(
    parts: dict[str, Any],
) -> None:
    here = world(**parts)
    taint(here)
    turns(here)
    here.nodes["n1"]["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    here.later(5)
    turns(here)

    here.later(54)
    turns(here)
    assert "web-n1" in here.deployments
    here.later(1)
    here.turn()
    assert "web-n1" not in here.deployments


@table(
    "parts, pods",
    {
        "without a grace": ({"annotateDeploymentToDetach": {}}, 2),
        "nodes are never detached": ({"limit": 0, "annotateDeploymentToDetach": None}, 2),
        "its pods are gone already": ({}, 0),
    },
)
def test_the_deployment_of_a_node_that_leaves_goes_at_once(parts: dict[str, Any], pods: int) -> None:
    here = world(**parts)
    del here.nodes["n1"]
    if not pods:
        here.turn()
        here.set_available("n1", pods)
    here.turn()

    assert "web-n1" not in here.deployments


# The hand-over in the status


def drained(*nodes: str, **parts: Any) -> World:
    """n1 is detached, and its pods may be evicted; its request ends next."""
    here = world(*nodes, **parts)
    request(here)
    turns(here)
    here.later(GRACE)
    turns(here)
    assert handed(here) == {"n1"}
    here.later(HELD)
    here.run_pods()
    return here


def test_a_node_is_attached_only_after_the_status_says_that_its_pods_may_not_be_evicted() -> None:
    here = drained()
    planned = here.turn()
    assert [(each.target.kind, getattr(each, "subresource", "")) for each in planned.actions] == [
        ("IngressDaemonSet", "status")
    ]
    assert (handed(here), marked(here)) == (set(), {"n1"})

    here.turn()
    assert marked(here) == set()


def test_new_pods_of_a_drained_node_are_not_late_for_its_last_update() -> None:
    here = drained(spec={"progressDeadlineSeconds": 60})
    here.retemplate("proxy:2")
    here.settle()
    here.later(1000)
    request(here)
    turns(here)
    here.later(GRACE)
    turns(here)
    here.set_available("n1", 0)
    here.later(HELD)
    turns(here)

    assert here.waiting()["n1"]["phase"] == "Updating"
    assert "Halted" not in {each["reason"] for each in here.conditions().values()}


@table(
    "doubted, what",
    {
        "a node is not attached": (Target("IngressDaemonSet", "edge", "web"), "attached"),
        "pods are not evictable": (Target("Deployment", "edge", "web-n1"), "evictable"),
        "a Deployment is left alone": (Target("Deployment", "edge", "web-n1"), "gone"),
    },
)
def test_while_a_write_is_in_doubt(doubted: Target, what: str) -> None:
    if what == "attached":
        here = drained()
        here.turn()
    elif what == "evictable":
        here = requested()
        here.later(GRACE)
    else:
        here = world()
        del here.nodes["n1"]

    assert here.plan(Writes(frozenset({doubted}))).actions == ()
    assert here.plan().actions != ()


def test_the_status_is_written_for_the_version_that_was_read_and_names_only_its_own_entries() -> None:
    here = drained()
    here.raw["metadata"]["resourceVersion"] = "7"
    request(here, "n2")
    cordon(here, "n2")
    (write,) = (each for each in here.plan().actions if each.target.kind == "IngressDaemonSet")
    assert isinstance(write, Change)

    assert write.body["metadata"] == {"uid": UID, "resourceVersion": "7"}
    assert write.body["status"] == {DRAIN_REQUESTS: {"n1": None}, EVICTABLE_NODES: {"n1": None}}


def test_requests_that_cannot_be_read_or_are_held_no_more_are_cleared() -> None:
    here = world()
    here.raw["status"] = {DRAIN_REQUESTS: {"n1": "soon"}}
    here.settle()
    assert handed(here, DRAIN_REQUESTS) == marked(here) == set()

    here = drained()
    here.raw["spec"]["drainTimeoutSeconds"] = 0
    here.settle()
    assert handed(here) == handed(here, DRAIN_REQUESTS) == marked(here) == set()


def unmanage(where: World) -> None:
    where.deployments["web-n1"]["metadata"]["ownerReferences"] = []


def end(where: World) -> None:
    where.deployments["web-n1"]["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"


def leave(where: World) -> None:
    """The node and its Deployment, but not yet its pods."""
    del where.nodes["n1"], where.deployments["web-n1"]


@pytest.mark.parametrize("how", [unmanage, end, leave])
def test_an_eviction_does_not_wait_where_nothing_of_ours_can_be_detached(how: Any) -> None:
    here = world()
    how(here)
    request(here)
    asked = here.now
    turns(here, 1)
    assert handed(here) == {"n1"}
    assert handed(here, DRAIN_REQUESTS) == {"n1"}
    assert here.plan().requeue_at == asked + timedelta(seconds=TIMEOUT)

    here.later(HELD)
    turns(here, 1)
    assert handed(here) == handed(here, DRAIN_REQUESTS) == set()
    assert here.plan().requeue_at is None


def test_the_request_for_a_node_that_leaves_lasts_until_it_ends_by_time() -> None:
    """Cleared any sooner, the next eviction would make another, and wait for that one from the beginning."""
    here = world()
    del here.nodes["n1"]
    request(here)
    here.turn()
    assert handed(here) == set()
    assert handed(here, DRAIN_REQUESTS) == {"n1"}

    here.later(HELD)
    here.settle()
    assert handed(here) == handed(here, DRAIN_REQUESTS) == set()
    assert "web-n1" not in here.deployments


def test_a_deployment_that_is_made_again_is_detached_before_its_pods_may_be_evicted() -> None:
    here = world()
    end(here)
    request(here)
    here.turn()
    assert handed(here) == {"n1"}

    del here.deployments["web-n1"]
    here.turn()
    assert handed(here) == set()
    turns(here)
    assert (handed(here), marked(here)) == (set(), {"n1"})
    here.later(GRACE)
    turns(here)
    assert handed(here) == {"n1"}


def test_a_drain_that_waited_for_room_until_it_ended_detaches_nothing() -> None:
    here = world(limit=1)
    request(here, "n1")
    request(here, "n2")
    turns(here)
    here.later(TIMEOUT - 1)
    turns(here)
    assert handed(here) == {"n1"}
    here.later(1)
    turns(here)
    assert handed(here) == {"n1", "n2"}, "it has waited for long enough"
    assert marked(here) == {"n1"}
    assert "waits for room" in here.waiting()["n2"]["reason"]

    here.later(HELD)
    here.settle()
    assert handed(here, DRAIN_REQUESTS) == handed(here) == marked(here) == set()


@pytest.mark.parametrize("behind", [0, 300, -300])
def test_a_request_counts_from_when_it_is_seen_whatever_the_clock_of_the_webhook_server_shows(
    behind: int,
) -> None:
    """One that was cleared at once would be made again and again, and no eviction would ever pass."""
    here = settled(*NODES, rolling={"maxUnavailableNodes": 1})
    asked = rfc3339(here.now() - timedelta(seconds=behind))
    here.api.change("IngressDaemonSet", KEY, {"status": {DRAIN_REQUESTS: {"n1": asked}}})

    here.looks(HELD - 5)
    assert {*here.status[EVICTABLE_NODES]} == {*here.status[DRAIN_REQUESTS]} == {"n1"}
    here.looks(10)
    assert (here.status[EVICTABLE_NODES], here.status[DRAIN_REQUESTS]) == ({}, {})


def test_a_request_from_the_end_of_all_times_ends_like_any_other() -> None:
    here = world()
    here.raw["status"] = {DRAIN_REQUESTS: {"n1": "9999-12-31T23:59:59Z"}}
    turns(here)
    assert marked(here) == {"n1"}
    here.settle()
    assert handed(here, DRAIN_REQUESTS) == handed(here) == marked(here) == set()
