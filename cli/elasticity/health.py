"""Elasticity in `status` and `doctor`: where pods are, and which wait for too long."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import partial

import msgspec
from rich.text import Text

from api.elasticity import LOCAL_REPLICAS, REASON
from cli.elasticity.placements import PENDING
from cli.health import Health, Overview, Probe, Problem, Raw, named, probe_object, probe_pod
from cli.installation import CONTROLLERS, OWN, WEBHOOK, Needs, needs_of
from cli.inventory import Inventory
from cli.output import Cell, count_of, warning
from cli.pods import Pod
from kube.client import Page
from kube.resources import PODS, Selection
from kube.types import key_of
from settings import Settings

GATED = timedelta(minutes=1)
"""How long a pod usually waits for its placement, at most."""
STARTING = timedelta(minutes=10)
"""How long a super node usually takes to start a pod, image included, at most."""
ENDED = Selection(field_selector="status.phase!=Pending,status.phase!=Running,status.phase!=Unknown")


class Elasticity(Overview, frozen=True):
    """Of pods that have not ended."""

    pods: int
    gated: int
    local: int
    on_super_nodes: int
    super_nodes: int

    def state(self, now: datetime) -> Cell:
        local, nodes = count_of(self.local, "pod"), count_of(self.super_nodes, "super node")
        text = f"{local} on local nodes, {self.on_super_nodes} on super nodes; {nodes}"
        return Text(text) + (warning(f"; {self.gated} gated") if self.gated else Text("; none gated"))


def look(inventory: Inventory) -> tuple[Elasticity, Iterable[Problem]]:
    together, waiting_pods = inventory.cluster.together, partial(inventory.cached, PODS, Pod, PENDING)
    total, pending, names = together(partial(_total, inventory), waiting_pods, inventory.super_nodes)
    on_super_nodes = sum(together(*(partial(_on_node, inventory, name) for name in names)))
    gated = [pod.metadata for pod in pending if pod.is_gated and len(pod.spec.scheduling_gates) == 1]
    unplaced = sum(not pod.spec.node_name for pod in pending)
    problems, latest = [], inventory.now() - GATED
    waiting = [key_of(each) for each in gated if each.creation_timestamp and each.creation_timestamp < latest]
    if waiting:
        pods = named(waiting, "is", "are")
        page = "docs/how-to/break-glass.md#pods-stay-gated"
        way_out = f"drawbridge elasticity list -A says what each waits for; {page}"
        problems = [Problem(f"{pods} gated for over a minute", way_out)]
    started = inventory.now() - STARTING
    unstarted = [
        key_of(pod.metadata)
        for pod in pending
        if pod.spec.node_name in names and pod.bound_at and pod.bound_at < started
    ]
    if unstarted:
        page = "docs/how-to/runbooks/elasticity.md#drawbridgepodsbroughthome"
        what = f"{named(unstarted, 'has', 'have')} not started on a super node for over ten minutes"
        problems.append(Problem(what, f"see its Events (kubectl describe pod) and {page}"))
    local = total - on_super_nodes - unplaced
    return Elasticity(total, len(gated), local, on_super_nodes, len(names)), problems


def _total(inventory: Inventory) -> int:
    """Pods that have not ended: an API server that is asked for one of all says how many remain."""
    counted = inventory.client.request("GET", PODS.path(), query={"limit": 1}, type=Page[msgspec.Raw])
    total = len(counted.items or ()) + counted.metadata.remaining_item_count
    return total - inventory.cluster.count(PODS, ENDED)


def _on_node(inventory: Inventory, name: str) -> int:
    on_node = Selection(field_selector=f"spec.nodeName={name},status.phase!=Succeeded,status.phase!=Failed")
    return inventory.cluster.count(PODS, on_node)


def needs(settings: Settings) -> Needs:
    yield from needs_of(CONTROLLERS, "watch patch", "pods")
    yield from needs_of(CONTROLLERS, "watch", "nodes")
    yield from needs_of(CONTROLLERS, "watch", "statefulsets", "apps")
    if (election := settings.leader_election).leader_elect:
        yield from needs_of(WEBHOOK, "get", "leases", "coordination.k8s.io", OWN, election.resource_name)


def probe(_: Settings) -> Probe:
    pod = probe_object("v1", "Pod", annotations={LOCAL_REPLICAS: "1"}) | {"spec": probe_pod()}
    return Probe("dry run of a pod", PODS, pod, _is_marked)


def _is_marked(stored: Raw) -> bool:
    pod = msgspec.convert(stored, Pod)
    # Without a leader for long, its annotation says why it is not gated.
    return pod.is_gated or REASON in pod.metadata.annotations


HEALTH = Health("elasticity", "elasticity", "elasticity", "pods", look, needs, probe)
