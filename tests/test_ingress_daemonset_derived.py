"""What is derived from a template is paced as the template is; what becomes of one that fails late, or is refused."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from api.ingress_daemonset import UPDATE_NOW
from tests.ingress_daemonset_rolling import Rolling

Raw = dict[str, Any]
NODES = ("n1", "n2", "n3", "n4")
CANARY = {"canary": {"nodes": 1, "pause": {"durationSeconds": 30}}}
WAVES = {"waves": {"byLabel": "zone", "pause": {"durationSeconds": 0}}}
CLOSED = {"window": {"days": ["Sat"], "start": "10:00", "durationSeconds": 3600}}
"""The tests begin on a Friday."""


class Edge(Rolling):
    """One node at a time; n1 and n3 are of zone b, the others of a."""

    def __init__(self, rolling: Raw | None = None, **spec: Any) -> None:
        super().__init__(*NODES, pods=5, rolling={"maxUnavailableNodes": 1} | (rolling or {}), **spec)
        for number, each in enumerate(self.world.nodes.values()):
            each["metadata"]["labels"] = {"zone": "ba"[number % 2]}

    def turn(self) -> None:
        super().turn()
        assert len(self.world.off()) <= 1

    def crowded(self) -> set[str]:
        """The nodes whose template lists no ports."""
        held = {name: self.world.deployments[f"web-{name}"]["spec"]["template"] for name in NODES}
        return {name for name, each in held.items() if "ports" not in each["spec"]["containers"][0]}

    def replicas(self) -> set[int]:
        return {each["spec"]["replicas"] for each in self.world.deployments.values()}


@pytest.mark.parametrize(
    ("pacing", "first", "reason"),
    [
        (CLOSED, [], "WaitingForWindow"),
        (CANARY, [{"n1"}], "CanaryPaused"),
        (WAVES, [{"n2"}, {"n4"}, {"n1"}, {"n3"}], "Complete"),
    ],
)
def test_a_template_that_is_derived_from_an_unchanged_one_is_paced_like_any_other(
    pacing: Raw, first: list[set[str]], reason: str
) -> None:
    ports = {"name": "proxy", "image": "proxy:1", "ports": [{"containerPort": 80}]}
    here = Edge(pacing, pod={"hostNetwork": True, "containers": [ports]}, podsPerNode=1)
    here.world.raw["spec"]["podsPerNode"] = 2
    steps = [here.crowded()]
    here.turn()
    while len(steps) <= len(first) and len(here.statuses) < 300:
        here.turn()
        if here.crowded() != steps[-1]:
            steps.append(here.crowded())
    here.play(lambda: here.reason == reason)

    assert [after - before for before, after in pairwise(steps)] == first


def test_another_number_of_pods_waits_for_the_window_and_for_no_canary() -> None:
    here = Edge(CLOSED | CANARY)
    here.world.raw["spec"]["podsPerNode"] = 3
    for _ in range(30):
        here.turn()
    assert (here.reason, here.replicas(), here.world.off()) == ("WaitingForWindow", {2}, set())

    here.annotate(**{UPDATE_NOW: here.rollout["digest"]})
    here.play(lambda: here.reason == "Complete")
    assert here.replicas() == {3}


@pytest.mark.parametrize(("replicas", "in_turn"), [(1, True), (0, False)])
def test_a_number_of_pods_that_another_writer_changed_is_restored_where_nothing_serves_or_in_turn(
    replicas: int, in_turn: bool
) -> None:
    here = Edge()
    for name in NODES:
        change = {"spec": {"replicas": replicas}, "status": {"availableReplicas": replicas}}
        here.world.edit(f"web-{name}", change)
    here.turn()
    here.turn()
    assert (here.replicas() != {2}) == in_turn

    here.play(lambda: here.replicas() == {2})


@pytest.mark.parametrize(("wanted", "at_once"), [(2, True), (1, False)])
def test_a_node_that_has_lost_a_pod_gets_fewer_at_once_unless_one_that_is_available_goes(
    wanted: int, at_once: bool
) -> None:
    here = Edge({"maxUnavailableNodes": 1}, podsPerNode=3)
    for name in NODES:
        here.world.edit(f"web-{name}", {"status": {"availableReplicas": 2}})
    here.world.raw["spec"]["podsPerNode"] = wanted
    here.world.turn()
    assert here.replicas() == ({wanted} if at_once else {3})

    here.play(lambda: here.replicas() == {wanted})


def test_a_template_that_the_api_server_refuses_says_so_until_it_is_given_up() -> None:
    here = Edge({"autoRollback": True}, progressDeadlineSeconds=60)
    here.world.refused = "proxy:2"
    here.world.retemplate("proxy:2")
    here.play(lambda: here.reason == "WaitingForNodes")
    assert "n1: the API server refuses to change Deployment web-n1" in here.message
    assert "estimatedEnd" not in here.rollout

    here.play(lambda: here.reason == "RolledBack")
    assert "no such image here (403 Forbidden), for progressDeadlineSeconds" in here.message
    here.play(lambda: here.world.off() == set())
