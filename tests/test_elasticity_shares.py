"""LOCAL_REPLICAS as a percentage is a share of what the workload wants, and is followed as a number is."""

from __future__ import annotations

from math import ceil
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.elasticity import REASON, Share, replicas_in
from controllers.elasticity.pods import decode
from controllers.elasticity.snapshot import Workload
from controllers.elasticity.sources import job, replicated, workload_of
from settings import ElasticitySettings
from tests.elasticity_world import Feed, World, raw_of, raw_pod
from tests.tables import table

ON = ElasticitySettings(enabled=True, percentages=True)


def world(wanted: int | None = None, ahead: float = 0.0) -> World:
    """In which "web" wants so many replicas."""
    found = World(settings=ON, ahead=ahead)
    if wanted is not None:
        found.cluster.workloads["owner-web"] = Workload(wanted=wanted, made=wanted)
    return found


@given(percent=st.integers(0, 100), wanted=st.integers(0, 10**9))
def test_a_share_is_never_more_than_all_and_grows_with_the_workload(percent: int, wanted: int) -> None:
    share = Share(percent).of(wanted)

    assert 0 <= share <= wanted
    assert 0 <= share * 100 - percent * wanted < 100
    assert share <= Share(percent).of(wanted + 1)


@pytest.mark.parametrize(("percent", "wanted"), [(0, 3), (30, 4), (50, 5), (100, 3)])
def test_the_first_pods_are_local_as_far_as_the_share_goes(percent: int, wanted: int) -> None:
    found = world(wanted)
    *_, last = found.create(wanted, n=f"{percent}%")
    found.leader.settle()

    local = ceil(percent * wanted / 100)
    assert f"LOCAL_REPLICAS={local} ({percent}% of {wanted}), " in found.annotations(last)[REASON]
    placed = {"local": local, "super": wanted - local}
    assert found.placements() == {place: count for place, count in placed.items() if count}


def test_in_a_rolling_update_the_share_is_of_the_whole_workload() -> None:
    """A ReplicaSet that grows one by one is not placed by a share of one."""
    found = world()
    for made in range(1, 11):
        found.cluster.workloads["owner-web"] = Workload(wanted=10, made=made)
        found.create(1, n="30%")
        found.leader.settle(2)

    assert found.placements() == {"local": 3, "super": 7}


@table(
    "known, share, wanted, placed",
    {
        "when it comes": (None, "30%", 1, {"local": 1}),
        "to want as many pods as it has": (1, "50%", 4, {"local": 2, "super": 2}),
    },
)
def test_pods_wait_until_their_workload_is_known(
    known: int | None, share: str, wanted: int, placed: dict[str, int]
) -> None:
    found = world(known)
    names = found.create(wanted, n=share)
    found.leader.settle(1)
    assert found.cluster.names(lambda pod: pod.gated) == names

    found.cluster.workloads["owner-web"] = Workload(wanted=wanted, made=wanted)
    found.leader.settle()
    assert found.placements() == placed
    assert found.leader.recorder.reasons == []


@pytest.mark.parametrize("ahead", [0.0, 300.0, -300.0])
def test_a_workload_that_stays_unknown_holds_a_pod_for_ten_seconds_and_says_so(ahead: float) -> None:
    found = world(ahead=ahead)
    (name,) = found.create(1, n="30%")
    found.leader.settle(2)
    assert found.placements() == {"": 1}
    found.leader.settle(1)

    assert found.placements() == {"local": 1}
    assert found.leader.recorder.events[0] == (
        "BadLocalReplicas",
        "the replicas of ReplicaSet web are not known: write a number, not a percentage",
    )
    assert "LOCAL_REPLICAS=unset" in found.annotations(name)[REASON]


def test_a_copy_that_stays_behind_holds_no_pod() -> None:
    found = world(1)
    found.create(4, n="50%")
    found.leader.settle()

    assert found.placements() == {"local": 1, "super": 3}


def test_a_bare_pod_is_one_replica() -> None:
    found = world()
    found.create(1, "alone", n="1%", owned=False)
    found.create(1, "none", n="0%", owned=False)
    found.leader.settle()

    assert (found.placements("alone"), found.placements("none")) == ({"local": 1}, {"super": 1})


def _raw(**parts: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode({"metadata": {"name": "web", "uid": "a"}, **parts}))


DEPLOYMENT, ROLLOUT = (
    f"{group}/desired-replicas" for group in ("deployment.kubernetes.io", "rollout.argoproj.io")
)


@table(
    "annotations, wanted",
    {
        "a bare one": ({}, 3),
        "of a Deployment": ({DEPLOYMENT: "10"}, 10),
        "of an Argo Rollout": ({ROLLOUT: "9"}, 9),
        "of a Deployment with a word": ({DEPLOYMENT: "ten"}, 3),
        "of a Deployment with a digit of another script": ({DEPLOYMENT: "٣"}, 3),
        "of a Deployment without end": ({DEPLOYMENT: "1" * 5000}, 3),
    },
)
def test_a_replica_set_of_a_rollout_knows_the_whole_of_it(annotations: dict[str, str], wanted: int) -> None:
    spec = {"replicas": 3, "ordinals": {"start": 5}}
    found = replicated(_raw(metadata={"name": "web", "annotations": annotations}, spec=spec))

    assert (found.wanted, found.made, found.first, found.metadata.annotations) == (wanted, 3, 5, {})


@table(
    "spec, wanted",
    {
        "in parallel": ({"parallelism": 5, "completions": 9}, 5),
        "fewer in all": ({"parallelism": 5, "completions": 2}, 2),
        "a work queue": ({"parallelism": 5}, 5),
        "suspended": ({"parallelism": 0}, 0),
        "one": ({}, 1),
    },
)
def test_a_job_wants_as_many_as_run_at_a_time(spec: dict[str, Any], wanted: int) -> None:
    assert job(_raw(spec=spec)).wanted == wanted


def test_replicas_are_read_of_the_pods_own_workload_and_no_other_of_its_name() -> None:
    kinds = {"ReplicaSet": replicated, "Job": job, "StatefulSet": replicated}
    known = {}
    for kind, read in kinds.items():
        metadata = {"name": "web", "namespace": "shop", "uid": f"uid-{kind}"}
        feed = Feed(read)
        feed.list([{"metadata": metadata, "spec": {"replicas": 4, "parallelism": 4}}])
        known[kind] = feed.informer

    def of(kind: str, uid: str = "") -> Workload | None:
        raw = raw_pod("web-1", kind=kind)
        raw["metadata"]["ownerReferences"][0]["uid"] = uid or f"uid-{kind}"
        return workload_of(known, decode(raw_of(raw)))

    assert [(each.wanted, each.made) for each in map(of, kinds) if each] == [(4, 4)] * 3
    assert {of(kind, "another") for kind in kinds} == {None}
    assert of("CloneSet") is None
    assert workload_of(known, decode(raw_of(raw_pod("web-1", owned=False)))) is None
    assert Workload().wanted == 1


def test_the_largest_number_that_the_settings_take_is_one() -> None:
    settings = ElasticitySettings(local_replicas=2**31 - 1)

    assert replicas_in(str(settings.local_replicas)) == 2**31 - 1
