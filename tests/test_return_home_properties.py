"""Whatever leaders, schedulers and users do: no workload misses a second pod, and none goes to and fro."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from random import Random
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from controllers.elasticity.pod_spec import PodSpec
from controllers.elasticity.return_home.failures import MOST
from controllers.elasticity.return_home.occupants import Occupant
from controllers.elasticity.return_home.room import free
from controllers.elasticity.return_home.workloads import REPLICA_SETS
from dev.simulator.models.node_fit import requests_of
from tests.elasticity_world import AWAY, HOME, Killed, node
from tests.return_home_world import AFTER, INTERVAL, LOOK, Homes, fleet

NAMES = ("a-1", "b-1")
ROOMY = fleet(allocatable={"cpu": "40", "pods": "40"})


class Chaos:
    """What may happen, in an order that the dice say; each eviction is checked against the state before it."""

    def __init__(self, dice: Random) -> None:
        self.dice, self.homes = dice, Homes(nodes=ROOMY)
        self.leaders = 0
        self.times: list[tuple[float, int]] = []
        self.came_back: dict[str, float] = {}
        """By workload: when its last replacement came to a super node."""
        for name in NAMES:
            self.homes.workload(name, HOME, AWAY, AWAY)

    def run(self, steps: int) -> None:
        ways: dict[Callable[[], None], int] = {
            self.wait: 6,
            self.look: 8,
            self.control: 6,
            self.hear: 3,
            self.be_short_of_room: 1,
            self.be_unready: 1,
            self.be_ready: 3,
            self.scale: 1,
            self.die: 1,
            self.place: 2,
        }
        for way in self.dice.choices(list(ways), list(ways.values()), k=steps):
            way()

    def wait(self) -> None:
        self.homes.clock.advance(self.dice.choice((20.0, 60.0, AFTER)))

    def hear(self) -> None:
        self.homes.leader.hear()

    def control(self) -> None:
        before = {name: set(self.homes.of(name)) for name in NAMES}
        self.homes.control()
        for name in NAMES:
            new = {pod: place for pod, place in self.homes.of(name).items() if pod not in before[name]}
            if AWAY in new.values():
                self.came_back[name] = self.homes.clock()

    def place(self) -> None:
        where = self.dice.choice((HOME, AWAY, AWAY))
        self.homes.placing = lambda _: where

    def be_short_of_room(self) -> None:
        self.homes.nodes = self.dice.choice((ROOMY, ROOMY, fleet(allocatable={"cpu": "1", "pods": "9"})))

    def be_unready(self) -> None:
        self.homes.starts = lambda _: False

    def be_ready(self) -> None:
        self.homes.starts = lambda _: True
        for name in self.homes.alive():
            self.homes.get_ready(name)

    def scale(self) -> None:
        change = {"spec": {"replicas": self.dice.choice((3, 4))}, "status": {"observedGeneration": 9}}
        self.homes.cluster.api.edit(REPLICA_SETS, self.dice.choice(NAMES), change, "shop")

    def die(self) -> None:
        self.homes.leader.client.fault = self.dice.choice(("killed before", "killed after", "lost"))
        with contextlib.suppress(Killed):
            self.reconcile()
        self.homes.take_over()
        self.leaders += 1

    def look(self) -> None:
        self.hear()
        self.reconcile()

    def reconcile(self) -> None:
        ready = {name: self._ready(name) for name in NAMES}
        count = len(self.homes.evicted)
        try:
            self.homes.reconcile()
        finally:
            for at, pod in self.homes.evicted[count:]:
                self._check(at, pod.rpartition("-")[0], ready)

    def _ready(self, name: str) -> tuple[int, int]:
        """How many are ready, and how many there should be."""
        wanted = self.homes.cluster.api.get(REPLICA_SETS, name, "shop")["spec"]["replicas"]
        pods = [raw for pod, raw in self.homes.cluster.pods.items() if pod in self.homes.of(name)]
        conditions = [raw["status"].get("conditions") or [{}] for raw in pods]
        return sum(each[0].get("status") == "True" for each in conditions), wanted

    def _check(self, at: float, name: str, ready: dict[str, tuple[int, int]]) -> None:
        assert len(set(ready[name])) == 1, "all replicas were ready"
        assert at - self.came_back.get(name, -AFTER) >= AFTER, "not to and fro"
        if self.times and self.times[-1][1] == self.leaders:
            assert at - self.times[-1][0] >= INTERVAL, "not faster than configured"
        self.times.append((at, self.leaders))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_no_workload_misses_a_second_pod_and_none_goes_to_and_fro(seed: int) -> None:
    Chaos(Random(seed)).run(60)  # noqa: S311 - dice, no secret


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_a_workload_that_local_nodes_never_take_is_evicted_a_few_times_whatever_becomes_of_leaders(
    seed: int,
) -> None:
    dice = Random(seed)  # noqa: S311 - dice, no secret
    homes = Homes(nodes=ROOMY)
    homes.placing = lambda _: AWAY
    homes.workload("a-1", HOME, AWAY, AWAY)
    while homes.clock() < 2 * AFTER * 2**MOST:
        homes.look()
        homes.clock.advance(dice.choice((LOOK, AFTER)))
        if dice.random() < 0.3:
            homes.leader.client.fault = dice.choice(("killed before", "lost", ""))
            with contextlib.suppress(Killed):
                homes.look()
            homes.control()
            homes.take_over()

    times = [at for at, _ in homes.evicted]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert len(times) <= MOST
    assert all(pause >= AFTER * 2.0**number for number, pause in enumerate(pauses, 1))
    assert homes.of("a-1").keys() >= {"a-1-1"}, "a local pod is none to return"


AMOUNTS = st.dictionaries(st.sampled_from(("cpu", "memory")), st.integers(0, 50).map(Decimal))


@given(st.lists(st.tuples(st.sampled_from(("n-1", "n-2", "gone")), AMOUNTS), max_size=20))
def test_what_is_free_and_what_is_taken_make_up_all_of_a_node(
    taken: list[tuple[str, dict[str, Decimal]]],
) -> None:
    occupants = [Occupant(node_name=name, requests=requests) for name, requests in taken]
    nodes = [node(name, allocatable={"cpu": "100", "memory": "100", "pods": "9"}) for name in ("n-1", "n-2")]

    found = free(nodes, occupants)

    for name in ("n-1", "n-2"):
        there = [requests for at, requests in taken if at == name]
        assert found[name]["pods"] == 9 - len(there)
        for resource in ("cpu", "memory"):
            assert found[name][resource] == 100 - sum(each.get(resource, Decimal()) for each in there)


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
