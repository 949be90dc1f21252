"""A full cap holds up no rollout: it is never exceeded, also by pods that terminate, and each rollout ends."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from controllers.elasticity.rollouts import PATIENCE
from settings import ElasticitySettings
from settings.elasticity import MaxSuperPods
from tests.elasticity_world import AWAY, HOME, World
from tests.factories import NOW
from webhook.elasticity import LOCAL_REPLICAS, PLACEMENT, REASON

READY = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
GRACE = 30.0
ONLY_SUPER = {"nodeSelector": {"node.kubernetes.io/instance-type": "eklet"}}


class Deployment:
    """Its controller, its scheduler and its kubelets; *local* is whether local nodes have room.

    `missing` are the most pods that may be missing, `surge` those that may be too many.
    """

    def __init__(self, cap: int, replicas: int = 3, *, surge: int = 1, missing: int = 0, n: int = 0) -> None:
        limits = MaxSuperPods(total=cap)
        self.world = World(settings=ElasticitySettings(enabled=True, max_super_pods=limits))
        self.cap, self.replicas, self.surge, self.missing, self.n = cap, replicas, surge, missing, n
        self.revision, self.local, self.parts = 1, True, dict[str, Any]()
        self.most_beyond = 0
        self._ends: dict[str, float] = {}

    def pods(self, revision: int | None = None, *, ready: bool = False) -> list[str]:
        wanted = f"web-{revision}-" if revision else "web-"
        return self.world.cluster.names(
            lambda pod: pod.active and pod.metadata.name.startswith(wanted) and (pod.ready or not ready)
        )

    def roll_out(self) -> None:
        self.revision += 1

    @property
    def is_done(self) -> bool:
        return self.pods() == self.pods(self.revision) and len(self.pods(ready=True)) == self.replicas

    def run(self, seconds: float) -> bool:
        """Whether the rollout has ended by then."""
        end = self.world.clock() + seconds
        while self.world.clock() < end and not self.is_done:
            self.step()
        return self.is_done

    def step(self) -> None:
        self._control()
        self.world.leader.settle(1)
        self._schedule()
        self._finish()
        assert self.world.cluster.sent() <= self.cap
        self.most_beyond = max(self.most_beyond, *(self._local(each) - self.n for each in (1, self.revision)))

    def _control(self) -> None:
        new, every = self.pods(self.revision), self.pods()
        room = min(self.replicas + self.surge - len(every), self.replicas - len(new))
        if room > 0:
            key, revision = f"web-{self.revision}", str(self.revision)
            self.world.create(room, key, n=str(self.n), revision=revision, **self.parts)
        spare = len(self.pods(ready=True)) - (self.replicas - self.missing)
        for name in [name for name in sorted(every, key=self._cost) if name not in new][: max(0, spare)]:
            self._ends[name] = self.world.clock() + GRACE
            ends = (NOW + timedelta(seconds=self._ends[name])).isoformat()
            self.world.cluster.edit(name, {"metadata": {"deletionTimestamp": ends}})

    def _cost(self, name: str) -> bool:
        """Pods on super nodes go first."""
        return self.world.cluster.pod(name).node_name != AWAY

    def _schedule(self) -> None:
        for name in self.world.cluster.names(lambda pod: pod.active and bool(pod.unbound) and not pod.gated):
            pod = self.world.cluster.pod(name)
            if pod.placed == "super" or self.local:
                self.world.bind(name, AWAY if pod.placed == "super" else HOME)
                self.world.cluster.edit(name, READY)
            elif pod.stuck_since is None:
                self.world.no_room(name)

    def _finish(self) -> None:
        for name in [each for each, at in self._ends.items() if at <= self.world.clock()]:
            self.world.cluster.remove(name)
            del self._ends[name]

    def _local(self, revision: int) -> int:
        return self.world.cluster.local(f"owner-web-{revision}/{revision}")


@pytest.mark.parametrize("n", [0, 1, 2])
@pytest.mark.parametrize("cap", [1, 2, 3, 4])
def test_a_rollout_that_may_miss_no_pod_ends_whatever_the_cap(n: int, cap: int) -> None:
    web = Deployment(cap, n=n)
    web.replicas = min(3, n + cap)
    assert web.run(300)
    for _ in range(2):
        web.roll_out()

        assert web.run(600)
        assert web.most_beyond <= 1, "one more local pod is enough"


def test_a_rollout_ends_where_others_take_each_place_that_it_gives_up() -> None:
    web = Deployment(3)
    assert web.run(300)
    web.world.create(9, "others", n="0")
    web.roll_out()

    assert web.run(900)
    assert "so would its rollout: stays local" in web.world.annotations(web.pods()[-1])[REASON]


def test_a_rollout_that_moves_keeps_to_its_number_of_local_pods() -> None:
    """It may miss a pod, so a place becomes free each time that one is gone."""
    web = Deployment(4, 4, missing=1)
    assert web.run(300)
    web.roll_out()

    assert web.run(900)
    assert web.most_beyond == 0


def test_without_local_room_and_within_the_cap_the_pod_says_so_and_waits_for_either() -> None:
    web = Deployment(3)
    assert web.run(300)
    web.local = False
    web.roll_out()

    assert not web.run(PATIENCE * 5)
    (waiting,) = web.pods(2)
    assert web.world.annotations(waiting)[PLACEMENT] == "local"
    assert "No local node has room, and maxSuperPods.total is 3" in web.world.annotations(waiting)[REASON]

    web.local = True
    assert web.run(600)


def test_a_pod_that_can_run_on_super_nodes_alone_says_that_the_rollout_waits_for_the_cap() -> None:
    web = Deployment(3)
    web.parts = {"spec": ONLY_SUPER}
    assert web.run(300)
    web.roll_out()

    assert not web.run(PATIENCE * 5)
    (waiting,) = web.pods(2)
    assert (
        "waits, maxSuperPods.total is 3, and as many pods are on super nodes; so does its rollout"
        in web.world.annotations(waiting)[REASON]
    )


def test_a_pod_that_was_only_added_waits_for_the_cap() -> None:
    """There is no rollout."""
    web = Deployment(3)
    assert web.run(300)
    web.replicas = 4

    assert not web.run(PATIENCE * 5)
    assert web.most_beyond == 0


def test_a_pod_that_never_ends_holds_up_no_rollout() -> None:
    """Its node is dead, so it holds its place under the cap for long."""
    web = Deployment(3)
    assert web.run(300)
    web.world.create(1, "dead", n="0")
    web.roll_out()
    (old, *_) = web.pods(1)
    late = (NOW + timedelta(seconds=web.world.clock())).isoformat()
    web.world.cluster.edit(old, {"metadata": {"deletionTimestamp": late}})

    assert web.run(1200)
    assert LOCAL_REPLICAS in web.world.annotations(web.pods()[0])
