"""The demo's replicas: what it shows of them, and what it calls kept, from what was seen."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from demo.burst import Replicas
from demo.burst_promises import never_more_at_home, placed_first, split, super_node_first
from demo.scenes import burst
from demo.stage import ROOT
from kube.types import ObjectMeta, Pod, PodSpec
from lab.history import Observation
from tests.factories import NOW
from tests.tables import table
from webhook.elasticity import LOCAL_REPLICAS, PLACEMENT, TKE_SCHEDULER

HOME, AWAY = "kwok-1", "eklet-subnet-1"
WHY = "global=false local=true LOCAL_REPLICAS=1, 0 local: stays local"


def pod(
    revision: int,
    name: str = "a",
    *,
    placed: str = "",
    node: str = "",
    leaving: bool = False,
    gone: bool = False,
    annotations: dict[str, str] | None = None,
) -> Observation:
    """A replica as it was told at *revision*."""
    why = {PLACEMENT: placed, "drawbridge.io/placement-reason": WHY} if placed else {}
    metadata = ObjectMeta(
        name=name,
        namespace="shop",
        uid=f"uid-{name}",
        resource_version=str(revision),
        annotations={LOCAL_REPLICAS: "1", **why} if annotations is None else annotations,
        deletion_timestamp=NOW if leaving else None,
    )
    return Observation(Pod(metadata, PodSpec(node_name=node)), gone, NOW)


def course(begin: int, name: str, node: str) -> list[Observation]:
    """Born at *begin*, placed one revision later, and bound after another one."""
    placed = "super" if node == AWAY else "local"
    return [
        pod(begin, name),
        pod(begin + 1, name, placed=placed),
        pod(begin + 2, name, placed=placed, node=node),
    ]


def replicas(*events: Observation) -> Replicas:
    seen = Replicas()
    for each in events:
        seen.add(each)
    return seen


TWO = (*course(1, "a", HOME), *course(11, "b", AWAY))


# The promises


@table(
    "events, evidence",
    {
        "kept": (TWO, "2 of 2, 1 revisions ahead"),
        "slipped through": (
            [*course(1, "a", HOME), pod(11, "b"), pod(12, "b", node=HOME)],
            "b was not placed",
        ),
        "placed too late": (
            [
                *course(1, "a", HOME),
                pod(11, "b"),
                pod(12, "b", node=AWAY),
                pod(13, "b", node=AWAY, placed="super"),
            ],
            "b was scheduled before it was placed",
        ),
        "not scheduled": (
            [*course(1, "a", HOME), pod(11, "b"), pod(12, "b", placed="super")],
            "b has no node",
        ),
        "one is missing": (course(1, "a", HOME), "1 of 2 pods were seen"),
    },
)
def test_each_replica_is_placed_before_it_is_scheduled(events: Sequence[Observation], evidence: str) -> None:
    promise = placed_first(replicas(*events), 2)
    assert (promise.kept, promise.evidence) == ("ahead" in evidence, evidence)


@table(
    "revision, kept, evidence",
    {
        "both are there": (13, True, "eklet-subnet-1, kwok-1"),
        "one is not yet there": (12, False, "1 at home, 0 on the super node"),
        "one leaves": (20, False, "1 at home, 0 on the super node"),
    },
)
def test_how_replicas_are_split_is_judged_as_of_its_revision(
    revision: int, kept: bool, evidence: str
) -> None:
    seen = replicas(*TWO, pod(20, "b", placed="super", node=AWAY, leaving=True))
    promise = split(seen, revision, home=1, away=1)
    assert (promise.kept, promise.evidence) == (kept, evidence)


@table(
    "events, kept",
    {
        "one": (TWO, True),
        "two at one time": ([*course(1, "a", HOME), *course(11, "b", HOME)], False),
        "two for a while": (
            [
                *course(1, "a", HOME),
                *course(11, "b", HOME),
                pod(20, "a", placed="local", node=HOME, leaving=True),
            ],
            False,
        ),
        "one after the other": (
            [
                *course(1, "a", HOME),
                pod(5, "a", placed="local", node=HOME, gone=True),
                *course(11, "b", HOME),
            ],
            True,
        ),
        "none at all": ([], False),
    },
)
def test_at_no_time_are_there_too_many_at_home(events: Sequence[Observation], kept: bool) -> None:
    assert never_more_at_home(replicas(*events), 1).kept is kept


@table(
    "leaver, node, kept, evidence",
    {
        "from the super node": ("b", AWAY, True, "b left; a stays at home"),
        "from home": ("a", HOME, False, "a left kwok-1"),
    },
)
def test_those_on_the_super_node_leave_first(leaver: str, node: str, kept: bool, evidence: str) -> None:
    placed = "super" if node == AWAY else "local"
    seen = replicas(*TWO, pod(20, leaver, placed=placed, node=node, leaving=True))
    promise = super_node_first(seen, 13, 20)
    assert (promise.kept, promise.evidence) == (kept, evidence)


# The scene


def test_the_replicas_that_are_awaited_are_those_of_the_manifest() -> None:
    namespace, workload = yaml.safe_load_all((ROOT / "demo" / "burst.yaml").read_text())
    annotations = workload["spec"]["template"]["metadata"]["annotations"]

    assert namespace["metadata"]["name"] == workload["metadata"]["namespace"] == burst.NAMESPACE
    assert f"deployment/{workload['metadata']['name']}" == burst.WORKLOAD
    assert workload["spec"]["replicas"] == burst.REPLICAS
    assert annotations[LOCAL_REPLICAS] == str(burst.AT_HOME)
    assert workload["spec"]["template"]["spec"]["schedulerName"] == TKE_SCHEDULER
