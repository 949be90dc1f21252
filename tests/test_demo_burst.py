"""The demo's promises about placed replicas are judged by what was seen."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from demo.burst import Replicas
from demo.burst_promises import never_more_local, placed_first, split, super_node_first
from kube.types import ObjectMeta, Pod, PodSpec
from lab.history import Observation
from tests.factories import NOW
from webhook.elasticity import LOCAL_REPLICAS, PLACEMENT

LOCAL, AWAY = "kwok-1", "eklet-subnet-1"
WHY = "global=false local=true LOCAL_REPLICAS=1, 0 local: stays local"


def pod(
    revision: int,
    name: str = "a",
    *,
    placed: str = "",
    node: str = "",
    leaving: bool = False,
    gone: bool = False,
) -> Observation:
    """A replica as it was at *revision*."""
    why = {PLACEMENT: placed, "drawbridge.io/placement-reason": WHY} if placed else {}
    metadata = ObjectMeta(
        name=name,
        namespace="shop",
        uid=f"uid-{name}",
        resource_version=str(revision),
        annotations={LOCAL_REPLICAS: "1", **why},
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


TWO = (*course(1, "a", LOCAL), *course(11, "b", AWAY))


# The promises


@pytest.mark.parametrize(
    ("events", "evidence"),
    [
        pytest.param(TWO, "2 of 2, 1 revisions ahead", id="kept"),
        pytest.param(
            [
                *course(1, "a", LOCAL),
                pod(11, "b"),
                pod(12, "b", node=AWAY),
                pod(13, "b", node=AWAY, placed="super"),
            ],
            "b was scheduled before it was placed",
            id="placed too late",
        ),
        pytest.param(course(1, "a", LOCAL), "1 of 2 pods were seen", id="one is missing"),
    ],
)
def test_each_replica_is_placed_before_it_is_scheduled(events: Sequence[Observation], evidence: str) -> None:
    promise = placed_first(replicas(*events), 2)
    assert (promise.kept, promise.evidence) == ("ahead" in evidence, evidence)


@pytest.mark.parametrize(
    ("revision", "kept", "evidence"),
    [
        pytest.param(13, True, "eklet-subnet-1, kwok-1", id="both are there"),
        pytest.param(20, False, "1 local, 0 on the super node", id="one leaves"),
    ],
)
def test_how_replicas_are_split_is_judged_as_of_its_revision(
    revision: int, kept: bool, evidence: str
) -> None:
    seen = replicas(*TWO, pod(20, "b", placed="super", node=AWAY, leaving=True))
    promise = split(seen, revision, home=1, away=1)
    assert (promise.kept, promise.evidence) == (kept, evidence)


@pytest.mark.parametrize(
    ("events", "kept"),
    [
        pytest.param(TWO, True, id="one"),
        pytest.param(
            [
                *course(1, "a", LOCAL),
                *course(11, "b", LOCAL),
                pod(20, "a", placed="local", node=LOCAL, leaving=True),
            ],
            False,
            id="two for a while",
        ),
        pytest.param(
            [
                *course(1, "a", LOCAL),
                pod(5, "a", placed="local", node=LOCAL, gone=True),
                *course(11, "b", LOCAL),
            ],
            True,
            id="one after the other",
        ),
    ],
)
def test_at_no_time_are_too_many_local(events: Sequence[Observation], kept: bool) -> None:
    assert never_more_local(replicas(*events), 1).kept is kept


@pytest.mark.parametrize(
    ("leaver", "node", "kept", "evidence"),
    [
        pytest.param("b", AWAY, True, "b left; a stays local", id="from the super node"),
        pytest.param("a", LOCAL, False, "a left kwok-1", id="a local one"),
    ],
)
def test_those_on_the_super_node_leave_first(leaver: str, node: str, kept: bool, evidence: str) -> None:
    placed = "super" if node == AWAY else "local"
    seen = replicas(*TWO, pod(20, leaver, placed=placed, node=node, leaving=True))
    promise = super_node_first(seen, 13, 20)
    assert (promise.kept, promise.evidence) == (kept, evidence)
