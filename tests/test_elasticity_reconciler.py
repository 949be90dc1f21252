"""The reconciler among leaders that die and are stopped at any moment: no number is ever exceeded."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Sequence
from typing import Any

import pytest

from api.elasticity import GATE, MODE, PIN, PLACEMENT, REASON
from controllers.elasticity.nodes import MANAGED_BY, MANAGER, sorted_out
from controllers.elasticity.pods import Pod
from controllers.elasticity.reporter import GATE_SECONDS, OLDEST_GATE, PODS_BY_STATE
from controllers.elasticity.room import counts
from controllers.elasticity.snapshot import Workload
from controllers.elasticity.takeover import LONGEST
from dev.fake_api import Reply, Request, refusal
from kube.errors import Conflict, Forbidden, KubeError, Unreachable
from kube.leader_election import LeadershipLost
from kube.selectors import REQUIRED
from kube.types import INSTANCE_TYPE
from settings import ElasticitySettings
from settings.elasticity import Budget, MaxSuperPods
from tests.elasticity_world import AWAY, HOME, Killed, World, cap_of, fleet, node, super_node
from tests.tables import table


def decide(world: World, *faults: str) -> None:
    """One turn on all that is known, and its writes in their order, each with what befalls it."""
    world.clock.advance(60.0)
    world.leader.decide()
    for fault in faults:
        with contextlib.suppress(Killed):
            world.leader.let_go(0, fault)


def test_what_a_former_leader_left_on_its_way_comes_too_late() -> None:
    world = World()
    world.create(1, n="1")
    decide(world, "forbidden")
    world.create(1, n="1")
    world.leader.decide()  # the first has to wait now, so the second may stay
    with contextlib.suppress(Killed):
        world.leader.let_go(0, "stuck and killed")
    world.take_over()
    decide(world, "")
    assert len(world.cluster.stuck) == 1
    with pytest.raises(Conflict):
        world.cluster.stuck.pop()()
    world.leader.settle()

    assert world.placements() == {"local": 1, "super": 1}


def test_pods_of_another_namespace_do_not_count_whatever_owner_they_name() -> None:
    """A copy of a manifest names the uid of the original's owner, and any pod can."""
    world = World()
    (copied,) = world.create(1, n="1", namespace="bank")
    world.leader.settle()
    (original,) = world.create(1, n="1")
    world.leader.settle()

    assert world.annotations(original)[PLACEMENT] == "local"
    assert world.cluster.pod(copied).workload != world.cluster.pod(original).workload


def test_a_write_of_unknown_outcome_counts_until_its_outcome_is_known() -> None:
    world = World()
    world.create(1, n="1")
    decide(world, "stuck")
    decide(world, "forbidden")  # which says nothing of the one before
    world.create(1, n="1")
    world.leader.decide()
    world.leader.let_go()
    world.cluster.stuck.pop()()
    world.leader.settle()

    assert world.placements() == {"local": 1, "super": 1}


def test_a_pod_that_names_thousands_of_nodes_can_be_written_to() -> None:
    """The API server takes 256 KiB of annotations."""
    world = World()
    names = [f"node-{number:05}.ap-guangzhou-3.compute.example.com" for number in range(6000)]
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": names}]}
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}}
    (name,) = world.create(1, n="0", spec={"affinity": affinity})
    world.leader.settle(1)

    assert world.placements() == {"local": 1}
    assert names[0] in world.annotations(name)[REASON]
    assert sum(map(len, world.annotations(name).values())) < 256 * 1024


def test_a_pod_that_is_gone_is_not_written_to_again_until_the_watch_says_so() -> None:
    world = World()
    (name,) = world.create(1)
    world.leader.hear()
    world.cluster.remove(name)
    calls: list[None] = []
    world.leader.client.before = lambda: calls.append(None)
    for _ in range(5):
        world.leader.turn()
        while world.leader.queue:
            world.leader.let_go()
    world.leader.settle(1)

    assert len(calls) == 1


def let_go(world: World, name: str) -> None:
    """By its owner."""
    world.cluster.edit(name, {"metadata": {"ownerReferences": []}})


@table(
    "kind, meanwhile",
    {
        "its owner lets it go": ("ReplicaSet", let_go),
        "one of another revision takes its name": ("StatefulSet", World.replace),
    },
)
@pytest.mark.parametrize("taking_over", [False, True])
def test_a_pod_that_changes_its_key_while_it_is_written_to_is_placed(
    kind: str, meanwhile: Callable[[World, str], None], taking_over: bool
) -> None:
    world = World()
    world.cluster.workloads["owner-web"] = Workload()
    (name,) = world.create(1, kind=kind)
    left = [meanwhile]
    if taking_over:
        world.take_over(lambda: left.pop()(world, name) if left else None)
    else:
        world.leader.decide()
        meanwhile(world, name)
        world.leader.let_go()
    world.leader.settle()

    assert world.placements() == {"local": 1}


def test_a_placement_costs_one_write_and_no_read() -> None:
    world = World()
    world.create(50, n="10")
    world.leader.settle()

    assert world.placements() == {"local": 10, "super": 40}
    world.bind_all()
    world.leader.settle()
    assert (len(world.cluster.writes), world.leader.client.reads, world.leader.recorder.events) == (50, 0, [])


@pytest.mark.parametrize("number", ["many", "30%"])
def test_a_bad_number_of_a_pod_that_was_not_gated_is_reported_once(number: str) -> None:
    world = World()
    (name,) = world.create(1, n=number, gated=False)
    world.bind(name, HOME)
    world.leader.settle()
    world.cluster.edit(name, {"metadata": {"annotations": {"AUTO_SCALE_EKS": "true"}}})
    world.leader.settle()

    assert world.leader.recorder.reasons == ["BadLocalReplicas"]
    assert world.cluster.writes == []


def test_what_was_refused_is_reported_and_not_tried_again_at_once() -> None:
    world = World()
    world.create(1)
    world.leader.decide()
    world.leader.let_go(0, "forbidden")
    world.leader.turn()
    assert (world.leader.queue, world.leader.recorder.reasons) == ([], ["FailedPlacement"])
    world.leader.settle()

    assert world.placements() == {"local": 1}


def test_a_claim_that_is_bound_a_little_after_its_pod_came_is_judged_by_its_volume() -> None:
    world = World()
    world.create(1, n="0", spec={"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]})
    unbound = {"metadata": {"name": "data"}, "spec": {"storageClassName": "nfs"}}
    world.cluster.others.update(
        {
            ("storageclasses", "nfs"): {"metadata": {"name": "nfs"}, "provisioner": "example.com/nfs"},
            ("persistentvolumes", "pv"): {
                "metadata": {"name": "pv"},
                "spec": {"nfs": {"server": "10.0.0.9"}},
            },
            ("persistentvolumeclaims", "data"): unbound,
        }
    )
    world.leader.settle(1)
    assert world.placements() == {"": 1}
    bound = {"metadata": {"name": "data"}, "spec": {"storageClassName": "nfs", "volumeName": "pv"}}
    world.cluster.others["persistentvolumeclaims", "data"] = bound
    world.leader.settle()

    assert world.placements() == {"super": 1}


@pytest.mark.parametrize("ahead", [300.0, -300.0])
def test_how_long_pods_are_gated_is_told_by_the_clock_of_the_leader_alone(ahead: float) -> None:
    world = World(ahead=ahead)
    world.create(1)
    world.leader.decide()
    world.clock.advance(7.0)
    world.leader.parts.upkeep()
    assert OLDEST_GATE._value.get() == 7.0
    before = GATE_SECONDS._sum.get()
    world.leader.let_go()

    assert GATE_SECONDS._sum.get() - before == pytest.approx(7.0)


def test_a_pod_that_waited_for_a_limit_says_nothing_of_how_slow_placement_is() -> None:
    world = World(settings=cap_of(1))
    first, _ = world.create(2, n="0")
    world.leader.settle()
    before = GATE_SECONDS._sum.get()
    world.cluster.remove(first)
    world.leader.settle()

    assert world.placements() == {"super": 1}
    assert GATE_SECONDS._sum.get() == before


BUDGETS = MaxSuperPods(budgets=(Budget(namespaces=("shop",), max_pods=1),))
FULL = "maxSuperPods.budgets limits pods of shop on super nodes to 1"


def test_what_is_over_a_budget_waits_and_says_so_until_there_is_room() -> None:
    world = World(settings=ElasticitySettings(enabled=True, max_super_pods=BUDGETS))
    first, second = world.create(2, n="0")
    stuck = world.stuck("stuck")
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


def test_the_oldest_pod_goes_first_of_whichever_workload() -> None:
    world = World(settings=cap_of(1))
    (placed,) = world.create(1, n="0")
    world.leader.settle(1)
    waiting = []
    for key in "hgfedcba":
        world.clock.advance(1.0)
        waiting += world.create(1, key, n="0")
        world.leader.look()
    for oldest in waiting:
        world.cluster.remove(placed)
        world.leader.look()
        (placed,) = world.cluster.names(lambda pod: pod.placed == "super")
        assert placed == oldest


def test_what_waits_for_a_limit_costs_no_look_at_what_is_on_super_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There may be thousands of each, and what waits is decided on again every few seconds."""
    world = World(settings=cap_of(9))
    world.create(9, n="0")
    world.leader.settle(1)
    world.bind_all()
    for key in "abc":
        world.create(1, key, n="0")
    world.leader.settle(1)
    informer, seen = world.leader.parts._sources.pods._informer, list[int]()
    by_index = informer.by_index

    def noted(name: str, value: str) -> Sequence[Pod]:
        seen.append(len(found := by_index(name, value)))
        return found

    monkeypatch.setattr(informer, "by_index", noted)
    world.leader.look()

    assert len(seen) >= 3
    assert max(seen) == 1


def test_the_upkeep_looks_once_at_all_pods_and_counts_those_that_are_local_by_an_index(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.create(5, n="4")
    world.leader.settle(1)
    world.bind_all()
    burst = world.stuck(annotations={PLACEMENT: "local"})
    world.leader.settle(1)
    world.bind(burst, AWAY)
    world.leader.hear()
    informer, lists, seen = world.leader.parts._sources.pods._informer, list[int](), set[str]()
    every = informer.list

    def noted() -> Sequence[Pod]:
        lists.append(len(found := every()))
        return found

    def looked(pod: Pod, names: Container[str]) -> bool:
        seen.add(pod.metadata.name)
        return counts(pod, names)

    monkeypatch.setattr(informer, "list", noted)
    monkeypatch.setattr("controllers.elasticity.controller.counts", looked)
    world.leader.parts.upkeep()

    assert lists == [6]
    assert seen == {burst, "web-5"}
    assert [PODS_BY_STATE.labels(state)._value.get() for state in ("local", "super")] == [4, 2]


def test_the_oldest_pod_goes_first_when_a_limit_is_raised() -> None:
    """In whatever order the leader has listed them."""
    world = World(settings=cap_of(1))
    world.create(1, "a", n="0")
    world.leader.settle(1)
    world.clock.advance(1.0)
    (pinned,) = world.create(1, "b", n="1", annotations={MODE: PIN})
    world.leader.look()
    world.no_room(pinned)
    for key in ("d", "c", "b"):
        world.clock.advance(1.0)
        world.create(1, key, n="1" if key == "b" else "0")
        world.leader.look()
    world.take_over()
    world.leader.settle(1)
    world.leader.settings = cap_of(2)
    world.leader.turn()
    world.leader.look()

    assert [world.placements(key) for key in "abcd"] == [
        {"super": 1},
        {"": 1, "local": 1},
        {"": 1},
        {"super": 1},
    ]


OTHER = super_node("eklet-subnet-2")


def with_one_there() -> tuple[World, str]:
    """The only pod that a cap allows is on one of two super nodes."""
    world = World(nodes=fleet(OTHER), settings=cap_of(1))
    (placed,) = world.create(1, n="0")
    world.leader.settle(1)
    world.bind(placed, AWAY)
    world.leader.hear()
    return world, placed


def test_pods_count_on_a_super_node_that_was_gone_before_the_leader_came() -> None:
    world, placed = with_one_there()
    world.take_over(nodes=sorted_out([node(HOME), OTHER]))
    world.create(1, n="0")
    world.leader.settle(1)

    assert world.placements() == {"": 1, "super": 1}
    world.cluster.remove(placed)
    world.leader.settle(1)
    assert world.placements() == {"super": 1}


@table(
    "labels, placed",
    {
        "ours, which is restored": ({MANAGED_BY: MANAGER}, {"": 1, "super": 1}),
        "another's": ({}, {"super": 2}),
    },
)
def test_pods_count_on_a_super_node_of_ours_of_which_someone_has_changed_the_type(
    labels: dict[str, str], placed: dict[str, int]
) -> None:
    world, _ = with_one_there()
    world.leader.set_nodes(sorted_out([node(HOME), OTHER, super_node(AWAY, {INSTANCE_TYPE: "S5", **labels})]))
    world.create(1, n="0")
    world.leader.settle(1)

    assert world.placements() == placed


def test_a_budget_counts_pods_by_the_labels_that_they_have_now() -> None:
    """Those of other workloads that wait for it go as soon as there is room."""
    budget = Budget(labels={"tier": "batch"}, max_pods=1)
    world = World(settings=ElasticitySettings(max_super_pods=MaxSuperPods(budgets=(budget,))))
    names = [name for key in ("a", "b", "c") for name in world.create(1, key, n="0")]
    for name in names:
        world.cluster.edit(name, {"metadata": {"labels": {"tier": "batch"}}})
    world.leader.settle(2)
    first, *others = sorted(names, key=lambda name: PLACEMENT not in world.annotations(name))
    world.leader.look()
    assert not any(PLACEMENT in world.annotations(name) for name in others)

    world.cluster.edit(first, {"metadata": {"labels": {"tier": "web"}}})
    world.leader.look()
    second, third = sorted(others, key=lambda name: PLACEMENT not in world.annotations(name))
    assert world.annotations(second)[PLACEMENT] == "super"
    assert PLACEMENT not in world.annotations(third)
    world.cluster.edit(second, {"status": {"phase": "Succeeded"}})
    world.leader.look()
    assert world.annotations(third)[PLACEMENT] == "super"


def test_room_that_a_refused_write_gives_back_is_taken_at_once() -> None:
    world = World(settings=cap_of(1))
    first, second = *world.create(1, n="0"), *world.create(1, "other", n="0")
    world.leader.decide()
    world.leader.let_go(world.leader.queue.index(f"uid-{first}"), "forbidden")
    world.leader.look()

    assert world.annotations(second)[PLACEMENT] == "super"


def test_a_reason_that_is_on_its_way_holds_no_place_and_is_no_obstacle() -> None:
    world = World(settings=ElasticitySettings(enabled=True, max_super_pods=BUDGETS))
    first, second = world.create(2, n="0")
    world.leader.decide()
    queue = world.leader.queue
    assert set(queue) == {f"uid-{first}", f"uid-{second}"}
    world.leader.let_go(queue.index(f"uid-{first}"))
    world.cluster.remove(first)
    world.leader.decide()
    world.leader.let_go()

    assert world.annotations(second)[PLACEMENT] == "super"


@pytest.mark.parametrize("fault", ["forbidden", "lost", "stuck"])
def test_a_reason_that_cannot_be_written_stops_nothing(fault: str) -> None:
    world = World(settings=ElasticitySettings(enabled=True, max_super_pods=BUDGETS))
    first, second = world.create(2, n="0")
    world.leader.decide()
    world.leader.let_go(world.leader.queue.index(f"uid-{second}"), fault)
    world.leader.settle()
    assert FULL in world.annotations(second)[REASON]
    assert "FailedPlacement" not in world.leader.recorder.reasons

    world.cluster.remove(first)
    world.leader.settle()
    assert world.annotations(second)[PLACEMENT] == "super"


QUEUED = {"schedulingGates": [{"name": GATE}, {"name": "kueue.x-k8s.io/admission"}]}


def test_a_pod_that_others_hold_takes_no_place_and_is_placed_by_what_they_make_of_it() -> None:
    world = World(settings=cap_of(1))
    (queued,) = world.create(1, "queue", n="0", gated=False, spec=QUEUED)
    world.create(1, n="0")
    world.leader.settle()

    assert (world.placements("queue"), world.placements()) == ({"": 1}, {"super": 1})
    assert PODS_BY_STATE.labels("gated")._value.get() == 0
    assert world.leader.recorder.events == []

    world.cluster.edit(queued, {"spec": {"schedulingGates": [{"name": GATE}], "nodeSelector": {"pool": "a"}}})
    world.leader.look()

    assert world.placements("queue") == {"local": 1}
    assert "no super node has pool=a" in world.annotations(queued)[REASON]


def test_what_tolerates_super_nodes_and_asks_for_other_nodes_takes_no_place() -> None:
    """It could wait for these nodes indefinitely."""
    world = World(settings=cap_of(1))
    spec = {"tolerations": [{"operator": "Exists"}], "nodeSelector": {"pool": "ci"}}
    (runner,) = world.create(1, "runner", n=None, spec=spec)
    world.leader.settle()
    world.no_room(runner)
    world.create(1, n="0")
    world.leader.settle()

    assert (world.placements("runner"), world.placements()) == ({"local": 1}, {"super": 1})
    assert "no super node has pool=ci" in world.annotations(runner)[REASON]


def test_a_pod_that_was_kept_off_by_a_full_cap_does_not_wait_for_it() -> None:
    world = World(settings=cap_of(1))
    world.create(1, n="0")
    world.leader.settle(1)
    (tolerant,) = world.create(1, "t", n=None, spec={"tolerations": [{"operator": "Exists"}]})
    world.leader.settle(1)
    world.no_room(tolerant)
    world.leader.settle(1)

    assert "maxSuperPods.total" in world.annotations(tolerant)[REASON]
    assert [PODS_BY_STATE.labels(state)._value.get() for state in ("pending", "capped")] == [1, 0]


@pytest.mark.parametrize(
    ("message", "placed"),
    [
        ('admission webhook "x" denied the request: no super nodes', "local"),
        ('User "y" cannot patch resource', ""),
    ],
)
def test_a_pod_that_policies_keep_off_super_nodes_stays_local(
    message: str, placed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the first answer was lost."""
    world = World()
    world.create(1, n="0")
    world.leader.decide()
    world.leader.let_go(0, "stuck")
    carry_out = world.cluster.carry_out

    def refuse(call: Request) -> Reply:
        is_sent = call.method == "PATCH" and "'drawbridge.io/placement': 'super'" in str(call.body)
        return refusal(403, "Forbidden", message) if is_sent else carry_out(call)

    monkeypatch.setattr(world.cluster, "carry_out", refuse)
    world.pass_by(LONGEST)
    assert world.placements() == {"": 1}, "the first may still arrive"
    world.pass_by(LONGEST)

    assert world.placements() == {placed: 1}
    assert "FailedPlacement" in world.leader.recorder.reasons


def test_a_pod_whose_toleration_others_take_back_is_allowed_on_super_nodes_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    carry_out = world.cluster.carry_out

    def mutate(call: Request) -> Reply:
        body = call.body if isinstance(call.body, dict) else {}
        body.get("spec", {}).pop("tolerations", None)
        return carry_out(call)

    monkeypatch.setattr(world.cluster, "carry_out", mutate)
    world.stuck()
    world.leader.settle()

    assert world.leader.recorder.reasons == ["SentToSuperNode", "KeptLocal"]
    assert len(world.cluster.writes) == 1


# A takeover that ends with the lease: the next leader goes on from there

DEPLOYMENTS, EACH, N = 20, 10, 3


def deployments(**parts: Any) -> World:
    world = World(**parts)
    for number in range(DEPLOYMENTS):
        world.create(EACH, key=f"web{number}", n=str(N))
    return world


def take_over_for(world: World, calls: int) -> None:
    """By a leader that loses its lease after so many."""
    made: list[None] = []

    def check() -> None:
        if len(made) >= calls:
            raise LeadershipLost("another one may lead")

    world.take_over(lambda: made.append(None), check=check)


def test_nothing_is_decided_of_a_workload_of_which_a_pod_is_not_fenced() -> None:
    world = deployments()
    take_over_for(world, EACH + EACH // 2)
    world.leader.may_lead = True
    world.leader.settle()

    assert world.placements("web0") == {"local": N, "super": EACH - N}
    assert world.placements("web1") == {"": EACH}


def test_where_their_number_is_limited_nothing_is_decided_before_all_are_fenced() -> None:
    world = deployments(settings=cap_of(5))
    take_over_for(world, 60)
    world.leader.may_lead = True
    world.leader.settle()
    assert len(world.cluster.names(lambda pod: pod.gated)) == DEPLOYMENTS * EACH

    world.take_over()
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


def test_a_pod_that_changes_all_the_time_holds_up_no_others() -> None:
    """Where the number on super nodes is limited, the pods of all namespaces wait for the last fence."""
    world = World(settings=cap_of(5))
    (name,) = world.create(1)

    def change() -> None:
        if world.clock() > 2 * LONGEST:
            raise Killed
        world.cluster.edit(name, {"metadata": {"labels": {"x": str(world.clock())}}})

    world.take_over(change)
    world.leader.settle()

    assert world.placements() == {"local": 1}


def test_no_pod_is_fenced_that_others_hold_back() -> None:
    """None was decided on, and a queue may hold thousands."""
    world = World(settings=cap_of(5))
    (name,) = world.create(
        1, spec={"schedulingGates": [{"name": GATE}, {"name": "kueue.x-k8s.io/admission"}]}
    )
    world.take_over()

    assert world.cluster.writes == []
    assert "drawbridge.io/fenced-by" not in world.annotations(name)
