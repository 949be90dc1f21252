"""The page of elasticity: workloads with their pods on local and on super nodes."""

from __future__ import annotations

from collections import Counter

from cli.elasticity.placements import Place, Placement, listed, pods_and_super_nodes
from cli.inventory import Inventory
from cli.output import Document
from kube.resources import ALL


class WorkloadView(Document, frozen=True):
    namespace: str
    workload: str
    pods: int
    local: int
    on_super_nodes: int
    waiting: int


class ElasticityPage(Document, frozen=True):
    """*pods* that wait come first."""

    workloads: tuple[WorkloadView, ...]
    pods: tuple[Placement, ...]


def read(inventory: Inventory) -> ElasticityPage:
    by_workload: dict[tuple[str, str], list[Placement]] = {}
    placements = listed(*pods_and_super_nodes(inventory, ALL))
    for each in placements:
        by_workload.setdefault((each.namespace, each.workload or f"Pod/{each.pod}"), []).append(each)
    views = []
    for (namespace, workload), held in by_workload.items():
        places = Counter(each.place for each in held)
        waiting = places[Place.GATED] + places[Place.PENDING]
        away = places[Place.SUPER_NODE] + places[Place.STARTING]
        counts = len(held), places[Place.LOCAL], away, waiting
        views.append(WorkloadView(namespace, workload, *counts))
    views.sort(key=lambda each: (not each.waiting, each.namespace, each.workload))
    return ElasticityPage(tuple(views), placements)
