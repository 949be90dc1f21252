"""Directed histories: what once went wrong, in the world in which seeds play, under a sentence as its name.

A history acts between waits; all else is as in a scenario: the judge asks every invariant at every instant, then comes
the rest, then a fresh start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from dev.simulator import objects
from dev.simulator.models.calico import RESERVATIONS
from dev.simulator.scenario import Scenario, values_of
from dev.simulator.world import World
from kube.resources import CONFIG_MAPS, NODES, PODS, STATEFUL_SETS
from settings.anycast_ip import NEED_LABEL
from webhook.ingress_daemonset import INGRESS_DAEMONSETS

Raw = dict[str, Any]
Script = Callable[[World], Iterator[float]]
"""Acts, and yields the seconds until it acts again."""
RELEASING = '"releasing":true'
"""In an address claim."""
EDGE = "edge"
DETACH_KEY = "node-detacher.variant.run/detached"
PAST_DEADLINE = "edge: no node stays detached past progressDeadlineSeconds for a template that is refused"
LEFT_DETACHED = "edge: no node stays detached when the feature is off"
ENDS_ANYWAY = "ip: each reservation ends, compaction or not"
IP_RESERVATIONS = RESERVATIONS[0]
BREATH = 30.0
"""Seconds from the last act of a history until the world is left alone."""
REST = 600.0

HISTORIES: dict[str, Scenario] = {}


def history(
    *features: str, nodes: int = 4, lasts: float = 300.0, values: Raw | None = None
) -> Callable[[Script], Script]:
    """*lasts* is for how many seconds the script acts at most."""

    def keep(script: Script) -> Script:
        assert script.__doc__ is not None
        name = script.__doc__.strip().removesuffix(".")
        HISTORIES[name] = Scenario(
            0,
            features,
            values_of(features, values or {}),
            nodes,
            [0.0] * 4,
            (),
            lasts + BREATH,
            REST,
            script,
            name,
        )
        return script

    return keep


def need_addresses(world: World) -> None:
    for node in world.api.list(NODES):
        world.patch(NODES, node["metadata"]["name"], {"metadata": {"labels": {NEED_LABEL: "true"}}})


def register_again(world: World, name: str) -> None:
    """The machine of a Node comes under a second name, too."""
    number = int(name.rpartition("-")[2])
    again = objects.node(f"{name}-again", number, {NEED_LABEL: "true"}, instance=f"ins-{number:08d}")
    world.kubectl_create(NODES, again)


def leaves(world: World, name: str) -> None:
    world.kubectl_delete(NODES, world.api.get(NODES, name))


@history("anycast_ip", nodes=2)
def second_node(world: World) -> Iterator[float]:
    """A machine that is registered under a second name keeps its address when the second Node leaves."""
    need_addresses(world)
    yield 60.0
    register_again(world, "node-1")
    yield 60.0
    leaves(world, "node-1-again")


@history("anycast_ip", nodes=2)
def first_node_leaves(world: World) -> Iterator[float]:
    """A machine that is registered under a second name keeps its address when the first Node leaves."""
    need_addresses(world)
    yield 60.0
    register_again(world, "node-1")
    yield 60.0
    leaves(world, "node-1")


@history("anycast_ip", nodes=3)
def wrong_keys(world: World) -> Iterator[float]:
    """Keys of another account for a minute while a node leaves do not leak its address."""
    need_addresses(world)
    yield 60.0
    world.cloud.use_keys_of_the_other_account(world.kernel.now + 60.0)
    leaves(world, "node-2")
    yield 90.0


@history("anycast_ip", nodes=3)
def wrong_keys_while_releasing(world: World) -> Iterator[float]:
    """Keys of another account for a minute while a release is under way do not leak its address."""
    need_addresses(world)
    yield 60.0
    leaves(world, "node-2")
    while not any(RELEASING in str(each.get("data")) for each in world.api.peek(CONFIG_MAPS)):
        yield 0.005
    world.cloud.use_keys_of_the_other_account(world.kernel.now + 60.0)
    yield 90.0


@history("anycast_ip", nodes=2, values={"anycastIP": {"releaseOnLabelRemoval": True}})
def second_node_unlabelled(world: World) -> Iterator[float]:
    """A machine that is registered under a second name keeps its address when the second Node loses its label."""
    need_addresses(world)
    yield 60.0
    register_again(world, "node-1")
    yield 60.0
    world.patch(NODES, "node-1-again", {"metadata": {"labels": {NEED_LABEL: None}}})
    yield 60.0


@history("anycast_ip", nodes=2)
def second_node_corrected(world: World) -> Iterator[float]:
    """A machine that is registered under a second name keeps its address when the second Node names another one."""
    need_addresses(world)
    yield 60.0
    register_again(world, "node-1")
    yield 60.0
    other = {objects.INSTANCE_LABEL: "ins-00000099"}
    world.patch(NODES, "node-1-again", {"metadata": {"labels": other}})
    yield 60.0


# The edge.


def give_template(world: World, image: str) -> None:
    world.patch_template(INGRESS_DAEMONSETS, EDGE, [{"name": "main", "image": image}])


def edge_spec(world: World, **changes: Any) -> None:
    world.patch(INGRESS_DAEMONSETS, EDGE, {"spec": changes})


def rolling(world: World, **changes: Any) -> None:
    edge_spec(world, updateStrategy={"rollingUpdate": changes})


@history("ingress_daemonset", nodes=6, lasts=600.0)
def crash_after_availability(world: World) -> Iterator[float]:
    """Pods that become available and crash 15 s later take no more nodes off than the budget allows."""
    yield 120.0
    give_template(world, "crashing:2")
    yield 400.0


@history("ingress_daemonset", nodes=6, lasts=600.0)
def crash_with_rollback(world: World) -> Iterator[float]:
    """With autoRollback, pods that crash after they were available are rolled back, and all nodes serve again."""
    rolling(world, autoRollback=True)
    yield 120.0
    give_template(world, "crashing:2")
    yield 400.0


@history("ingress_daemonset", nodes=4, lasts=500.0)
def more_pods_per_node(world: World) -> Iterator[float]:
    """Raising podsPerNode takes no more nodes off than the budget allows."""
    yield 150.0
    edge_spec(world, podsPerNode=3)
    yield 200.0


@history("ingress_daemonset", nodes=4, lasts=500.0)
def fewer_pods_per_node(world: World) -> Iterator[float]:
    """Lowering podsPerNode stops no pod on a node that the load balancer uses."""
    yield 150.0
    edge_spec(world, podsPerNode=1)
    yield 200.0


@history("ingress_daemonset", nodes=5, lasts=500.0)
def label_off_and_on(world: World) -> Iterator[float]:
    """A node whose label goes and comes back at once does not free its place in the budget."""
    rolling(world, maxUnavailableNodes=2)
    yield 150.0
    give_template(world, "proxy:2")
    for _ in range(3):
        yield 6.0
        off = [
            each
            for each in world.api.list(NODES)
            if DETACH_KEY in (each["metadata"].get("annotations") or {})
        ]
        for value in (None, "true"):
            for each in off:
                world.patch(
                    NODES, each["metadata"]["name"], {"metadata": {"labels": {objects.INGRESS_LABEL: value}}}
                )
            yield 0.1
    yield 200.0


@history("ingress_daemonset", nodes=4, lasts=900.0)
def refused_template(world: World) -> Iterator[float]:
    """A template that the API server refuses does not keep its node detached past progressDeadlineSeconds."""
    edge_spec(world, progressDeadlineSeconds=60)
    yield 150.0
    world.refuse_image("proxy:2", world.kernel.now + 500.0)
    give_template(world, "proxy:2")
    yield 200.0
    for node in world.api.list(NODES):
        if DETACH_KEY in (node["metadata"].get("annotations") or {}):
            message = f"{node['metadata']['name']} is still detached"
            world.outside.judge.find(PAST_DEADLINE, world.kernel.now, message)
    yield 1.0


@history("ingress_daemonset", nodes=4, lasts=700.0)
def switched_off(world: World) -> Iterator[float]:
    """Switching the feature off in mid-rollout leaves no node detached."""
    yield 150.0
    give_template(world, "proxy:2")
    yield 8.0
    values = world.values
    switch(world, values | {"ingressDaemonSet": {"enabled": False}})
    yield 120.0
    for node in world.api.list(NODES):
        if DETACH_KEY in (node["metadata"].get("annotations") or {}):
            world.outside.judge.find(LEFT_DETACHED, world.kernel.now, node["metadata"]["name"])
    switch(world, values)
    yield 120.0


def switch(world: World, values: Raw) -> None:
    """As `helm upgrade`: the release, then its pods."""
    world.install(values)
    for replica in world.product.controllers:
        world.product.replace(replica)
    for replica in world.product.servers:
        world.product.restart_server(replica)


# Reservations.


def delete_pods(world: World, *names: str) -> None:
    for name in names:
        if pod := world.api.find(PODS, name, objects.SHOP):
            world.note("kubectl", world.kubectl_delete(PODS, pod))


@history("ip_reservation", nodes=3, values={"fullnameOverride": "ipkeeper"})
def other_name(world: World) -> Iterator[float]:
    """An installation under another name reserves addresses, and lets pods be deleted."""
    yield 10.0
    delete_pods(world, "redis-0", "redis-1")
    yield 30.0


@history("ip_reservation", nodes=3, lasts=600.0)
def compaction_refused(world: World) -> Iterator[float]:
    """While compaction is refused, reservations still end."""
    world.patch(STATEFUL_SETS, "redis", {"spec": {"replicas": 20}})
    yield 30.0
    world.refuse(IP_RESERVATIONS, "drawbridge-controllers", world.kernel.now + 500.0, "POST")
    for number in range(20):
        delete_pods(world, f"redis-{number}")
        yield 0.15
    yield 250.0
    if reserved := world.calico.reserved():
        message = f"{len(reserved)} addresses are reserved 250 s after the last deletion"
        world.outside.judge.find(ENDS_ANYWAY, world.kernel.now, message)
    yield 1.0


@history("ip_reservation", nodes=3)
def slow_clock_of_a_node(world: World) -> Iterator[float]:
    """A pod that its kubelet evicts keeps its reservation although the clock of its node is slow."""
    yield 10.0
    world.outside.disturb("redis-0")
    pod = world.api.get(PODS, "redis-0", objects.SHOP)
    world.kubernetes.kubelets.evict(pod, world.now() - timedelta(minutes=3))
    yield 60.0


@history("ip_reservation", nodes=3, lasts=1200.0)
def reads_hang(world: World) -> Iterator[float]:
    """Reads that hang neither end the leader nor keep reservations for ever."""
    yield 10.0
    delete_pods(world, "redis-0", "redis-1", "redis-2")
    yield 5.0
    world.network.hang("GET", "/pods/", world.kernel.now + 900.0)
    yield 950.0
    for replica in world.product.controllers:
        for at, why in replica.ended:
            world.outside.judge.find(
                "leadership: each pass ends within a bound", at, f"{replica.name}: {why}"
            )
    yield 1.0
