"""What an IngressDaemonSet costs a thousand nodes: when it comes, at rest, and updated, against plain Deployments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from api.health_checks import deployment_name
from api.ingress_daemonset.template import FollowedNode
from dev.bench.ingress_daemonset import checker, figures, floor, ours
from dev.bench.ingress_daemonset.figures import Spent
from dev.bench.ingress_daemonset.manifests import NAME, ingress_daemonset
from dev.bench.ingress_daemonset.phases import measured, usage
from dev.bench.ingress_daemonset.progress import Made
from dev.bench.processes import MIB
from dev.bench.report import Figure, figure
from dev.lab import install
from dev.lab.bootstrap import running
from dev.lab.nodes import create_kwok_nodes
from dev.lab.session import Lab
from kube.resources import NAMESPACES, NODES

FLOOR, OURS, CHECKED = "plain", "ours", "checked"
"""Namespaces."""
VALUES = {
    "ipReservation": {"enabled": False},
    "ingressDaemonSet": {"enabled": True},
    "replicaCount": 1,
    "controllers": {"replicaCount": 2},
}
SETTINGS = {"ingressDaemonSet": {"resyncPeriod": "10s"}}
"""With many resyncs, so that not much rest is enough."""
WARM_UP = 16
PATIENCE = 300.0


@dataclass(frozen=True)
class Extent:
    """*budget* nodes are updated at a time; at rest for *seconds*; as many health checkers are started as *starts*."""

    nodes: int = 1000
    budget: int = 50
    seconds: float = 60.0
    starts: int = 5


QUICK = Extent(nodes=30, budget=5, seconds=20.0, starts=1)


def run(progress: Callable[[str], None], *, quick: bool = False) -> list[Figure]:
    """About ten minutes; *quick* is for trying it out, its figures say little."""
    extent = QUICK if quick else Extent()
    with running(values=VALUES, calico=None, nodes=1, kwok_nodes=0, progress=progress) as lab:
        install.edit_settings(lab, SETTINGS)
        for name in (FLOOR, OURS, CHECKED):
            lab.client.create(
                NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            )
        return list(_figures(lab, extent, progress))


def _figures(lab: Lab, extent: Extent, progress: Callable[[str], None]) -> Iterator[Figure]:
    progress(f"{extent.nodes:,} nodes")
    nodes = joined(lab, extent.nodes)
    yield figure("no IngressDaemonSet: memory of the leader", usage(lab)["leader"].bytes / MIB, "MiB")
    progress("starting health checkers")
    yield from figures.of_checkers(checker.starts(lab, CHECKED, extent.starts))
    plain = _floor(lab, extent, nodes, progress)
    yield from _ours(lab, extent, nodes, plain, progress)


def joined(lab: Lab, size: int) -> list[str]:
    """The names of so many new nodes, which all are ready."""
    floor.at_once(lambda number: create_kwok_nodes(lab.client, 1, first=number), range(size))

    def ready() -> bool:
        found = lab.client.list(NODES, type=FollowedNode, label_selector="type=kwok").items
        return sum(each.ready and not each.spec.taints for each in found) == size

    lab.wait(ready, PATIENCE, f"{size:,} nodes to be ready")
    return [f"kwok-{number}" for number in range(size)]


def _floor(
    lab: Lab, extent: Extent, nodes: list[str], progress: Callable[[str], None]
) -> tuple[Spent[Made], Spent[float]]:
    """Nothing is left of it, but that all programs have done such work before."""
    wanted = ingress_daemonset(FLOOR, extent.budget)
    progress("warming up")
    floor.create(lab, FLOOR, wanted, nodes[:WARM_UP])
    floor.clear(lab, FLOOR)
    progress(f"{len(nodes):,} plain Deployments")
    made = measured(lab, partial(floor.create, lab, FLOOR, wanted, nodes))
    progress(f"updating them, {extent.budget} at a time")
    names = [deployment_name(NAME, node) for node in nodes]
    rolled = measured(lab, partial(floor.roll_out, lab, FLOOR, names, extent.budget))
    progress("deleting them")
    floor.clear(lab, FLOOR)
    return made, rolled


def _ours(
    lab: Lab,
    extent: Extent,
    nodes: list[str],
    plain: tuple[Spent[Made], Spent[float]],
    progress: Callable[[str], None],
) -> Iterator[Figure]:
    size, (made, rolled) = len(nodes), plain
    progress(f"an IngressDaemonSet on {size:,} nodes")
    wanted = ingress_daemonset(OURS, extent.budget)
    yield from figures.of_creation(size, made, measured(lab, partial(ours.create, lab, wanted, size)))
    progress("at rest")
    ours.settle(lab, OURS, size)
    rest, cost = measured(lab, partial(ours.rest, lab, nodes, extent.seconds))
    yield from figures.of_rest(size, rest, cost)
    progress(f"updating it, {extent.budget} nodes at a time")
    updated = measured(lab, partial(ours.roll_out, lab, OURS, nodes))
    yield from figures.of_rollout(size, extent.budget, rolled, updated)
