"""The reconciler among leaders that die and are stopped at any moment: no number is ever exceeded."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.elasticity import fleet
from controllers.elasticity.pods import Pod
from controllers.elasticity.reporter import PODS_BY_STATE
from kube.errors import Conflict
from settings import ElasticitySettings
from settings.elasticity import Budget, MaxSuperPods
from tests.elasticity_world import AWAY, HOME, Killed, World
from tests.tables import table
from webhook.elasticity import PLACEMENT, REASON

KEYS = {"a": 1, "b": 2}
LIMIT = 3
FAULTS = (
    "stuck",
    "stuck and killed",
    "stuck and killed",
    "lost",
    "killed before",
    "killed after",
    "forbidden",
    "forbidden",
)


class Chaos:
    """What may happen, in an order that the dice say; after each step all promises are kept."""

    def __init__(self, dice: Random, limits: MaxSuperPods) -> None:
        self.dice, self.limit = dice, limits.total or next((each.max_pods for each in limits.budgets), None)
        self.world = World(settings=ElasticitySettings(enabled=True, max_super_pods=limits))
        self.cluster = self.world.cluster
        self.disturbed: set[str] = set()

    def run(self, steps: int) -> None:
        ways: dict[Callable[[], None], int] = {
            self.create: 3,
            self.end_one: 2,
            self.bind_one: 4,
            self.find_no_room: 1,
            self.write_as_another_client: 1,
            self.hear: 4,
            self.decide: 5,
            self.write: 12,
            self.arrive_late: 4,
            self.change_the_leader: 1,
        }
        for way in self.dice.choices(list(ways), list(ways.values()), k=steps):
            way()
            self.keeps_its_promises()

    def create(self) -> None:
        key = self.dice.choice(sorted(KEYS))
        self.world.create(self.dice.randint(1, 3), key, n=str(KEYS[key]))

    def end_one(self) -> None:
        if name := self._one(lambda pod: True):
            self.disturbed.add(name[0])
            how = self.dice.choice(
                (
                    {"status": {"phase": "Failed"}},
                    {"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}},
                    {},
                )
            )
            self.cluster.edit(name, how) if how else self.cluster.remove(name)

    def bind_one(self) -> None:
        if name := self._one(lambda pod: pod.active and pod.unbound is not None and not pod.gated):
            placed = self.cluster.pod(name).placed
            burst = (
                self.cluster.pod(name).may_come_to_super_nodes
                and placed != "super"
                and self.dice.random() < 0.5
            )
            if burst:
                self.disturbed.add(name[0])
            self.world.bind(name, AWAY if burst or placed == "super" else HOME)

    def find_no_room(self) -> None:
        if name := self._one(lambda pod: pod.active and pod.unbound is not None and not pod.gated):
            self.world.no_room(name)

    def write_as_another_client(self) -> None:
        if name := self._one(lambda pod: True):
            self.cluster.edit(name, {"metadata": {"annotations": {"another": str(self.dice.random())}}})

    def hear(self) -> None:
        self.world.leader.hear(self.dice.choice((1, 2, 100)))

    def decide(self) -> None:
        self.world.clock.advance(self.dice.choice((0.1, 1.0, 10.0)))
        self.world.leader.turn()

    def write(self) -> None:
        if queue := self.world.leader.queue:
            fault = self.dice.choice(FAULTS) if self.dice.random() < 0.4 else ""
            try:
                self.world.leader.let_go(self.dice.randrange(len(queue)), fault)
            except Killed:
                self.change_the_leader()

    def arrive_late(self) -> None:
        """What its sender knows nothing of any more, or has long sent again."""
        if stuck := self.cluster.stuck:
            with contextlib.suppress(Exception):
                stuck.pop(self.dice.randrange(len(stuck)))()

    def change_the_leader(self) -> None:
        """Between whose reading and fencing of the pods, writes of its predecessors arrive."""
        self.world.take_over(lambda: self.arrive_late() if self.dice.random() < 0.3 else None)

    def keeps_its_promises(self) -> None:
        for key, number in KEYS.items():
            assert self.cluster.local(f"owner-{key}/1") <= number
        assert self.limit is None or self.cluster.sent() <= self.limit
        assert len(self.cluster.ungated) == len(set(self.cluster.ungated))

    def end(self) -> None:
        """In peace, everything that waits is placed."""
        for _ in range(3):
            while self.cluster.stuck:
                self.arrive_late()
            self.world.leader.settle(8)
            self.world.bind_all()
            self.keeps_its_promises()
        waiting = self.cluster.names(lambda pod: pod.gated)
        assert not waiting or self.cluster.sent() == self.limit
        for key in KEYS.keys() - self.disturbed:
            counted = self.cluster.names(lambda pod, key=key: pod.active and pod.key == f"owner-{key}/1")
            assert self.cluster.local(f"owner-{key}/1") == min(KEYS[key], len(counted))

    def _one(self, wanted: Callable[[Pod], bool]) -> str:
        names = self.cluster.names(wanted)
        return self.dice.choice(names) if names else ""


@table(
    "limits",
    {
        "no limit": MaxSuperPods(),
        "limit": MaxSuperPods(total=LIMIT),
        "budget": MaxSuperPods(budgets=(Budget(namespaces=("shop",), max_pods=LIMIT),)),
    },
)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32))
def test_no_number_is_ever_exceeded_whatever_befalls_the_leaders(limits: MaxSuperPods, seed: int) -> None:
    chaos = Chaos(Random(seed), limits)  # noqa: S311 - dice, not secrets
    chaos.run(100)
    chaos.end()


def decide(world: World, *faults: str) -> None:
    """One turn on all that is known, and its writes in their order, each with what befalls it."""
    world.clock.advance(60.0)
    world.leader.hear()
    world.leader.turn()
    for fault in faults:
        with contextlib.suppress(Killed):
            world.leader.let_go(0, fault)


def test_what_a_former_leader_left_on_its_way_comes_too_late() -> None:
    world = World()
    world.create(1, n="1")
    decide(world, "forbidden")
    world.create(1, n="1")
    world.leader.hear()
    world.leader.turn()  # the first has to wait now, so the second may stay
    with contextlib.suppress(Killed):
        world.leader.let_go(0, "stuck and killed")
    world.take_over()
    decide(world, "")
    assert len(world.cluster.stuck) == 1
    with pytest.raises(Conflict):
        world.cluster.stuck.pop()()
    world.leader.settle()

    assert world.placements() == {"local": 1, "super": 1}


def test_leave_that_a_former_leader_gave_comes_too_late_where_their_number_is_limited() -> None:
    world = World(settings=ElasticitySettings(max_super_pods=MaxSuperPods(total=1)))
    (stuck,) = world.create(1, "old", n=None, gated=False)
    world.no_room(stuck)
    decide(world, "stuck and killed")
    world.create(1, n="0")
    world.take_over()
    decide(world, "")
    with pytest.raises(Conflict):
        world.cluster.stuck.pop()()

    assert world.cluster.sent() == 1


def test_without_a_limit_a_new_leader_writes_to_gated_pods_only() -> None:
    world = World()
    world.no_room(world.create(1, "old", n=None, gated=False)[0])
    world.create(1)
    world.take_over()

    assert world.cluster.writes == ["web-2"]


def test_a_write_of_unknown_outcome_counts_until_its_outcome_is_known() -> None:
    world = World()
    world.create(1, n="1")
    decide(world, "stuck")
    decide(world, "forbidden")  # which says nothing of the one before
    world.create(1, n="1")
    world.leader.hear()
    world.leader.turn()
    world.leader.let_go()
    world.cluster.stuck.pop()()
    world.leader.settle()

    assert world.placements() == {"local": 1, "super": 1}


def test_a_placement_costs_one_write_and_no_read() -> None:
    world = World()
    world.create(50, n="10")
    world.leader.settle()

    assert world.placements() == {"local": 10, "super": 40}
    assert (len(world.cluster.writes), world.leader.client.reads, world.leader.recorder.events) == (50, 0, [])


def test_a_pod_that_ends_makes_room_for_the_next() -> None:
    world = World()
    first, _ = world.create(2)
    world.leader.settle()
    world.cluster.edit(first, {"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}})
    (last,) = world.create(1)
    world.leader.settle()

    assert world.annotations(last)["drawbridge.io/placement"] == "local"


def test_what_waits_for_super_nodes_to_have_room_goes_when_they_have() -> None:
    world = World(settings=ElasticitySettings(max_super_pods=MaxSuperPods(per_namespace=1)))
    names = world.create(3, n="0")
    world.create(1, "other", n="0", namespace="elsewhere")
    world.leader.settle()
    assert world.placements() == {"": 2, "super": 1}
    assert world.placements("other") == {"super": 1}
    assert world.leader.recorder.reasons == ["SuperNodeCapReached"] * 2
    world.cluster.remove(names[0])
    world.leader.settle()

    assert world.placements() == {"": 1, "super": 1}


def test_a_gated_pod_whose_number_is_gone_or_bad_is_not_held() -> None:
    world = World()
    world.create(1, n=None)
    world.create(1, n="many")
    world.leader.settle()

    assert world.placements() == {"local": 2}
    assert world.leader.recorder.reasons == ["BadLocalReplicas"]


def test_a_bad_number_of_a_pod_that_was_not_gated_is_reported_once() -> None:
    world = World()
    (name,) = world.create(1, n="many", gated=False)
    world.bind(name, HOME)
    world.leader.settle()
    world.cluster.edit(name, {"metadata": {"annotations": {"AUTO_SCALE_EKS": "true"}}})
    world.leader.settle()

    assert world.leader.recorder.reasons == ["BadLocalReplicas"]
    assert world.cluster.writes == []


def test_what_was_refused_is_reported_and_not_tried_again_at_once() -> None:
    world = World()
    world.create(1)
    decide(world, "forbidden")
    world.leader.turn()
    assert (world.leader.queue, world.leader.recorder.reasons) == ([], ["FailedPlacement"])
    world.leader.settle()

    assert world.placements() == {"local": 1}


def test_claims_are_looked_up_only_for_pods_that_have_some_and_go() -> None:
    world = World()
    claim = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
    world.create(4, n="2", spec=claim)
    volume = {"metadata": {"name": "pv"}, "spec": {"nfs": {"server": "10.0.0.9"}}}
    bound = {"metadata": {"name": "data"}, "spec": {"volumeName": "pv"}}
    world.cluster.others = {("persistentvolumes", "pv"): volume}
    world.leader.settle(1)
    assert world.placements() == {"": 2, "local": 2}  # a claim may come a little after its pod
    world.cluster.others["persistentvolumeclaims", "data"] = bound
    world.leader.settle()

    assert world.placements() == {"local": 2, "super": 2}
    assert world.leader.client.reads <= 8


def test_a_claim_that_is_bound_a_little_after_its_pod_came_is_judged_by_its_volume() -> None:
    world = World()
    world.create(1, n="0", spec={"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]})
    unbound = {"metadata": {"name": "data"}, "spec": {"storageClassName": "nfs"}}
    world.cluster.others = {
        ("storageclasses", "nfs"): {"metadata": {"name": "nfs"}, "provisioner": "example.com/nfs"},
        ("persistentvolumes", "pv"): {"metadata": {"name": "pv"}, "spec": {"nfs": {"server": "10.0.0.9"}}},
        ("persistentvolumeclaims", "data"): unbound,
    }
    world.leader.settle(1)
    assert world.placements() == {"": 1}
    bound = {"metadata": {"name": "data"}, "spec": {"storageClassName": "nfs", "volumeName": "pv"}}
    world.cluster.others["persistentvolumeclaims", "data"] = bound
    world.leader.settle()

    assert world.placements() == {"super": 1}


def test_a_pod_whose_claim_is_never_created_stays_local() -> None:
    world = World()
    world.create(1, n="0", spec={"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "none"}}]})
    world.leader.settle()

    assert world.placements() == {"local": 1}
    assert world.leader.recorder.reasons == ["NotEligibleForSuperNode"]


def test_the_cap_that_is_lowered_or_raised_while_pods_wait_holds_for_them() -> None:
    world = World(settings=ElasticitySettings(max_super_pods=MaxSuperPods(total=1)))
    world.create(3, n="0")
    world.leader.settle(2)
    assert world.placements() == {"": 2, "super": 1}
    world.leader.settings = ElasticitySettings(max_super_pods=MaxSuperPods(total=2))
    world.leader.settle(2)

    assert world.placements() == {"": 1, "super": 2}


def test_a_pod_that_leaves_makes_room_for_one_of_another_owner_at_once() -> None:
    world = World(settings=ElasticitySettings(max_super_pods=MaxSuperPods(total=1)))
    (first,) = world.create(1, n="0")
    world.leader.settle(1)
    world.create(1, "other", n="0")
    decide(world)
    world.cluster.remove(first)
    world.leader.hear()
    world.leader.turn()
    world.leader.let_go()

    assert world.placements("other") == {"super": 1}


def test_a_write_of_unknown_outcome_holds_its_place_under_the_cap_against_other_owners() -> None:
    world = World(settings=ElasticitySettings(max_super_pods=MaxSuperPods(total=1)))
    world.create(1, n="0")
    decide(world, "stuck")
    (other,) = world.create(1, "other", n="0")
    world.leader.hear()
    world.leader.turn()
    assert world.leader.queue == [f"uid-{other}"], "that says what it waits for"
    going = world.leader.parts.writer.assumptions.to_super_nodes()
    assert [each.pod.metadata.name for each in going] == ["web-1"]
    world.cluster.stuck.pop()()
    world.leader.settle(2)

    assert (world.placements(), world.placements("other")) == ({"super": 1}, {"": 1})


BUDGETS = MaxSuperPods(budgets=(Budget(namespaces=("shop",), max_pods=1),))
FULL = "maxSuperPods.budgets allows 1 pods of shop on super nodes"


def test_what_is_over_a_budget_waits_and_says_so_until_there_is_room() -> None:
    world = World(settings=ElasticitySettings(enabled=True, max_super_pods=BUDGETS))
    first, second = world.create(2, n="0")
    (stuck,) = world.create(1, "stuck", n=None, gated=False)
    world.no_room(stuck)
    world.create(1, "other", n="0", namespace="bank")
    world.leader.settle()

    assert world.placements("other") == {"super": 1}
    assert world.placements() == {"": 1, "super": 1}
    assert all(FULL in world.annotations(each)[REASON] for each in (second, stuck))
    writes = len(world.cluster.writes)
    world.leader.settle()
    assert len(world.cluster.writes) == writes, "it is said once"
    assert PODS_BY_STATE.labels("capped")._value.get() == 2

    world.cluster.remove(first)
    world.leader.settle()
    waiting = [each for each in (second, stuck) if FULL in world.annotations(each)[REASON]]
    assert len(waiting) == 1


def test_a_pod_that_terminates_on_a_super_node_is_billed_and_counted_until_it_is_gone() -> None:
    world = World(settings=ElasticitySettings(enabled=True, max_super_pods=BUDGETS))
    old, new = world.create(2, n="0")
    world.leader.settle()
    world.bind(old, AWAY)
    world.cluster.edit(old, {"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}})
    world.leader.settle()

    assert world.cluster.pod(new).gated
    assert FULL in world.annotations(new)[REASON]
    assert PODS_BY_STATE.labels("super")._value.get() == 1, "what the provider bills"

    world.take_over()
    world.leader.settle()
    assert world.cluster.sent() == 1, "a new leader counts it, too"

    world.cluster.remove(old)
    world.leader.settle()
    assert world.annotations(new)[PLACEMENT] == "super"


def test_a_reason_that_is_on_its_way_holds_no_place_and_is_no_obstacle() -> None:
    world = World(settings=ElasticitySettings(enabled=True, max_super_pods=BUDGETS))
    first, second = world.create(2, n="0")
    world.leader.hear()
    world.leader.turn()
    queue = world.leader.queue
    assert set(queue) == {f"uid-{first}", f"uid-{second}"}
    world.leader.let_go(queue.index(f"uid-{first}"))
    world.cluster.remove(first)
    world.leader.hear()
    world.leader.turn()
    world.leader.let_go()

    assert world.annotations(second)[PLACEMENT] == "super"


@pytest.mark.parametrize("fault", ["forbidden", "lost", "stuck"])
def test_a_reason_that_cannot_be_written_stops_nothing(fault: str) -> None:
    world = World(settings=ElasticitySettings(enabled=True, max_super_pods=BUDGETS))
    first, second = world.create(2, n="0")
    world.leader.hear()
    world.leader.turn()
    world.leader.let_go(world.leader.queue.index(f"uid-{second}"), fault)
    world.leader.settle()
    assert FULL in world.annotations(second)[REASON]
    assert "FailedPlacement" not in world.leader.recorder.reasons

    world.cluster.remove(first)
    world.leader.settle()
    assert world.annotations(second)[PLACEMENT] == "super"


def test_pods_of_two_owners_that_take_one_place_are_not_both_sent_there() -> None:
    world = World()
    port = {"containers": [{"name": "app", "image": "app", "ports": [{"hostPort": 80}]}]}
    world.create(1, n="0", spec=port)
    world.create(1, "other", n="0", spec=port)
    decide(world)
    assert len(world.leader.queue) == 2
    world.leader.settle(2)

    assert {**world.placements(), **world.placements("other")} == {"super": 1, "local": 1}


def test_an_event_concerns_the_pods_of_its_owner_only() -> None:
    world = World()
    for number in range(5):
        world.create(2, f"app{number}", n="0", spec={"nodeSelector": {"gpu": "yes"}})
    world.leader.settle(1)
    world.create(1, "app0", n="0")
    world.leader.hear()

    assert list(world.leader.parts.keys._waiting) == ["owner-app0/1"]


def test_what_a_kubelet_reports_and_our_own_writes_queue_nothing() -> None:
    world = World()
    (name,) = world.create(1)
    world.leader.settle(1)
    world.bind(name, HOME)
    world.cluster.edit(name, {"status": {"podIP": "10.0.0.1"}})
    world.leader.hear()

    assert not world.leader.parts.keys._waiting


def test_a_decision_does_not_look_at_pods_of_others_that_are_on_their_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.create(20, "other", n="0")
    world.leader.settle(1)
    looked_at: list[str] = []
    request = fleet._request

    def noting(pod: Pod, *args: Any) -> Any:
        looked_at.append(pod.metadata.name)
        return request(pod, *args)

    monkeypatch.setattr(fleet, "_request", noting)
    (name,) = world.create(1, n="0")
    world.leader.settle(1)

    assert set(looked_at) == {name}
