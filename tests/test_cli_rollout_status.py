"""`drawbridge rollout status` waits until a rollout has ended, through an API server that is away, and no longer."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from api.ingress_daemonset import PROMOTE
from api.ingress_daemonset.status import Progressing
from cli.ingress_daemonset.command import is_done, wait_until_ended
from cli.ingress_daemonset.rollouts import Rollout, StoredResource, rollout_of
from cli.output import Output
from controllers.ingress_daemonset.pacing import PROMOTED_BY_HAND
from kube.errors import Forbidden, KubeError, ServerError, Unreachable
from kube.types import ObjectMeta

AWAY = Unreachable("connection refused")
BROKEN = ServerError(503, "ServiceUnavailable", "etcd has no leader")


@dataclass
class Clock:
    now: float = 0.0
    slept: list[float] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(seconds)


def rollout(reason: Progressing, updated: int) -> Rollout:
    condition = {"type": "Progressing", "status": "True", "reason": reason.value}
    status = {"desiredNodes": 2, "updatedNodes": updated, "conditions": [condition]}
    return rollout_of(StoredResource(status=status))


@pytest.fixture
def clock() -> Clock:
    return Clock()


def waited(clock: Clock, limit: float, *answers: Rollout | KubeError) -> tuple[Rollout, list[str]]:
    said, following = io.StringIO(), iter(answers)

    def read() -> Rollout:
        found = next(following)
        if isinstance(found, KubeError):
            raise found
        return found

    found = wait_until_ended(Output(file=said, clock=clock), read, limit)
    return found, said.getvalue().splitlines()


def states() -> Iterator[Rollout]:
    yield rollout(Progressing.ROLLING_OUT, 0)
    yield rollout(Progressing.ROLLING_OUT, 0)
    yield rollout(Progressing.ROLLING_OUT, 1)
    yield rollout(Progressing.COMPLETE, 2)


def test_it_waits_for_the_last_node_and_says_each_change_once(clock: Clock) -> None:
    found, said = waited(clock, 0, *states())

    assert is_done(found)
    assert [line.partition(": ")[2] for line in said] == [
        "RollingOut, 0 of 2 nodes updated",
        "RollingOut, 1 of 2 nodes updated",
        "Complete, 2 of 2 nodes updated",
    ]


def test_a_rollout_has_ended_though_a_node_is_drained(clock: Clock) -> None:
    found, _ = waited(clock, 60, rollout(Progressing.ROLLING_OUT, 1), rollout(Progressing.DRAINING, 2))

    assert is_done(found)


@pytest.mark.parametrize("reason", [Progressing.CANARY_PAUSED, Progressing.CANARY_DEGRADED])
def test_a_canary_that_was_promoted_just_now_is_waited_for(clock: Clock, reason: Progressing) -> None:
    condition = {"type": "Progressing", "reason": reason.value, "message": PROMOTED_BY_HAND}
    metadata = ObjectMeta(annotations={PROMOTE: "c-1"})
    status: dict[str, object] = {"conditions": [condition], "canary": {"id": "c-1"}}
    unseen = rollout_of(StoredResource(metadata, status=status))
    found, _ = waited(clock, 60, unseen, rollout(Progressing.COMPLETE, 2))

    assert is_done(found)


def test_an_api_server_that_is_away_ends_nothing(clock: Clock) -> None:
    found, said = waited(clock, 60, AWAY, BROKEN, rollout(Progressing.COMPLETE, 2))

    assert is_done(found)
    assert said[0] == "connection refused; trying again"


def test_it_ends_in_time_even_without_an_answer(clock: Clock) -> None:
    found, _ = waited(clock, 3, *[rollout(Progressing.ROLLING_OUT, 1)] * 3)
    assert not is_done(found)
    assert clock.slept == [2.0, 1.0]

    with pytest.raises(Unreachable):
        waited(clock, 3, *[AWAY] * 3)


def test_what_cannot_pass_by_itself_ends_it_at_once(clock: Clock) -> None:
    with pytest.raises(Forbidden):
        waited(clock, 60, Forbidden(403, "Forbidden", "no"))
    assert clock.slept == []
