"""One installation with all four features: its values, what works there, and what may be half done in it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from api.anycast_ip import is_tainted
from dev.lab.session import Lab
from kube.resources import PODS
from tests.cluster import workloads
from tests.cluster.anycast import Fleet
from tests.cluster.elasticity import SUBNET, Shop, keeping, template
from tests.cluster.ingress_daemonset import (
    INGRESS_DAEMONSETS,
    awaiting,
    by_node,
    detaching,
)
from tests.cluster.ingress_daemonset_edge import Edge, confirming

VALUES: dict[str, Any] = {
    "replicaCount": 2,
    "controllers": {"replicaCount": 2, "leaseDuration": "10s"},
    "certs": {"mode": "self-managed", "existingSecret": "", "caBundle": ""},
    "ipReservation": workloads.RESERVATION,
    "elasticity": {"enabled": True, "maxSuperPods": {"perNamespace": 2}},
    "ingressDaemonSet": {"enabled": True, "detachmentReminder": "2s"},
    "cloud": {"subnets": [SUBNET]},
    "webhook": {"preStopSleep": "1s", "drainPeriod": "2s"},
}
"""Over those of a lab with a cloud, which switch anycast IP on; IP reservation is on by default."""


def an_address_is_reserved_before_its_pod_goes(lab: Lab) -> None:
    namespace = workloads.reserved_namespace(lab.client, Fleet(lab).name_of("redis"))
    pod = workloads.running_pod(lab, namespace, "redis")
    lab.client.delete(PODS, "redis", namespace)
    held = workloads.records(lab, "v3")[pod.metadata.uid]
    assert held.late is False


def a_node_opens_with_its_address_and_gives_it_back(lab: Lab) -> None:
    fleet = Fleet(lab)
    assert is_tainted(fleet.join("a"))
    fleet.await_open("a")
    fleet.leave_all()
    fleet.assert_nothing_is_left_behind()


def replicas_beyond_the_local_ones_go_to_a_super_node(lab: Lab) -> None:
    shop = Shop(lab)
    shop.deploy("web", 3, template(keeping(1)))
    shop.settle("web", 3)
    assert (len(shop.home("web")), len(shop.away("web"))) == (1, 2)


def nodes_are_taken_off_the_load_balancer_one_by_one(lab: Lab) -> None:
    edge = Edge(lab, "a", "b")
    edge.create(rolling=detaching(1, **by_node(1)), healthCheckNodePorts=[10080])
    edge.settle("a", "b")
    with confirming(edge):
        edge.retemplate("proxy:2")
        edge.settle("a", "b", image="proxy:2")
    edge.client.delete(INGRESS_DAEMONSETS, "web", edge.namespace)
    edge.wait(edge.is_gone, "the IngressDaemonSet to be gone")


PROMISES: tuple[Callable[[Lab], None], ...] = (
    an_address_is_reserved_before_its_pod_goes,
    a_node_opens_with_its_address_and_gives_it_back,
    replicas_beyond_the_local_ones_go_to_a_super_node,
    nodes_are_taken_off_the_load_balancer_one_by_one,
)


def play_all(lab: Lab) -> None:
    """One promise of each feature, all at once: most of their time they wait."""
    with ThreadPoolExecutor(len(PROMISES)) as pool:
        for played in [pool.submit(promise, lab) for promise in PROMISES]:
            played.result()


@dataclass(frozen=True)
class World:
    """Work that is done, and work that is half done when Drawbridge is uninstalled."""

    fleet: Fleet
    shop: Shop
    edge: Edge
    redis: str
    """A namespace whose pods have their addresses reserved: one of that name runs there, and another is gone."""


def populated(lab: Lab) -> World:
    world = World(
        Fleet(lab),
        Shop(lab),
        Edge(lab, "a", "b"),
        workloads.reserved_namespace(lab.client, "redis"),
    )
    with ThreadPoolExecutor(4) as pool:
        for each in [pool.submit(part, lab, world) for part in (_reserve, _join, _place, _roll_out)]:
            each.result()
    return world


def _reserve(lab: Lab, world: World) -> None:
    for name in ("redis", "gone"):
        workloads.running_pod(lab, world.redis, name)
    lab.client.delete(PODS, "gone", world.redis)


def _join(_lab: Lab, world: World) -> None:
    """Two of the nodes wait forever: they do not say where they run."""
    for name in ("waiting", "given-up"):
        world.fleet.join(name, instance="")
    world.fleet.join("open")
    world.fleet.await_open("open")


def _place(_lab: Lab, world: World) -> None:
    """Two of the pods wait at the gate: no more than two may leave."""
    shop = world.shop
    shop.deploy("web", 3, template(keeping(1)))
    shop.settle("web", 3)
    for name in ("waiting", "given-up"):
        shop.run(name, template(keeping(0)))
        shop.await_event(name, "SuperNodeCapReached")


def _roll_out(_lab: Lab, world: World) -> None:
    """A rollout of two has come to its first node, whose detachment is never confirmed."""
    edge = world.edge
    edge.create("still", rolling=detaching(1), healthCheckNodePorts=[10080])
    edge.create(rolling=detaching(1, **by_node(0), **awaiting(0)))
    edge.settle("a", "b", name="still")
    edge.settle("a", "b")
    edge.retemplate("proxy:2")
    edge.wait(lambda: edge.detached() == {"a"}, "the first node to be detached")
