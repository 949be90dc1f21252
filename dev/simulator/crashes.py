"""A short walk through each feature, in which the leader dies right after its first write, its second one, and so on.

After Sieve (OSDI '22, https://github.com/sieve-project/sieve): whatever comes next is left to one who was not there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from dev.simulator import objects
from dev.simulator.core.kernel import Kernel
from dev.simulator.fleet import Report, apart, preload
from dev.simulator.histories import (
    EDGE,
    cordon,
    delete_pods,
    edge_spec,
    force,
    give_template,
    leaves,
    need_addresses,
    rolling,
    written_as,
)
from dev.simulator.product import USER
from dev.simulator.scenario import SETTLES, Scenario
from dev.simulator.world import World
from kube.resources import DEPLOYMENTS, NODES, PODS, STATEFUL_SETS
from settings.anycast_ip import NEED_LABEL

WALKS: dict[str, Scenario] = {}
walk = written_as(WALKS)


@walk("ip_reservation", nodes=3)
def reservations(world: World) -> Iterator[float]:
    """Many pods go, by force and by their kubelet, too, and their reservations end."""
    world.patch(STATEFUL_SETS, "redis", {"spec": {"replicas": 20}})
    yield 20.0
    for number in range(18):
        delete_pods(world, f"redis-{number}")
        yield 0.3
    force(world, "redis-18")
    world.outside.disturb("redis-19")
    world.kubernetes.kubelets.evict(world.api.get(PODS, "redis-19", objects.SHOP), world.now())
    yield 10.0
    world.patch(STATEFUL_SETS, "redis", {"spec": {"replicas": 3}})
    yield 150.0


@walk(
    "anycast_ip",
    nodes=3,
    values={"anycastIP": {"releaseOnLabelRemoval": True, "pool": {"minIdle": 1}, "tags": {"team": "edge"}}},
)
def addresses(world: World) -> Iterator[float]:
    """Nodes get addresses, one leaves, one loses its label, and one joins."""
    need_addresses(world)
    yield 40.0
    leaves(world, "node-1")
    yield 20.0
    world.patch(NODES, "node-2", {"metadata": {"labels": {NEED_LABEL: None}}})
    yield 20.0
    world.kubectl_create(NODES, objects.node("node-9", 9, {NEED_LABEL: "true"}))
    yield 60.0


@walk(
    "elasticity",
    nodes=3,
    values={
        "elasticity": {
            "returnHome": {"enabled": True, "after": "30s", "interval": "10s"},
            "scaleInOrder": True,
        }
    },
)
def placement(world: World) -> Iterator[float]:
    """A Deployment grows, is updated, finds local nodes full, returns, and shrinks."""
    world.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 6}})
    yield 30.0
    cordon(world, True)
    world.kubectl_create(STATEFUL_SETS, objects.stateful_set("db", 2))
    world.patch_template(DEPLOYMENTS, "web", [{"name": "main", "image": "web:2"}])
    yield 40.0
    cordon(world, False)
    yield 90.0
    world.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 2}})
    yield 30.0


@walk("ingress_daemonset", nodes=3)
def rollouts(world: World) -> Iterator[float]:
    """A rollout has a canary and a successor, and the number of pods changes."""
    rolling(world, canary={"nodes": 1, "pause": {"durationSeconds": 5}})
    yield 20.0
    give_template(world, "proxy:2")
    yield 60.0
    world.drawbridge("rollout", "undo", EDGE)
    edge_spec(world, podsPerNode=1)
    yield 120.0


def crashes(kernel: Kernel, step: int) -> Sequence[Scenario]:
    """Each walk with a death after every *step*-th of its writes, and as it is where that already breaks a promise."""
    preload()
    found = []
    for each in WALKS.values():
        report = apart(kernel, each)
        found += [each] if report.findings else []
        found += [crashing(each, number) for number in range(step, writes_in(report) + 1, step)]
    return found


def crashing(scenario: Scenario, writes: int) -> Scenario:
    """The leader of the moment at which its script begins dies right after so many writes."""

    def script(world: World) -> Iterator[float]:
        assert scenario.script is not None
        holder = world.leader()
        for each in world.product.controllers:
            if holder.startswith(f"{each.name}_"):
                world.network.end_after(each.name, writes)
        yield from scenario.script(world)

    return replace(scenario, script=script, name=f"{scenario.name}, and the leader dies after write {writes}")


def writes_in(report: Report) -> int:
    """By the leader, to the API server or the cloud, from the beginning of the script to the rest."""
    made = 0
    for entry in report.history:
        if entry.who == "world":
            return made
        made += entry.at >= SETTLES and entry.who.startswith(USER)
    return made
