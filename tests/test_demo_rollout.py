"""The demo's promises about a rolling update are judged by what was seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest

from demo.rollout import REVISION, Answer, Rollout
from demo.rollout_promises import never_more_off, off_before_replaced, on_when_complete
from healthchecker.checker import Deployment, DeploymentSpec, DeploymentStatus
from kube.types import ObjectMeta, Pod
from lab.history import Observation
from tests.factories import NOW
from webhook.ingress_daemonset import NODE_LABEL, TO_BE_UPDATED

Event = Callable[[Rollout], None]


def deployment(revision: int, *, off: bool = False, available: int = 1, node: str = "n") -> Event:
    """A node's Deployment of one pod, as it was seen at *revision*, so many seconds from NOW."""
    metadata = ObjectMeta(
        resource_version=str(revision),
        labels={NODE_LABEL: node},
        annotations={TO_BE_UPDATED: ""} if off else {},
    )
    seen = Deployment(metadata, DeploymentSpec(replicas=1), DeploymentStatus(available_replicas=available))
    return _seen(seen, revision)


def pod(
    revision: int, name: str = "a", *, leaving: bool = False, gone: bool = False, node: str = "n"
) -> Event:
    """Of the template that its name begins with."""
    metadata = ObjectMeta(
        name=name,
        uid=f"uid-{name}-{node}",
        resource_version=str(revision),
        labels={NODE_LABEL: node, REVISION: name[0]},
        deletion_timestamp=NOW if leaving else None,
    )
    return _seen(Pod(metadata), revision, gone)


def check(second: float, status: int, node: str = "n") -> Event:
    return lambda rollout: rollout.hear(Answer(node, status, NOW + timedelta(seconds=second)))


def _seen(what: Pod | Deployment, revision: int, gone: bool = False) -> Event:
    return lambda rollout: rollout.add(Observation(what, gone, NOW + timedelta(seconds=revision)))


def played(*events: Event) -> Rollout:
    rollout = Rollout()
    for each in events:
        each(rollout)
    return rollout


BEGUN = (deployment(1), pod(2), check(3, 503), check(4, 200), deployment(5, off=True), check(5.5, 503))
REPLACED = (*BEGUN, pod(8, leaving=True), pod(9, gone=True), pod(10, "b"))
OVER = (*REPLACED, deployment(12), check(12.5, 200))


# The promises


@pytest.mark.parametrize(
    ("events", "evidence"),
    [
        pytest.param(REPLACED, "1 pods, 2.5 s after the first 503", id="kept"),
        pytest.param(
            [deployment(1), pod(2), check(3, 200), pod(8, leaving=True)],
            "a left n, which was on",
            id="while it was on",
        ),
        pytest.param(
            [deployment(1), pod(2), check(3, 200), deployment(5, off=True), pod(8, leaving=True)],
            "a left n while health checks passed",
            id="before the load balancer could know",
        ),
        pytest.param([*BEGUN, pod(6, leaving=True)], "a left n 0.5 s after the first 503", id="too soon"),
    ],
)
def test_no_pod_goes_before_health_checks_fail(events: Sequence[Event], evidence: str) -> None:
    promise = off_before_replaced(played(*events), 1, 1.0)
    assert (promise.kept, promise.evidence) == ("1 pods, " in evidence, evidence)


@pytest.mark.parametrize(
    ("events", "kept", "evidence"),
    [
        pytest.param(
            [deployment(1, off=True), deployment(2), deployment(3, off=True, node="m")],
            True,
            "at most 1, by every revision",
            id="one after the other",
        ),
        pytest.param(
            [deployment(1, off=True), deployment(3), deployment(2, off=True, node="m")],
            False,
            "2 were off at one time",
            id="side by side for a while",
        ),
    ],
)
def test_at_no_time_are_too_many_off(events: Sequence[Event], kept: bool, evidence: str) -> None:
    promise = never_more_off(played(*events), 1)
    assert (promise.kept, promise.evidence) == (kept, evidence)


@pytest.mark.parametrize(
    ("events", "evidence"),
    [
        pytest.param(OVER, "1 of 1, their health checks: 200, 503, 200", id="kept"),
        pytest.param(REPLACED, "n was not off once, and on again", id="it is still off"),
        pytest.param(
            [*REPLACED, deployment(12, available=0), check(12.5, 200)],
            "n was on again before all its pods were available",
            id="too early",
        ),
        pytest.param([*REPLACED, deployment(12)], "n answered 200, 503", id="it does not say so"),
    ],
)
def test_a_node_is_on_again_only_when_it_is_complete(events: Sequence[Event], evidence: str) -> None:
    promise = on_when_complete(played(*events), 1, 1)
    assert (promise.kept, promise.evidence) == ("1 of 1" in evidence, evidence)
