"""`drawbridge simulate scale`."""

from __future__ import annotations

import re
from typing import Any

import click
import msgspec

from api.elasticity import SWITCH
from cli.commands.explain import objects_in, snapshot_of
from cli.errors import Failure
from cli.inventory import Inventory
from cli.session import Command, Session, pass_session
from cli.simulate.scale import (
    Scale,
    ScaleFacts,
    replicas_of_deployment,
    replicas_of_stateful_set,
    scale,
    scale_parts,
)
from controllers.elasticity.eligibility import Eligibility
from controllers.elasticity.nodes import WatchedNode, sorted_out
from controllers.elasticity.pods import decode
from controllers.elasticity.snapshot import ClusterState, Replicas, parse
from kube.errors import NotFound
from kube.resources import CONFIG_MAPS, DEPLOYMENTS, NODES, PODS, Resource, Selection
from kube.types import ConfigMap
from settings import ElasticitySettings

Raw = dict[str, Any]
STATEFUL_SETS = Resource("apps", "v1", "statefulsets")
REPLICA_SETS = Resource("apps", "v1", "replicasets")
KINDS = {
    **dict.fromkeys(("deployment", "deployments", "deploy"), DEPLOYMENTS),
    **dict.fromkeys(("statefulset", "statefulsets", "sts"), STATEFUL_SETS),
}
REVISION = "deployment.kubernetes.io/revision"
LOOKS, BETWEEN = 4, 15.0
"""Volumes are read between two looks; a claim that is not there is waited for, on a clock that jumps so far."""


@click.command("scale", cls=Command)
@click.argument("workload")
@click.argument("replicas", type=click.IntRange(min=0))
@pass_session
def scale_command(session: Session, workload: str, replicas: int) -> None:
    """Where new replicas would be placed, or which pods would go: deployment/NAME or sts/NAME.

    With fewer replicas, also which IPs would be reserved.
    """
    kind, name = _kind_and_name(workload)
    inventory = Inventory(session.cluster)
    stored = inventory.get(kind, name, session.namespace, Raw)
    found = {**stored, "kind": "StatefulSet" if kind is STATEFUL_SETS else "Deployment"}
    before = found["spec"].get("replicas", 1)
    if replicas == before:
        raise Failure(f"{workload} has {before} replicas already", "name another number")
    if replicas > before:
        session.output.show(_scale_out(inventory, found, replicas), scale_parts)
    else:
        _show_scale_in(session, inventory, found, replicas)


def _show_scale_in(session: Session, inventory: Inventory, workload: Raw, replicas: int) -> None:
    metadata, spec = workload["metadata"], workload["spec"]
    owner, first = workload, spec.get("ordinals", {}).get("start", 0)
    if workload["kind"] == "Deployment":
        owner, first = _newest_replica_set(inventory, workload), None
        if owner["spec"].get("replicas") != spec.get("replicas", 1):
            raise Failure(
                f"a rollout of deployment {metadata['name']} is under way: its controller shares the replicas among"
                " its ReplicaSets",
                "repeat it when kubectl rollout status says that it is complete",
            )
    # With IP reservation: this feature is there without it.
    from cli.commands.simulate_removal import show_scale_in

    show_scale_in(session, inventory, (workload, owner, first), replicas)


def _scale_out(inventory: Inventory, workload: Raw, replicas: int) -> Scale:
    facts, now = _facts(inventory, workload, replicas), [0.0]

    def excluded() -> tuple[str, ...]:
        return facts.cluster.settings.excluded_namespaces

    eligibility = Eligibility(inventory.client, excluded, lambda: now[0])
    for _ in range(LOOKS):
        trial = scale(facts, eligibility)
        if not trial.to_look_up:
            break
        for pod in trial.to_look_up:
            eligibility.look_up(pod)
        now[0] += BETWEEN
    return trial.scale


def _facts(inventory: Inventory, found: Raw, replicas: int) -> ScaleFacts:
    namespace, before = found["metadata"]["namespace"], found["spec"].get("replicas", 1)
    snapshot = snapshot_of(inventory, objects_in(inventory, [namespace]))
    if found["kind"] == "StatefulSet":
        made = replicas_of_stateful_set(found, range(before, replicas), snapshot.now)
    else:
        newest = _newest_replica_set(inventory, found)
        made = replicas_of_deployment(newest, range(1, replicas - before + 1), snapshot.now)
    pods = [decode(each) for each in inventory.list(PODS, msgspec.Raw)]
    cluster = _cluster(inventory, found, replicas)
    return ScaleFacts(f"{namespace}/{found['metadata']['name']}", before, made, pods, cluster, snapshot)


def _kind_and_name(workload: str) -> tuple[Resource, str]:
    """`web`, `deployment/web`, `sts/db`."""
    kind, _, name = workload.rpartition("/")
    resource = KINDS.get(re.sub(r"\.apps$", "", kind or "deployment").lower())
    if resource is None:
        raise Failure(
            f"{kind} is neither a Deployment nor a StatefulSet", "write deployment/NAME or sts/NAME"
        )
    return resource, name


def _newest_replica_set(inventory: Inventory, deployment: Raw) -> Raw:
    metadata = deployment["metadata"]
    found = [
        each
        for each in inventory.list(REPLICA_SETS, Raw, Selection(metadata["namespace"]))
        if any(owner["uid"] == metadata["uid"] for owner in each["metadata"].get("ownerReferences", ()))
    ]
    if not found:
        raise Failure(f"deployment {metadata['name']} has no ReplicaSet yet", "repeat it in a moment")
    newest = max(found, key=lambda each: int(each["metadata"].get("annotations", {}).get(REVISION, 0)))
    return {**newest, "kind": "ReplicaSet"}


def _cluster(inventory: Inventory, workload: Raw, replicas: int) -> ClusterState:
    settings: ElasticitySettings = inventory.settings.elasticity
    nodes = sorted_out(inventory.list(NODES, WatchedNode))
    switch, _ = parse(_switch(inventory, settings))
    first = workload["spec"].get("ordinals", {}).get("start", 0)
    wanted = Replicas(replicas, replicas)
    return ClusterState(nodes, settings, switch, lambda _pod: first, lambda _pod: wanted)


def _switch(inventory: Inventory, settings: ElasticitySettings) -> str | None:
    at = settings.switch
    try:
        return inventory.get(CONFIG_MAPS, at.name, at.namespace, ConfigMap).data.get(SWITCH)
    except NotFound:
        return None
