"""Pods on super nodes return when there is room, one of a workload at a time, and not to and fro."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from api.elasticity import BURST, DO_NOT_DISRUPT, PLACEMENT, RETURN_HOME, SAFE_TO_EVICT, never_returns
from controllers.elasticity.return_home import reconciler
from controllers.elasticity.return_home.planner import MOST
from controllers.elasticity.return_home.reconciler import KEY, LABEL, NAME
from controllers.elasticity.return_home.workloads import REPLICA_SETS
from dev.fake_api import Denied
from kube.resources import CONFIG_MAPS, PODS, STATEFUL_SETS
from kube.types import ObjectMeta, OwnerReference
from settings import ElasticitySettings
from settings.elasticity import ReturnHome
from tests.elasticity_world import AWAY, HOME, raw_pod
from tests.factories import BEYOND_ALL_TIMES
from tests.return_home_world import AFTER, INTERVAL, LOOK, OURS, READY, Homes, fleet
from tests.tables import table


def away(*names: str, **parts: Any) -> Homes:
    """In which workloads of these *names* have one pod local, and one on a super node."""
    homes = Homes(**parts)
    for name in names:
        homes.workload(name, HOME, AWAY)
    return homes


def returned(homes: Homes) -> list[str]:
    return [name for _, name in homes.evicted]


def events(homes: Homes, reason: str) -> list[str]:
    return [message for said, message in homes.leader.recorder.events if said == reason]


LARGE = fleet(allocatable={"cpu": "40", "pods": "40"})


def test_a_pod_returns_when_there_has_been_room_for_long_enough() -> None:
    homes = away("web-1")

    homes.run(AFTER)
    assert homes.evicted == []

    homes.run(2 * LOOK)
    assert returned(homes) == ["web-1-2"]
    assert list(homes.of("web-1").values()) == [HOME, HOME]
    [said] = events(homes, "ReturnsHome")
    assert f"from {AWAY}" in said
    assert HOME in said


@pytest.mark.parametrize(
    "failures",
    [
        pytest.param('{"shop/web-1": {"times": 1, "until": "2026-01-01T00:00:00"}}', id="no zone"),
        pytest.param('{"shop/web-1": {"x": ' + "[" * 2000, id="nested too deeply"),
    ],
)
def test_a_pod_returns_though_what_is_known_of_failures_is_unreadable(failures: str) -> None:
    homes = Homes()
    metadata = {"name": NAME, "namespace": OURS, "labels": {LABEL: "elasticity"}}
    homes.cluster.api.put(CONFIG_MAPS, {"metadata": metadata, "data": {KEY: failures}})
    homes.workload("web-1", HOME, AWAY)
    homes.run(AFTER + 2 * LOOK)

    assert returned(homes) == ["web-1-2"]


def test_room_that_goes_again_is_waited_for_from_the_beginning() -> None:
    homes = away("web-1")
    homes.run(AFTER - 60)
    nodes, homes.nodes = homes.nodes, fleet(allocatable={"cpu": "1", "pods": "10"})
    homes.run(LOOK)
    homes.nodes = nodes

    homes.run(AFTER - LOOK)
    assert homes.evicted == []
    homes.run(3 * LOOK)
    assert returned(homes) == ["web-1-2"]


def test_workloads_return_at_the_configured_pace_and_as_many_at_once_as_configured() -> None:
    two = ElasticitySettings(return_home=ReturnHome(enabled=True, max_at_once=2))
    homes = away("a-1", "b-1", "c-1", settings=two, nodes=LARGE)
    homes.starts = lambda _: False

    homes.run(AFTER + LOOK)
    assert returned(homes) == ["a-1-2"]
    homes.run(5 * INTERVAL)
    assert returned(homes) == ["a-1-2", "b-1-2"]
    assert homes.evicted[1][0] - homes.evicted[0][0] >= INTERVAL


def test_a_replacement_that_goes_to_a_super_node_again_makes_the_workload_wait_twice_as_long_each_time() -> (
    None
):
    homes = away("web-1")
    homes.placing = lambda _: AWAY

    homes.run(20 * AFTER)

    times = [at for at, _ in homes.evicted]
    assert len(times) == 4
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert [round(pause / AFTER) for pause in pauses] == [2, 4, 8]
    assert "next return" in events(homes, "ReturnFailed")[0]

    for _ in range(3):
        homes.clock.advance(20 * AFTER)
        homes.run(2 * AFTER)
    assert len(homes.evicted) == MOST
    assert "5 failures in a row" in events(homes, "ReturnFailed")[-1]


def test_a_replacement_that_does_not_become_ready_gives_its_place_to_another_workload() -> None:
    homes = away("a-1", "b-1", nodes=LARGE)
    homes.starts = lambda name: not name.startswith("a-1-")

    homes.run(3 * AFTER)

    assert returned(homes) == ["a-1-2", "b-1-2"]
    assert len(events(homes, "ReturnStalled")) == 1


def test_an_eviction_is_not_over_while_the_pod_that_a_stateful_set_replaces_still_ends() -> None:
    homes = databases(ROLLING)
    homes.ends = lambda _: False
    homes.run(AFTER + 4 * INTERVAL)
    assert returned(homes) == ["db-3"]

    homes.ends = lambda _: True
    homes.look()
    assert homes.away("db") == 4
    homes.look()
    assert len(events(homes, "ReturnFailed")) == 1


ROLLING, ON_DELETE = {"type": "RollingUpdate"}, {"type": "OnDelete"}


def partition(number: int) -> dict[str, Any]:
    return {**ROLLING, "rollingUpdate": {"partition": number}}


def databases(strategy: dict[str, Any]) -> Homes:
    """A StatefulSet with four pods on super nodes, and local nodes that have room again."""
    homes = Homes(nodes=LARGE)
    homes.placing = lambda _: AWAY
    homes.stateful_set("db", 4, strategy)
    return homes


def come_home(homes: Homes) -> None:
    homes.placing = lambda _: HOME
    homes.run(AFTER + 8 * INTERVAL)


@table(
    "strategy, versions",
    {
        "all of one revision": (ROLLING, "1111"),
        "below a partition that stays": (partition(2), "1122"),
        "all below the partition": (partition(4), "1111"),
        "that were all updated": (partition(0), "2222"),
    },
)
def test_pods_of_stateful_sets_return_the_highest_first_and_keep_their_revision(
    strategy: dict[str, Any], versions: str
) -> None:
    homes = databases(strategy)
    if strategy is not ROLLING:
        homes.update("db")
    before = homes.versions("db")
    assert "".join(before.values()) == versions
    come_home(homes)

    assert homes.away("db") == 0
    assert homes.versions("db") == before
    for version in set(versions):
        of = [name for name in returned(homes) if before[name] == version]
        assert of == sorted(of, reverse=True)


def test_pods_that_are_updated_when_they_are_deleted_are_updated_by_the_user_alone() -> None:
    homes = databases(ON_DELETE)
    homes.update("db")
    come_home(homes)

    assert homes.evicted == []
    assert homes.versions("db") == dict.fromkeys(["db-0", "db-1", "db-2", "db-3"], "1")
    (said,) = events(homes, "ReturnBlocked")
    assert "OnDelete" in said

    homes.placing = lambda _: AWAY
    homes.cluster.remove("db-1")
    homes.control()
    come_home(homes)
    assert returned(homes) == ["db-1"]
    assert homes.versions("db") == {"db-0": "1", "db-1": "2", "db-2": "1", "db-3": "1"}


def test_pods_that_are_updated_when_they_are_deleted_return_where_all_are_updated() -> None:
    """Kubernetes never says of such a StatefulSet that its update has ended."""
    homes = databases(ON_DELETE)
    homes.update("db")
    for name in ("db-0", "db-1", "db-2", "db-3"):
        homes.cluster.remove(name)
        homes.control()
    come_home(homes)

    assert sorted(returned(homes)) == ["db-0", "db-1", "db-2", "db-3"]


def test_no_pod_returns_to_the_revision_before_because_the_partition_was_raised() -> None:
    homes = databases(partition(2))
    homes.update("db")
    homes.cluster.api.edit(STATEFUL_SETS, "db", {"spec": {"updateStrategy": partition(4)}}, "shop")
    come_home(homes)

    assert homes.versions("db") == {"db-0": "1", "db-1": "1", "db-2": "2", "db-3": "2"}
    assert sorted(returned(homes)) == ["db-0", "db-1"]
    assert "partition" in events(homes, "ReturnBlocked")[0]


@table(
    ("places", "parts", "expected"),
    {
        "all of them without a number": ([HOME, AWAY, AWAY], {}, 0),
        "of LOCAL_REPLICAS those that are missing": ([HOME, AWAY, AWAY], {"n": "2"}, 1),
        "none beyond LOCAL_REPLICAS": ([HOME, AWAY], {"n": "1"}, 1),
        "one that was placed on a local node": ([HOME, AWAY], {"annotations": {PLACEMENT: "local"}}, 0),
        "none that says so": ([HOME, AWAY], {"annotations": {RETURN_HOME: "false"}}, 1),
        "not the only one": ([AWAY], {}, 1),
        "the only one that allows it": ([AWAY], {"annotations": {RETURN_HOME: "true"}}, 0),
        "none that selects other nodes": ([HOME, AWAY], {"spec": {"nodeSelector": {"disk": "ssd"}}}, 1),
    },
)
def test_which_pods_return(places: list[str], parts: dict[str, Any], expected: int) -> None:
    """*expected* are those that are still on a super node at the end."""
    homes = Homes()
    homes.workload("web-1", *places, **parts)

    homes.run(AFTER + 5 * INTERVAL)

    assert homes.away("web-1") == expected


BURST_POD = {BURST: "allowed"}
OWNED = ("ReplicaSet", "apps/v1")
KEPT, ELSEWHERE = "it has annotation", "it did not go to a super node for want of local room"


@table(
    "owner, annotations, said",
    {
        "a ReplicaSet": (OWNED, {}, ""),
        "a StatefulSet": (("StatefulSet", "apps/v1"), {}, ""),
        "a Job": (("Job", "batch/v1"), {}, "it belongs to a Job, whose work would be lost"),
        "a CloneSet": (("CloneSet", "kruise.io/v1"), {}, "its owner is a CloneSet of kruise.io/v1, whose"),
        "OpenKruise's": (("StatefulSet", "kruise.io/v1"), {}, "its owner is a StatefulSet of kruise.io/v1, whose"),
        "no owner": (("", ""), {}, "no controller replaces it"),
        "no burst pod": (OWNED, {BURST: None}, ELSEWHERE),
        "placed on a super node": (OWNED, {PLACEMENT: "super"}, ELSEWHERE),
        "it says so": (OWNED, {RETURN_HOME: "false"}, f"{KEPT} {RETURN_HOME}=false"),
        "it says something else": (OWNED, {RETURN_HOME: "nope"}, f"{RETURN_HOME} is 'nope', neither"),
        "the autoscaler must not evict it": (OWNED, {SAFE_TO_EVICT: "false"}, f"{KEPT} {SAFE_TO_EVICT}=false"),
        "Karpenter must not disrupt it": (OWNED, {DO_NOT_DISRUPT: "true"}, f"{KEPT} {DO_NOT_DISRUPT}=true"),
    },
)  # fmt: skip
def test_why_a_pod_never_returns(owner: tuple[str, str], annotations: dict[str, Any], said: str) -> None:
    kind, api_version = owner
    of = OwnerReference(api_version=api_version, kind=kind, name="web", uid="a", controller=bool(kind))
    given = {name: value for name, value in (BURST_POD | annotations).items() if value}
    why = never_returns(ObjectMeta(annotations=given, owner_references=(of,)))

    assert (why or "").startswith(said)
    assert bool(why) == bool(said)


def test_what_the_caches_do_not_show_is_read_before_the_eviction() -> None:
    homes = away("web-1")
    homes.run(AFTER)
    homes.cluster.api.edit(REPLICA_SETS, "web-1", {"status": {"availableReplicas": 1}}, "shop")

    for _ in range(3):
        homes.reconcile()
        homes.clock.advance(LOOK)

    assert homes.evicted == []


def test_times_beyond_all_years_keep_no_pod_from_returning() -> None:
    """All others wait for one that cannot be tried."""
    homes = away("web-1")
    homes.run(AFTER)
    homes.leader.hear()
    homes.cluster.edit("web-1-1", {"status": {"conditions": [*READY, *BEYOND_ALL_TIMES]}})
    homes.reconcile()

    assert returned(homes) == ["web-1-2"]


def test_an_eviction_is_for_the_pod_as_it_was_read() -> None:
    """What changes between the read and the eviction refuses it."""
    homes = away("web-1")
    homes.run(AFTER)

    homes.leader.hear()
    sent: list[Any] = []
    handle = homes.cluster.carry_out

    def meddle(call: Any) -> Any:
        if call.path.endswith("/eviction") and not sent:
            sent.append(call.body["deleteOptions"]["preconditions"])
            homes.cluster.edit("web-1-2", {"metadata": {"annotations": {RETURN_HOME: "false"}}})
        return handle(call)

    homes.cluster.carry_out = meddle  # type: ignore[method-assign]
    homes.reconcile()

    assert [set(each) for each in sent] == [{"uid", "resourceVersion"}]
    assert homes.evicted == []


def deny(homes: Homes, error: Denied, is_denied: Callable[[str], object]) -> None:
    """Evictions of the pods with certain names."""

    def look(review: Any) -> None:
        if review.subresource == "eviction" and is_denied((review.new or {})["metadata"]["name"]):
            raise error

    homes.cluster.api.validate(PODS, look)


BUDGET = Denied("it would violate the pod's disruption budget", 429, "TooManyRequests")
TWO_BUDGETS = Denied("This pod has more than one PodDisruptionBudget", 500, "InternalError")
"""The API server answers as if it had failed itself."""


@table(
    "error, times, expected",
    {"by a budget": (BUDGET, 2, ["web-1-2"]), "because of two budgets": (TWO_BUDGETS, 100, [])},
)
def test_an_eviction_that_is_refused_says_so_once_and_is_tried_again_later(
    error: Denied, times: int, expected: list[str]
) -> None:
    homes, left = away("web-1"), [error] * times
    deny(homes, error, lambda _: left and left.pop())
    homes.run(AFTER + 4 * INTERVAL)

    assert returned(homes) == expected
    assert times - len(left) >= 2
    [said] = events(homes, "ReturnRefused")
    assert str(error) in said


def test_workloads_that_budgets_hold_for_ever_keep_no_other_from_returning() -> None:
    homes = away("a-1", "b-1", "c-1", "d-1", nodes=LARGE)
    deny(homes, BUDGET, lambda name: name[:1] != "d")
    homes.run(2 * AFTER)

    assert returned(homes) == ["d-1-2"]


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> int:
    """So many pods may wait for a node: far fewer than in earnest, which takes as many seconds."""
    monkeypatch.setattr(reconciler, "QUEUE", 5)
    return reconciler.QUEUE


def test_nothing_returns_while_many_pods_wait_for_a_node(queue: int) -> None:
    homes = away("web-1", nodes=LARGE)
    for number in range(queue + 1):
        homes.cluster.put(raw_pod(f"waits-{number}", "waits", gated=False, n=None))
    homes.run(AFTER + INTERVAL)
    assert homes.evicted == []
    assert "pods wait for a node" in events(homes, "ReturnBlocked")[0]

    homes.cluster.remove("waits-0")
    homes.run(AFTER + 2 * LOOK)
    assert returned(homes) == ["web-1-2"]


@table(
    "spec",
    {
        "too large for any local node": {
            "containers": [{"name": "app", "resources": {"requests": {"cpu": "300"}}}]
        },
        "for other nodes": {"nodeSelector": {"gpu": "true"}},
    },
)
def test_pods_that_cannot_take_the_room_keep_no_other_from_it(queue: int, spec: dict[str, Any]) -> None:
    homes = away("web-1", nodes=LARGE)
    for number in range(2 * queue):
        homes.cluster.put(raw_pod(f"waits-{number}", f"job-{number}", gated=False, n=None, spec=spec))
    homes.run(AFTER + 2 * LOOK)

    assert returned(homes) == ["web-1-2"]
