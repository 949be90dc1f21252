"""Which pod returns first, and what a workload must be like: values alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from api.elasticity import BURST, PLACEMENT, SUPER
from controllers.elasticity.eligibility import request_of
from controllers.elasticity.filters import Request
from controllers.elasticity.patches import TOLERATION
from controllers.elasticity.pods import Pod, PodIndex, PodSpec, decode_for_return
from controllers.elasticity.return_home.planner import (
    Choice,
    LocalRoom,
    Outcome,
    Return,
    choose,
    outcome,
)
from controllers.elasticity.return_home.workloads import Current, unsettled
from controllers.elasticity.return_home.workloads import Workload as StoredWorkload
from controllers.elasticity.snapshot import ClusterState, Snapshot, Workload
from dev.simulator.models.node_fit import requests_of
from kube.selectors import REQUIRED
from tests.elasticity_world import (
    AWAY,
    HOME,
    SETTINGS,
    fleet,
    node,
    raw_of,
    raw_pod,
    sorted_out,
    super_node,
)
from tests.factories import NOW
from tests.return_home_world import READY
from tests.tables import table

SET = "StatefulSet"
ZONE = "topology.kubernetes.io/zone"
SPEC = {"containers": [{"name": "app", "resources": {"requests": {"cpu": "1"}}}]}


def raw(name: str, place: str = AWAY, **parts: Any) -> dict[str, Any]:
    made = raw_pod(
        name,
        gated=False,
        annotations={BURST: "allowed"},
        spec={"nodeName": place, **SPEC},
        **{"n": None, **parts},
    )
    return {**made, "status": {"phase": "Running", "conditions": READY}}


def burst(name: str, limit: str | None = None, **parts: Any) -> Pod:
    return decode_for_return(raw_of(raw(name, n=limit, **parts)))


def chosen(bursts: Sequence[Pod], members: Sequence[Pod], after: float = 600.0, local: int = 0) -> Choice:
    """An hour after they came, with so many *local* pods beside them."""
    cluster = ClusterState(fleet(), SETTINGS, None, lambda _: Workload())
    pods = [*bursts, *(member(f"local-{number}", HOME) for number in range(local))]
    return choose(Snapshot(pods, {}, cluster, NOW + timedelta(hours=1)), members, bursts, after)


def member(name: str, place: str = AWAY, *, ready: bool = True) -> Pod:
    return replace(decode_for_return(raw_of(raw(name, place))), ready=ready)


TWO = (member("web-0"), member("web-1"))


@table(
    "bursts, local, first",
    {
        "the youngest": ([burst("web-0"), burst("web-1", at=1.0)], 0, "web-1"),
        "the highest ordinal": ([burst("db-0", at=1.0, kind=SET), burst("db-1", kind=SET)], 0, "db-1"),
        "the highest ordinal below the number": (
            [burst("db-0", "1", kind=SET), burst("db-1", "1", kind=SET)],
            0,
            "db-0",
        ),
        "none whose number is local": ([burst("web-0", "1"), burst("web-1", "1")], 1, None),
    },
)
def test_which_pod_goes_first(bursts: list[Pod], local: int, first: str | None) -> None:
    found = chosen(bursts, TWO, local=local)

    assert (found.pod.metadata.name if found.pod else None) == first
    assert bool(found.why) == (first is None)


@table(
    "members, after, why",
    {
        "all is well": (TWO, 600.0, ""),
        "one is not ready": ((TWO[0], member("web-1", ready=False)), 600.0, "web-1 is not ready"),
        "one has no node": ((TWO[0], member("web-1", "")), 600.0, "web-1 has no node yet"),
        "it is alone": (TWO[:1], 600.0, "it is the only pod of its workload"),
        "it came a moment ago": (TWO, 3601.0, "web-0 came to a super node less than 3601 s ago"),
    },
)
def test_why_a_workload_waits(members: tuple[Pod, ...], after: float, why: str) -> None:
    found = chosen([burst("web-0")], members, after)

    assert (found.why or "").startswith(why)
    assert bool(found.why) == bool(why)


def workload(strategy: dict[str, Any] | None = None, **status: Any) -> StoredWorkload:
    counted = {"observedGeneration": 2, "replicas": 2, "availableReplicas": 2, **status}
    spec = {"replicas": 2, "updateStrategy": strategy or {}}
    raw = {"metadata": {"uid": "a", "generation": 2}, "spec": spec, "status": counted}
    return msgspec.convert(raw, StoredWorkload)


LEAVES = replace(workload(), metadata=replace(workload().metadata, deletion_timestamp=NOW))
THREE = replace(workload(), spec=replace(workload().spec, replicas=3))
UPDATED = workload({"type": "RollingUpdate"}, updateRevision="b")
ROLLING = "a rollout is in progress"


@table(
    "own, others, pods, why",
    {
        "all is well": (workload(), [], TWO, None),
        "it is gone": (None, [], TWO, "its workload is gone"),
        "it is being deleted": (LEAVES, [], TWO, "its workload is gone"),
        "it is scaled out": (THREE, [], TWO, "2 of 3 replicas are available"),
        "its controller is behind": (
            workload(observedGeneration=1), [], TWO, "its controller has not seen the last change"
        ),
        "one is not available": (workload(availableReplicas=1), [], TWO, "1 of 2 replicas are available"),
        "one is not listed": (workload(), [], TWO[:1], "2 of 2 replicas are available"),
        "one is not ready": (workload(), [], [TWO[0], replace(TWO[1], ready=False)], "web-1 is not ready"),
        "another revision has pods": (workload(), [workload()], TWO, f"{ROLLING}: another revision has pods"),
        "its pods are of two revisions": (UPDATED, [], TWO, f"{ROLLING}: its pods are of two revisions"),
    },
)  # fmt: skip
def test_when_a_workload_can_miss_a_pod(
    own: StoredWorkload | None, others: list[StoredWorkload], pods: Sequence[Pod], why: str | None
) -> None:
    assert unsettled(Current(own, others, pods)) == why


BEYOND = decode_for_return(
    raw_of(raw_pod("web-3", gated=False, annotations={PLACEMENT: SUPER}, spec={"nodeName": AWAY}))
)
"""One that a scale-out brings to a super node, beyond LOCAL_REPLICAS."""
BEGUN = Return(Request(TWO[1], PodSpec()), frozenset({"uid-web-0", "uid-web-1"}), 0.0, 0.0)


@table(
    "members, now, expected",
    {
        "it is still there": (TWO, 1.0, None),
        "it stays": (TWO, 30.0, Outcome.KEPT),
        "it is gone": (TWO[:1], 1.0, None),
        "it has no successor": (TWO[:1], 60.0, Outcome.ABANDONED),
        "none is left": ((), 60.0, Outcome.ABANDONED),
        "its successor is pending": ((TWO[0], member("web-2", "")), 599.0, None),
        "its successor stays pending": ((TWO[0], member("web-2", "")), 600.0, Outcome.STALLED),
        "its successor is local and not ready": ((TWO[0], member("web-2", HOME, ready=False)), 1.0, None),
        "its successor is local": ((TWO[0], member("web-2", HOME)), 1.0, Outcome.LOCAL),
        "its successor is on a super node": ((TWO[0], member("web-2", ready=False)), 1.0, Outcome.SUPER),
        "it is scaled out meanwhile": ((TWO[0], member("web-2", ""), BEYOND), 1.0, None),
        "its successor is local beside that": (
            (TWO[0], member("web-2", HOME), replace(BEYOND, ready=True)),
            1.0,
            Outcome.LOCAL,
        ),
        "its successor is not local beside that": ((TWO[0], member("web-2"), BEYOND), 1.0, Outcome.SUPER),
        "its successor is beyond the number": ((TWO[0], BEYOND), 1.0, Outcome.SUPER),
    },
)
def test_what_became_of_an_eviction(members: tuple[Pod, ...], now: float, expected: Outcome | None) -> None:
    assert outcome(BEGUN, members, {AWAY}, now) == expected


@table(
    "allocatable, taken, asked, fits",
    {
        "there is room": ({"cpu": "2", "pods": "2"}, ["1"], "1", True),
        "it is taken": ({"cpu": "2", "pods": "2"}, ["1500m"], "1", False),
        "there are too many pods": ({"cpu": "9", "pods": "1"}, ["1"], "1", False),
        "it lacks the resource": ({"memory": "1Gi", "pods": "2"}, [], "1", False),
        "nothing is asked for": ({"cpu": "0", "pods": "2"}, ["0"], "0", True),
        "it is overcommitted": ({"cpu": "1", "pods": "5"}, ["1", "1"], "100m", False),
    },
)
def test_whether_a_local_node_has_room(
    allocatable: dict[str, str], taken: list[str], asked: str, fits: bool
) -> None:
    nodes = sorted_out(
        [node(HOME, allocatable=allocatable), super_node(allocatable={"cpu": "99", "pods": "99"})]
    )
    there = [replace(member(f"p-{cpu}", HOME), requests=_spec(cpu).requests) for cpu in taken]
    room = LocalRoom(nodes, PodIndex.of(there))

    assert room.node_for(Request(TWO[0], _spec(asked))) == (HOME if fits else "")


def test_a_local_node_where_anti_affinity_repels_the_pod_has_no_room_for_it() -> None:
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
    apart = {"podAntiAffinity": {REQUIRED: [term]}}
    there = raw("web-1", HOME)
    there["metadata"]["labels"]["app"] = "web"
    nodes = [node(name, allocatable={"cpu": "9", "pods": "9"}) for name in (HOME, "home-2")]
    request = request_of(decode_for_return(raw_of({**raw("web-2", ""), "spec": {**SPEC, "affinity": apart}})))

    pods = PodIndex.of([decode_for_return(raw_of(there))])
    rooms = [LocalRoom(sorted_out(nodes[:count]), pods) for count in (1, 2)]
    assert [room.node_for(request) for room in rooms] == ["", "home-2"]


def test_a_pod_that_is_on_its_way_repels_as_if_it_were_there() -> None:
    term = {"labelSelector": {}, "topologyKey": "kubernetes.io/hostname"}
    apart = {"podAntiAffinity": {REQUIRED: [term]}}
    room = LocalRoom(sorted_out([node(HOME, allocatable={"cpu": "9", "pods": "9"})]), PodIndex.of(()))
    waiting = {**raw("api-1", ""), "spec": {**SPEC, "affinity": apart}}
    room.reserve(request_of(decode_for_return(raw_of(waiting))))

    assert room.node_for(Request(TWO[0], _spec("1"))) == ""


@table(
    "policy, fits",
    {
        "super nodes count: without it theirs has too few": ({}, False),
        "they do not, as its replacement does not tolerate them": ({"nodeTaintsPolicy": "Honor"}, True),
    },
)
def test_pods_are_spread_as_they_are_once_the_one_that_returns_has_gone(
    policy: dict[str, str], fits: bool
) -> None:
    same = {"labelSelector": {"matchLabels": {"pod-template-hash": "1"}}, "topologyKey": ZONE}
    spread = {**same, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **policy}
    pods = [raw("web-0", HOME), raw("web-1", AWAY)]
    for each in pods:
        each["spec"]["topologySpreadConstraints"] = [spread]
    pods[1]["spec"]["tolerations"] = [TOLERATION]
    local, away = (decode_for_return(raw_of(each)) for each in pods)
    nodes = sorted_out([node(HOME, {ZONE: "own"}, allocatable={"cpu": "9", "pods": "9"}), super_node()])

    room = LocalRoom(nodes, PodIndex.of([local, away]))
    assert room.node_for(request_of(away)) == (HOME if fits else "")


@table("zone, fits", {"in its zone": ("ap-guangzhou-3", False), "elsewhere": ("own", True)})
def test_a_pod_that_keeps_its_like_out_of_its_zone_does_not_return_within_that(zone: str, fits: bool) -> None:
    """The scheduler refuses its replacement until it has ended, which by then has been allowed on super nodes."""
    there = raw("web-0")
    term = {"labelSelector": {"matchLabels": {"pod-template-hash": "1"}}, "topologyKey": ZONE}
    there["spec"]["affinity"] = {"podAntiAffinity": {REQUIRED: [term]}}
    away = decode_for_return(raw_of(there))
    nodes = sorted_out([node(HOME, {ZONE: zone}, allocatable={"cpu": "9", "pods": "9"}), super_node()])

    assert LocalRoom(nodes, PodIndex.of([away])).node_for(request_of(away)) == (HOME if fits else "")


def test_what_is_reserved_is_taken() -> None:
    nodes = sorted_out([node(HOME, allocatable={"cpu": "2", "pods": "9"})])
    room, request = LocalRoom(nodes, PodIndex.of(())), Request(TWO[0], _spec("1"))
    room.reserve(Request(TWO[0], _spec("3")))
    room.reserve(request)
    assert room.node_for(request) == HOME
    room.reserve(request)

    assert room.node_for(request) == ""


def _spec(cpu: str) -> PodSpec:
    resources = {"requests": {"cpu": cpu}}
    return msgspec.convert({"containers": [{"name": "app", "resources": resources}]}, PodSpec)


QUANTITIES = st.dictionaries(
    st.sampled_from(["cpu", "memory", "hugepages-2Mi"]), st.integers(0, 9).map(str), max_size=3
)
CONTAINERS = st.builds(
    lambda requests, policy: {"resources": {"requests": requests}, "restartPolicy": policy},
    QUANTITIES,
    st.sampled_from(["", "Always"]),
)


@given(
    containers=st.lists(CONTAINERS, max_size=3),
    first=st.lists(CONTAINERS, max_size=4),
    whole=QUANTITIES,
    overhead=QUANTITIES,
)
def test_requests_are_counted_as_a_scheduler_counts_them(
    containers: list[Any], first: list[Any], whole: dict[str, str], overhead: dict[str, str]
) -> None:
    raw = {"containers": containers, "initContainers": first, "overhead": overhead}
    raw["resources"] = {"requests": whole}

    found = msgspec.convert(raw, PodSpec).requests
    assert +Counter(found) == +requests_of(raw)
