"""A new leader's takeover on a slow API server: it ends with the lease, and the next leader goes on from there."""

from __future__ import annotations

from typing import Any

from api.elasticity import GATE
from controllers.elasticity.room import counts
from controllers.elasticity.takeover import LONGEST
from kube.errors import Forbidden, KubeError, Unreachable
from kube.leader_election import LeadershipLost
from settings import ElasticitySettings
from settings.elasticity import MaxSuperPods
from tests.elasticity_world import AWAY, World, is_gated
from tests.tables import table

SLOW = 2.0
"""Seconds that the API server takes for each PATCH."""
DEPLOYMENTS, EACH, N = 20, 10, 3


class Slow(World):
    """Each leader's calls are answered slowly, and it loses its lease after so many of them."""

    def take_over_for(self, patches: int) -> int:
        """How many calls it made."""
        calls: list[float] = []

        def before() -> None:
            calls.append(self.clock())
            self.clock.advance(SLOW)

        def check() -> None:
            if len(calls) >= patches:
                raise LeadershipLost("another one may lead")

        self._parts["check"] = check
        self.take_over(before)
        del self._parts["check"]
        return len(calls)


def slow(**parts: Any) -> Slow:
    world = Slow(**parts)
    for number in range(DEPLOYMENTS):
        world.create(EACH, key=f"web{number}", n=str(N))
    return world


def gated(world: World) -> int:
    return sum(is_gated(raw) for raw in world.cluster.pods.values())


def test_nothing_is_decided_of_a_workload_of_which_a_pod_is_not_fenced() -> None:
    world = slow()
    world.take_over_for(EACH + EACH // 2)
    world.leader.may_lead = True
    world.leader.settle()

    assert world.placements("web0") == {"local": N, "super": EACH - N}
    assert world.placements("web1") == {"": EACH}


def test_where_their_number_is_limited_nothing_is_decided_before_all_are_fenced() -> None:
    world = slow(settings=ElasticitySettings(enabled=True, max_super_pods=MaxSuperPods(total=5)))
    world.take_over_for(60)
    world.leader.may_lead = True
    world.leader.settle()
    assert gated(world) == DEPLOYMENTS * EACH

    world.take_over_for(10_000)
    world.leader.settle()
    assert len(world.cluster.names(lambda pod: counts(pod, {AWAY}))) == 5


@table(
    "errors, calls",
    {
        "that failed is tried again": ([Unreachable("reset"), Unreachable("reset")], 3),
        "that is refused counts as done": ([Forbidden(403, "Forbidden", "a policy")], 1),
    },
)
def test_a_fence(errors: list[KubeError], calls: int) -> None:
    world = World()
    world.create(1)
    made = []

    def before() -> None:
        made.append("call")
        if errors:
            raise errors.pop(0)

    world.take_over(before)
    assert len(made) == calls
    world.leader.settle()

    assert world.placements() == {"local": 1}


def test_a_pod_that_cannot_be_fenced_for_longer_than_a_write_can_last_holds_up_nothing() -> None:
    world = World()
    world.create(1)
    began = world.clock()

    def before() -> None:
        raise Unreachable("no answer")

    world.take_over(before)
    assert LONGEST <= world.clock() - began < 2 * LONGEST
    world.leader.settle()

    assert world.placements() == {"local": 1}


def test_a_pod_that_changes_while_it_is_fenced_is_fenced_as_it_is_then() -> None:
    world = World()
    (name,) = world.create(1)
    left = [{"metadata": {"labels": {"x": "1"}}}]
    world.take_over(lambda: world.cluster.edit(name, left.pop()) if left else None)

    assert "drawbridge.io/fenced-by" in world.annotations(name)


def test_no_pod_is_fenced_that_others_hold_back() -> None:
    """None was decided on, and a queue may hold thousands."""
    world = World(settings=ElasticitySettings(enabled=True, max_super_pods=MaxSuperPods(total=5)))
    (name,) = world.create(
        1, spec={"schedulingGates": [{"name": GATE}, {"name": "kueue.x-k8s.io/admission"}]}
    )
    world.take_over()

    assert world.cluster.writes == []
    assert "drawbridge.io/fenced-by" not in world.annotations(name)
