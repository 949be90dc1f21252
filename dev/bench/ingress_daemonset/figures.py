"""What an IngressDaemonSet costs, as figures, against a plain client's Deployments in the same run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import TypeVar

from controllers.ingress_daemonset.controller import WRITERS
from dev.bench.ingress_daemonset.checker import Started
from dev.bench.ingress_daemonset.ours import Rest, Rolled
from dev.bench.ingress_daemonset.phases import Cost
from dev.bench.ingress_daemonset.progress import Made
from dev.bench.processes import MIB
from dev.bench.report import Figure, figure

EXIST, AVAILABLE = 1.5, 1.3
"""Times what the plain client takes, at most."""
PROMISED = 1000
"""Of so many nodes, fewer show nothing."""
PER_NODE = (("Deployment", "deployments", 3), ("Node", "nodes", 2))
"""What a rollout may change: the annotations and the template, and the annotations taken away again."""
UNRECORDED = WRITERS
"""Deployments that are written before any answer to the template is known, and once more when it is, at most."""
T = TypeVar("T")
Spent = tuple[T, Cost]
WRITTEN = ("ingressdaemonsets", "deployments", "daemonsets", "roles", "rolebindings")


def of_creation(size: int, floor: Spent[Made], ours: Spent[Made]) -> Iterator[Figure]:
    (plain, alone), (made, cost) = floor, ours
    name = f"{size:,} nodes created"
    yield figure(f"{name}: until the first Deployment exists", made.first, "s", baseline=plain.first)
    yield figure(
        f"{name}: until all Deployments exist, against a plain client",
        made.existed,
        "s",
        baseline=plain.existed,
        at_most=EXIST if size >= PROMISED else None,
    )
    yield figure(
        f"{name}: until all are available, against a plain client",
        made.available,
        "s",
        baseline=plain.available,
        at_most=AVAILABLE if size >= PROMISED else None,
    )
    yield _of_all(name, alone, cost)
    posts = cost.writes("deployments", "POST") / size
    yield figure(f"{name}: Deployments created per node", posts, "", at_most=1)
    later = cost.writes("deployments", "PATCH", "DELETE")
    yield figure(f"{name}: changes of Deployments afterwards", later, "", at_most=UNRECORDED)
    yield figure(f"{name}: writes of the leader per node, but for status", cost.own_writes / size, "")
    yield from _of_leader(name, cost)


def of_rest(size: int, rest: Rest, cost: Cost) -> Iterator[Figure]:
    name = f"{size:,} nodes at rest"
    yield figure(f"{name}: length", rest.seconds, "s")
    yield figure(f"{name}: heartbeats per node", rest.heartbeats / size, "")
    yield figure(f"{name}: looks at all of it", cost.plans, "", at_least=1)
    yield figure(f"{name}: writes of the leader, but for status", cost.own_writes, "", at_most=0)
    yield figure(f"{name}: writes of any client to objects of the feature", _seen(cost), "", at_most=0)
    yield figure(f"{name}: requests of ours, those for the lease included", cost.requests, "")
    busy = 100 * cost.used["leader"].seconds / rest.seconds
    yield figure(f"{name}: CPU of the leader, of a core", busy, "%")
    yield from _of_leader(name, cost)


def _seen(cost: Cost) -> float:
    """To all objects of the feature, and to its own status; nodes are written by others, too."""
    status = cost.writes("ingressdaemonsets", subresource="status")
    return status + sum(cost.writes(resource) for resource in WRITTEN)


def of_rollout(size: int, budget: int, floor: Spent[float], ours: Spent[Rolled]) -> Iterator[Figure]:
    (plain, alone), (rolled, cost) = floor, ours
    name = f"{size:,} nodes updated, {budget} at a time"
    yield figure(f"{name}: wall, against waves of a plain client", rolled.seconds, "s", baseline=plain)
    yield _of_all(name, alone, cost)
    yield figure(f"{name}: nodes that were off at a time, at most", rolled.most_off, "", at_most=budget)
    for what, resource, most in PER_NODE:
        changes = cost.writes(resource, "PATCH", code="200") / size
        recorded = UNRECORDED / size if resource == "deployments" else 0
        yield figure(f"{name}: changes per {what}", changes, "", at_most=most + recorded)
        conflicts = cost.writes(resource, "PATCH", code="409") / size
        yield figure(f"{name}: changes per {what} refused, as it had changed meanwhile", conflicts, "")
    status = cost.writes("ingressdaemonsets", subresource="status")
    yield figure(f"{name}: writes of the status", status, "")
    yield figure(f"{name}: requests of ours per node, of any kind", cost.requests / size, "")
    yield from _of_leader(name, cost)


def _of_all(name: str, alone: Cost, cost: Cost) -> Figure:
    what = f"{name}: CPU of all programs, against a plain client"
    return figure(what, cost.seconds, "s", baseline=alone.seconds)


def _of_leader(name: str, cost: Cost) -> Iterator[Figure]:
    leader, plans = cost.used["leader"], cost.plans or float("nan")
    yield figure(f"{name}: plans", cost.plans, "")
    yield figure(f"{name}: to make a plan", 1000 * cost.planning / plans, "ms")
    yield figure(f"{name}: CPU of the leader", leader.seconds, "s")
    yield figure(f"{name}: CPU of the leader per plan, writes included", 1000 * leader.seconds / plans, "ms")
    yield figure(f"{name}: memory of the leader", leader.bytes / MIB, "MiB")
    yield figure(f"{name}: peak memory of the leader", leader.peak / MIB, "MiB")


def of_checkers(starts: Sequence[Started]) -> Iterator[Figure]:
    yield figure(
        "health checker: from its start to its first 200", median(each.seconds for each in starts), "s"
    )
    yield figure("health checker: memory", median(each.usage.bytes for each in starts) / MIB, "MiB")
