"""`drawbridge simulate`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from api.anycast_ip import recorded
from api.elasticity import SWITCH
from api.ingress_daemonset import INGRESS_DAEMONSETS, NODE_LABEL
from api.ingress_daemonset.node_matching import FollowedNode
from cli.addresses import announcing, claims_in
from cli.commands.addresses import address_claims, allow_list, quotas
from cli.commands.explain import (
    ingress_daemonsets_of,
    objects_about,
    objects_in,
    segments_of,
    snapshot_of,
    snapshot_with_segments,
)
from cli.errors import WRONG, Failure
from cli.explain.foresight import Objects, Snapshot
from cli.explain.ip import counted
from cli.inventory import Inventory
from cli.session import Commands, Session, pass_session
from cli.simulate.join import DaemonSet, Join, JoinFacts, NoSuchNode, Supply, join, join_parts
from cli.simulate.removal import (
    Removal,
    ScaleIn,
    ScaleInFacts,
    deletion_of_pods,
    drain_of,
    removal_parts,
    scale_in,
    scale_in_parts,
    with_pools,
)
from cli.simulate.rollout import RolledBack, Rollout, RolloutFacts, UnknownContainer, rollout_parts, simulated
from cli.simulate.scale import (
    Scale,
    ScaleFacts,
    replicas_of_deployment,
    replicas_of_stateful_set,
    scale,
    scale_parts,
)
from cli.simulate.values import (
    Subject,
    Unreadable,
    Values,
    ValuesFacts,
    compare,
    concerns_pods,
    outcome,
    values_in,
    values_parts,
)
from controllers.anycast_ip.pool import in_line
from controllers.elasticity.eligibility import Eligibility
from controllers.elasticity.nodes import WatchedNode, sorted_out
from controllers.elasticity.pods import decode
from controllers.elasticity.snapshot import ClusterState, Replicas, parse
from controllers.ingress_daemonset.children import Workload
from kube.errors import NotFound
from kube.resources import CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, NODES, PODS, Resource, Selection
from kube.types import ConfigMap, Namespace
from settings import ElasticitySettings

Raw = dict[str, Any]
Remove = Callable[[Sequence[Raw], Snapshot, int], Removal]
"""What becomes of pods that go, beside so many IPs of pods that are gone."""


@click.group(cls=Commands)
def simulate() -> None:
    """What would happen, decided as Drawbridge decides. Nothing is written."""


@simulate.command("drain")
@click.argument("node")
@pass_session
def drain_command(session: Session, node: str) -> None:
    """Which IPs the drain of a node would reserve, and why not the others."""
    inventory = Inventory(session.cluster)
    inventory.get(NODES, node, None, Raw)
    pods = inventory.list(PODS, Raw, Selection(field_selector=f"spec.nodeName={node}"))
    _show_removal(session, inventory, pods, partial(drain_of, node))


@simulate.command("delete")
@click.argument("names", metavar="POD...", nargs=-1, required=True)
@pass_session
def delete_command(session: Session, names: tuple[str, ...]) -> None:
    """Which IPs the deletion of these pods would reserve, and why not the others."""
    inventory = Inventory(session.cluster)
    pods = [inventory.get(PODS, name, session.namespace, Raw) for name in names]
    _show_removal(session, inventory, pods, deletion_of_pods)


def _show_removal(session: Session, inventory: Inventory, pods: Sequence[Raw], remove: Remove) -> None:
    snapshot = snapshot_with_segments(inventory, objects_about(inventory, pods))
    found = remove(pods, snapshot, counted(snapshot.segments))
    session.output.show(with_pools(found, inventory.pools(snapshot.segments)), removal_parts)


@simulate.command("scale")
@click.argument("workload")
@click.argument("replicas", type=click.IntRange(min=0))
@pass_session
def scale_command(session: Session, workload: str, replicas: int) -> None:
    """Where new replicas would be placed, or which pods would go: deployment/NAME or sts/NAME.

    With fewer replicas, also which IPs would be reserved.
    """
    found = simulate_scale(Inventory(session.cluster), session.namespace, workload, replicas)
    if isinstance(found, ScaleIn):
        session.output.show(found, scale_in_parts)
    else:
        session.output.show(found, scale_parts)


@simulate.command("rollout")
@click.argument("name", metavar="INGRESSDAEMONSET")
@click.option(
    "--image", "images", metavar="[CONTAINER=]IMAGE", multiple=True, help="A new image; may be repeated."
)
@pass_session
def rollout_command(session: Session, name: str, images: tuple[str, ...]) -> None:
    """Which nodes an IngressDaemonSet's rollout would take in which order, and when it would end.

    Without --image, of the rollout that is under way; if none is, of a restart of all pods.
    """
    found = simulate_rollout(Inventory(session.cluster), session.namespace, name, images)
    session.output.show(found, rollout_parts)


@simulate.command("join")
@click.argument("count", metavar="N", type=click.IntRange(min=1))
@click.option("--like", metavar="NODE", default="", help="The new nodes have its labels and taints.")
@pass_session
def join_command(session: Session, count: int, like: str) -> None:
    """Which addresses N more nodes need, for how long they wait, and which pods start there.

    Without --like they are like the newest node that needs an anycast IP.
    """
    found = simulate_join(Inventory(session.cluster), count, like)
    session.output.show(found, join_parts)


@simulate.command("values")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@pass_session
def values_command(session: Session, file: Path) -> None:
    """What a change of the chart's values would bring.

    As helm upgrade --reset-then-reuse-values -f FILE. Ends with 1 when a value is refused, or unknown to the chart.
    """
    found = simulate_values(Inventory(session.cluster), file.read_text())
    session.output.show(found, values_parts)
    if found.refused:
        raise SystemExit(WRONG)


STATEFUL_SETS = Resource("apps", "v1", "statefulsets")
REPLICA_SETS = Resource("apps", "v1", "replicasets")
KINDS = {
    **dict.fromkeys(("deployment", "deployments", "deploy"), DEPLOYMENTS),
    **dict.fromkeys(("statefulset", "statefulsets", "sts"), STATEFUL_SETS),
}
DAEMON_SETS = Resource("apps", "v1", "daemonsets")
REVISION = "deployment.kubernetes.io/revision"
LOOKS, BETWEEN = 4, 15.0
"""Volumes are read between two looks; a claim that is not there is waited for, on a clock that jumps so far."""


def simulate_scale(inventory: Inventory, namespace: str, workload: str, replicas: int) -> Scale | ScaleIn:
    """KubeError; Failure for what cannot be simulated."""
    kind, name = _kind_and_name(workload)
    stored = inventory.get(kind, name, namespace, Raw)
    found = {**stored, "kind": "StatefulSet" if kind is STATEFUL_SETS else "Deployment"}
    before = found["spec"].get("replicas", 1)
    if replicas == before:
        raise Failure(f"{workload} has {before} replicas already", "name another number")
    return (
        _scale_out(inventory, found, replicas) if replicas > before else _scale_in(inventory, found, replicas)
    )


def _scale_in(inventory: Inventory, workload: Raw, replicas: int) -> ScaleIn:
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
    pods = [
        each
        for each in inventory.list(PODS, Raw, Selection(metadata["namespace"]))
        if any(of["uid"] == owner["metadata"]["uid"] for of in each["metadata"].get("ownerReferences", ()))
    ]
    segments = segments_of(inventory)
    found = scale_in(
        ScaleInFacts(
            workload=f"{metadata['namespace']}/{metadata['name']}",
            replicas=(spec.get("replicas", 1), replicas),
            pods=pods,
            first_ordinal=first,
            snapshot=snapshot_of(inventory, objects_about(inventory, pods)),
            counted=counted(segments),
        )
    )
    pools = inventory.pools(segments)
    return msgspec.structs.replace(found, removal=with_pools(found.removal, pools))


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


def simulate_rollout(inventory: Inventory, namespace: str, name: str, images: Sequence[str]) -> Rollout:
    """KubeError; Failure for what cannot be simulated."""
    facts = RolloutFacts(
        inventory.get(INGRESS_DAEMONSETS, name, namespace, Raw),
        inventory.list(NODES, FollowedNode),
        inventory.list(DEPLOYMENTS, Workload, Selection(namespace, label_selector=NODE_LABEL)),
        inventory.settings.ingress_daemonset.health_checker,
        inventory.now(),
    )
    try:
        return simulated(facts, images)
    except RolledBack as error:
        raise Failure(str(error), "write --image to see another template") from None
    except UnknownContainer as error:
        raise Failure(
            f"the template of {namespace}/{name} has no such container", f"write CONTAINER=IMAGE: {error}"
        ) from None
    except msgspec.ValidationError as error:
        raise Failure(
            f"IngressDaemonSet {namespace}/{name} cannot be read, and the controllers ignore it: {error}",
            "correct that field; it is older than the schema of the CRD",
        ) from None


def simulate_join(inventory: Inventory, count: int, like: str) -> Join:
    """KubeError; Failure when there is no node to be *like*."""
    facts = JoinFacts(
        count,
        like,
        inventory.list(NODES, FollowedNode),
        inventory.list(DAEMON_SETS, DaemonSet),
        _supply(inventory),
        snapshot_of(inventory, Objects(ingress_daemonsets=ingress_daemonsets_of(inventory, None))),
    )
    try:
        return join(facts)
    except NoSuchNode:
        raise Failure(
            f"there is no node {like}", "name one that new nodes resemble, or leave --like out"
        ) from None


def _supply(inventory: Inventory) -> Supply:
    claims = address_claims(inventory)
    idle = in_line(claim for claim in claims_in(claims) if claim.pooled)
    listed = allow_list(inventory)
    announcements = announcing(listed, inventory.settings.anycast_ip.allow_list, inventory.now())
    waiting = {each.id for each in announcements}
    announced = sum(claim.address not in waiting for claim in idle if claim.address in recorded(listed))
    return Supply(len(claims), len(idle), quotas(inventory), announced)


def simulate_values(inventory: Inventory, text: str) -> Values:
    """KubeError; Failure for a file that has no values, or where the settings cannot be read."""
    namespace = inventory.namespace
    try:
        values = values_in(text)
    except Unreadable as error:
        raise Failure(f"the file cannot be used: {error}", "write values as for helm upgrade -f") from None
    _ = inventory.settings  # where they cannot be read, nothing can be compared
    found = outcome(inventory.installed.text, values, namespace)
    namespaces = {each.metadata.name: each for each in inventory.cached(NAMESPACES, Namespace)}
    facts = ValuesFacts(
        found,
        _subjects(inventory, namespaces) if concerns_pods(found) else (),
        namespaces,
        inventory.nodes(),
        ingress_daemonsets_of(inventory, None),
        segments_of(inventory),
    )
    return compare(facts, inventory.now())


def _subjects(inventory: Inventory, namespaces: Iterable[str]) -> list[Subject]:
    """The API server lists several namespaces at a time."""
    reads = {name: partial(inventory.cached, PODS, Subject, Selection(name)) for name in namespaces}
    found = inventory.cluster.read_all(reads)
    return [each for pods in found.values() for each in pods]


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
