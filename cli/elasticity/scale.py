"""`drawbridge simulate scale`: where new replicas would go, one after the other, by the leader's own decision."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

import click
import msgspec

from api.elasticity import PATH, SWITCH, is_sent
from cli.errors import Failure
from cli.explain.kinds import snapshot_of
from cli.explain.prediction import Snapshot, creation_of, predict
from cli.inventory import Inventory
from cli.output import Document, Part, Report, Table, count_of, title
from cli.pods import Pod as Subject
from cli.pods import Raw
from cli.session import Command, Session, object_name, pass_session
from cli.simulate import Change, Effect, judged
from controllers.elasticity.eligibility import Eligibility
from controllers.elasticity.nodes import Nodes, WatchedNode, sorted_out
from controllers.elasticity.patches import Kind
from controllers.elasticity.planner import Past, Plan, plan
from controllers.elasticity.pods import Pod, PodIndex, decode
from controllers.elasticity.room import SuperNodes, among
from controllers.elasticity.snapshot import INDEX, ClusterState, Location, Workload, location_of, parse
from controllers.elasticity.snapshot import Snapshot as OfOneKey
from controllers.elasticity.sources import REPLICA_SETS, WorkloadObject, WorkloadSpec
from kube.resources import CONFIG_MAPS, DEPLOYMENTS, NODES, PODS, STATEFUL_SETS, Resource, Selection
from kube.types import ConfigMap, Namespace, OwnerReference, PersistentVolumeClaim, key_of, rfc3339
from settings import Settings
from webhook.elasticity.webhook import NewPod, gate_reason, gated, reaches_super_nodes
from webhook.elasticity.webhook import PodSpec as NewSpec

KINDS = {
    **dict.fromkeys(("deployment", "deployments", "deploy"), DEPLOYMENTS),
    **dict.fromkeys(("statefulset", "statefulsets", "sts"), STATEFUL_SETS),
}
REVISION = "deployment.kubernetes.io/revision"
MOST = 150_000
"""Pods for which Kubernetes is made, in a whole cluster."""
LOOKS, BETWEEN = 4, 15.0
"""Volumes are read between two looks; a claim that is not there is waited for, on a clock that jumps so far."""
PLACES = {Kind.SUPER: "super node", Kind.LOCAL: "local node", Kind.ANY: "any node"}


class TemplateSpec(WorkloadSpec, frozen=True):
    template: Raw = {}
    volume_claim_templates: tuple[PersistentVolumeClaim, ...] = ()


class StoredWorkload(WorkloadObject, frozen=True):
    """With what its new pods are made of."""

    spec: TemplateSpec = TemplateSpec()


class Placement(Document, frozen=True):
    """*place*: local node, super node, any node (the scheduler decides), or waits."""

    replica: str
    place: str
    why: str


class Scale(Report, frozen=True):
    """*local* and *on_super_nodes* are the replicas of the same revision that are there already."""

    workload: str
    before: int
    after: int
    local: int
    on_super_nodes: int
    placements: tuple[Placement, ...]

    def parts(self, now: datetime) -> Iterator[Part]:
        places = Counter(each.place for each in self.placements)
        counted = (_counted(count, place) for place, count in sorted(places.items()))
        to = ", ".join(counted) or "nothing new"
        yield title(f"Scaling {self.workload} from {self.before} to {self.after}: {to}")
        yield f"Of this revision now: {self.local} on local nodes, {self.on_super_nodes} on super nodes."
        rows = [(each.replica, each.place, each.why) for each in self.placements]
        yield Table(("REPLICA", "PLACE", "WHY"), rows)


def _counted(count: int, place: str) -> str:
    if place in PLACES.values():
        return f"{count} on {place if count == 1 or place == PLACES[Kind.ANY] else f'{place}s'}"
    return f"{count} {'waits' if count == 1 else 'wait'}"


def _admitted(replicas: Sequence[Raw], snapshot: Snapshot) -> tuple[dict[str, Placement], list[Pod]]:
    """The replicas that admission does not gate, and why; and the others, as the leader gets them."""
    skipped, arriving = {}, []
    for raw in replicas:
        name, answer = raw["metadata"]["name"], predict(creation_of(PODS, raw), snapshot).answer(PATH)
        if answer and answer.decision and "gated" in answer.decision.audit:
            arriving.append(decode(_encoded({**raw, "spec": gated(raw["spec"])})))
        else:
            why = answer.effect if answer else "elasticity is not installed"
            place = "any node" if decode(_encoded(raw)).tolerates else "local node"
            skipped[name] = Placement(name, place, f"not gated: {why}")
    return skipped, arriving


def _placed(made: Plan, arriving: Sequence[Pod]) -> dict[str, Placement]:
    decided = {each.uid: each for each in made.actions if each.kind in PLACES}
    return {
        pod.metadata.name: Placement(pod.metadata.name, PLACES[action.kind], action.why)
        if (action := decided.get(pod.metadata.uid))
        else Placement(pod.metadata.name, "waits", made.waits.get(pod.metadata.uid, "others gate it, too"))
        for pod in arriving
    }


def _encoded(raw: Raw) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(raw))


def new_pod(kind: str, owner: StoredWorkload, name: str, now: datetime) -> Raw:
    """As the controller of *owner*, of this *kind*, would create it."""
    template, metadata = owner.spec.template, owner.metadata
    controller = OwnerReference("apps/v1", kind, metadata.name, metadata.uid, controller=True)
    made = {
        **template.get("metadata", {}),
        "name": name,
        "namespace": metadata.namespace,
        "uid": f"simulated-{name}",
        "creationTimestamp": rfc3339(now),
        "ownerReferences": [msgspec.to_builtins(controller)],
    }
    return {"metadata": made, "spec": template["spec"], "status": {"phase": "Pending"}}


def replica_of_set(stateful_set: StoredWorkload, number: int, now: datetime) -> Raw:
    ordinal = stateful_set.spec.ordinals.start + number
    name = f"{stateful_set.metadata.name}-{ordinal}"
    made = new_pod("StatefulSet", stateful_set, name, now)
    labels = {
        INDEX: str(ordinal),
        "controller-revision-hash": stateful_set.status.update_revision,
        "statefulset.kubernetes.io/pod-name": name,
    }
    made["metadata"]["labels"] = {**(made["metadata"].get("labels") or {}), **labels}
    claims = [each.metadata.name for each in stateful_set.spec.volume_claim_templates]
    volumes = [{"name": each, "persistentVolumeClaim": {"claimName": f"{each}-{name}"}} for each in claims]
    made["spec"] = {**made["spec"], "volumes": [*(made["spec"].get("volumes") or ()), *volumes]}
    return made


def effects(inventory: Inventory, change: Change) -> Iterator[Effect]:
    return judged(inventory, change, placed_by_elasticity, "elasticity")


def placed_by_elasticity(subject: Subject, _: Namespace, settings: Settings) -> str:
    """Why a pod like it would be placed, for a change of values."""
    if not settings.elasticity.enabled:
        return ""
    pod = NewPod(subject.metadata, NewSpec(tolerations=subject.spec.tolerations))
    # A toleration that the leader gave is none of the template's.
    reaches = not is_sent(pod.metadata) and reaches_super_nodes(pod, {"affinity": subject.spec.affinity})
    why, _warnings = gate_reason(pod, subject.metadata.namespace, settings.elasticity, reaches=reaches)
    return f"one like it is placed by elasticity: {why}" if why else ""


@click.command("scale", cls=Command)
@click.argument("workload")
@click.argument("replicas", type=click.IntRange(0, MOST))
@pass_session
def scale_command(session: Session, workload: str, replicas: int) -> None:
    """Predict where new replicas would run, or which pods would go: deployment/NAME or sts/NAME.

    With fewer replicas, also which IPs would be reserved.
    """
    kind, name = _kind_and_name(workload)
    inventory = Inventory(session.cluster)
    found = inventory.get(kind, name, session.namespace, StoredWorkload)
    before = found.spec.replicas
    if replicas == before:
        raise Failure(f"{workload} has {count_of(before, 'replica')} already", "name another number")
    if replicas > before:
        session.show(_scale_out(inventory, kind, found, replicas))
    else:
        _show_scale_in(session, inventory, kind, found, replicas)


def _show_scale_in(
    session: Session, inventory: Inventory, kind: Resource, workload: StoredWorkload, replicas: int
) -> None:
    metadata, before = workload.metadata, workload.spec.replicas
    is_set = kind is STATEFUL_SETS
    owner = workload if is_set else _newest_replica_set(inventory, workload)
    first = workload.spec.ordinals.start if is_set else None
    if owner.spec.replicas != before:
        raise Failure(
            f"a rollout of deployment {metadata.name} is under way: its controller shares the replicas among"
            " its ReplicaSets",
            "repeat it when kubectl rollout status says that it is complete",
        )
    # With IP reservation: this feature is there without it.
    from cli.ip_reservation.removal import scale_in

    session.show(scale_in(inventory, metadata, owner.metadata.uid, first, before, replicas))


def _kind_and_name(workload: str) -> tuple[Resource, str]:
    """`web`, `deployment/web`, `sts/db`."""
    kind, _, name = workload.rpartition("/")
    resource = KINDS.get(re.sub(r"\.apps$", "", kind or "deployment").lower())
    if resource is None:
        raise Failure(
            f"{kind} is neither a Deployment nor a StatefulSet", "write deployment/NAME or sts/NAME"
        )
    return resource, object_name.convert(name, None, None)


def _newest_replica_set(inventory: Inventory, deployment: StoredWorkload) -> StoredWorkload:
    metadata = deployment.metadata
    found = [
        each
        for each in inventory.list(REPLICA_SETS, StoredWorkload, Selection(metadata.namespace))
        if any(owner.uid == metadata.uid for owner in each.metadata.owner_references)
    ]
    if not found:
        raise Failure(f"deployment {metadata.name} has no ReplicaSet yet", "repeat it in a moment")
    return max(found, key=revision_of)


def revision_of(replica_set: StoredWorkload) -> int:
    """0 for one that is no number, until its controller writes it again."""
    revision = replica_set.metadata.annotations.get(REVISION, "")
    return int(revision) if revision.isdecimal() else 0


def _scale_out(inventory: Inventory, kind: Resource, workload: StoredWorkload, replicas: int) -> Scale:
    metadata, before = workload.metadata, workload.spec.replicas
    snapshot = snapshot_of(inventory, namespaces=[metadata.namespace])
    now = snapshot.now
    if kind is STATEFUL_SETS:
        made = [replica_of_set(workload, number, now) for number in range(before, replicas)]
    else:
        newest = _newest_replica_set(inventory, workload)
        base, numbers = newest.metadata.name, range(1, replicas - before + 1)
        made = [new_pod("ReplicaSet", newest, f"{base}-new-{number}", now) for number in numbers]
    skipped, arriving = _admitted(made, snapshot)
    pods = [decode(each) for each in inventory.list(PODS, msgspec.Raw)]
    nodes = sorted_out(inventory.list(NODES, WatchedNode))
    planned = _planned(inventory, _cluster(inventory, nodes, workload, replicas), pods, arriving)
    placements = skipped | _placed(planned, arriving)
    keys = {decode(_encoded(each)).key for each in made}
    siblings = Counter(location_of(pod, nodes.names) for pod in pods if pod.key in keys)
    return Scale(
        key_of(metadata),
        before,
        replicas,
        siblings[Location.LOCAL],
        siblings[Location.SUPER],
        tuple(placements[each["metadata"]["name"]] for each in made),
    )


def _planned(
    inventory: Inventory, cluster: ClusterState, pods: Sequence[Pod], arriving: Sequence[Pod]
) -> Plan:
    """By the leader's planner, once it knows the volumes of those that arrive."""
    known = [*pods, *arriving]
    index = PodIndex.of(known)
    key = next((pod.key for pod in arriving), "")
    at = 0.0
    eligibility = Eligibility(inventory.client, lambda: at)
    for _ in range(LOOKS):
        of_key = OfOneKey(index.of_key(key), {}, cluster, inventory.now())
        super_nodes = SuperNodes(of_key, index, eligibility, among(known))
        made = plan(of_key, super_nodes, Past())
        if not super_nodes.to_look_up:
            break
        for pod in super_nodes.to_look_up:
            eligibility.look_up(pod)
        at += BETWEEN
    return made


def _cluster(inventory: Inventory, nodes: Nodes, workload: StoredWorkload, replicas: int) -> ClusterState:
    settings = inventory.settings.elasticity
    found = inventory.find(CONFIG_MAPS, settings.switch.name, settings.switch.namespace, ConfigMap)
    switch, _ = parse(found.data.get(SWITCH) if found else None)
    wanted = Workload(wanted=replicas, made=replicas, first=workload.spec.ordinals.start)
    return ClusterState(nodes, settings, switch, lambda _pod: wanted)
