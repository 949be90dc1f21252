"""Where the new replicas of a workload would go: one after the other, by the leader's own decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from api.elasticity import PATH
from cli.explain.prediction import Snapshot, creation_of, predict
from cli.output import Document, Part, Table, title
from cli.simulate.values import Subject
from controllers.elasticity.eligibility import Eligibility
from controllers.elasticity.patches import Kind
from controllers.elasticity.planner import Past, Plan, plan
from controllers.elasticity.pods import Pod, PodIndex, decode, facets
from controllers.elasticity.room import SETTING, Fleet, Quota, SuperNodes, counted
from controllers.elasticity.snapshot import ClusterState, Location, location_of
from controllers.elasticity.snapshot import Snapshot as OfOneKey
from kube.resources import PODS
from kube.types import Namespace, rfc3339
from settings import Settings
from settings.elasticity import Budget
from webhook.elasticity.webhook import NewPod, gate_reason, gated, reaches_super_nodes
from webhook.elasticity.webhook import PodSpec as NewSpec

Raw = dict[str, Any]
PLACES = {Kind.SUPER: "super node", Kind.LOCAL: "local node", Kind.ANY: "any node"}


@dataclass(frozen=True)
class ScaleFacts:
    """*pods* are all of the cluster, *replicas* those that are new, raw, in the order of their creation.

    *before* is the number that the workload has.
    """

    workload: str
    before: int
    replicas: Sequence[Raw]
    pods: Sequence[Pod]
    cluster: ClusterState
    snapshot: Snapshot


class Placement(Document, frozen=True):
    """*place*: local node, super node, any node (the scheduler decides), or waits."""

    replica: str
    place: str
    why: str


class Scale(Document, frozen=True):
    """*local* and *on_super_nodes* are the replicas of the same revision that are there already.

    *later* are budgets of the new ones that do not hold now, with the time at which their hours begin.
    """

    workload: str
    before: int
    after: int
    local: int
    on_super_nodes: int
    placements: tuple[Placement, ...]
    later: tuple[str, ...] = ()


def index_of(pods: Sequence[Pod]) -> PodIndex:
    """As the leader's cache indexes them."""
    by_facet: dict[str, list[Pod]] = {}
    for pod in pods:
        for facet in facets(pod):
            by_facet.setdefault(facet, []).append(pod)
    return PodIndex(lambda facet: by_facet.get(facet, ()))


@dataclass(frozen=True)
class Trial:
    """One look; *to_look_up* are pods whose volumes must be read before another one."""

    scale: Scale
    to_look_up: Sequence[Pod]


def scale(facts: ScaleFacts, eligibility: Eligibility) -> Trial:
    """*eligibility* remembers what was looked up."""
    skipped, arriving = _admitted(facts)
    index = index_of([*facts.pods, *arriving])
    key = next((pod.key for pod in arriving), "")
    nodes, settings, now = facts.cluster.nodes, facts.cluster.settings, facts.snapshot.now
    quota = Quota(settings.max_super_pods, counted(index, nodes.names), now)
    super_nodes = SuperNodes(Fleet(nodes, index, gpus=settings.gpus), quota, eligibility)
    made = plan(OfOneKey(index.of_key(key), {}, facts.cluster, now), super_nodes, Past())
    placements = skipped | _placed(made, arriving)
    ordered = [placements[each["metadata"]["name"]] for each in facts.replicas]
    siblings = Counter(location_of(pod, nodes.names) for pod in _siblings(facts))
    found = Scale(
        facts.workload,
        facts.before,
        facts.before + len(facts.replicas),
        siblings[Location.LOCAL],
        siblings[Location.SUPER],
        tuple(ordered),
        tuple(_later(settings.max_super_pods.budgets, arriving, now)),
    )
    return Trial(found, made.to_look_up)


def scale_parts(found: Scale) -> Iterator[Part]:
    places = Counter(each.place for each in found.placements)
    to = ", ".join(f"{count} on {place}" for place, count in sorted(places.items())) or "nothing new"
    yield title(f"Scaling {found.workload} from {found.before} to {found.after}: {to}")
    yield f"Of this revision, {found.local} are local and {found.on_super_nodes} on super nodes now."
    rows = [(each.replica, each.place, each.why) for each in found.placements]
    yield Table(("REPLICA", "PLACE", "WHY"), rows)
    yield from found.later


def _admitted(facts: ScaleFacts) -> tuple[dict[str, Placement], list[Pod]]:
    """The replicas that admission does not gate, and why; and the others, as the leader gets them."""
    skipped, arriving = {}, []
    for raw in facts.replicas:
        predicted = predict(creation_of(PODS, raw), facts.snapshot)
        name, answers = raw["metadata"]["name"], predicted.answers
        answer = next((each for each in answers if each.verdict.webhook.path == PATH), None)
        if answer and answer.decision and "gated" in answer.decision.audit:
            arriving.append(decode(_encoded({**raw, "spec": gated(raw["spec"])})))
        else:
            why = answer.effect if answer else "elasticity is not installed"
            skipped[name] = Placement(
                name, "any node" if _tolerates(raw) else "local node", f"not gated: {why}"
            )
    return skipped, arriving


def _placed(made: Plan, arriving: Sequence[Pod]) -> dict[str, Placement]:
    decided = {each.uid: each for each in made.actions if each.kind in PLACES}
    return {
        pod.metadata.name: Placement(pod.metadata.name, PLACES[action.kind], action.why)
        if (action := decided.get(pod.metadata.uid))
        else Placement(pod.metadata.name, "waits", made.waits.get(pod.metadata.uid, ""))
        for pod in arriving
    }


def _siblings(facts: ScaleFacts) -> Iterator[Pod]:
    keys = {decode(_encoded(each)).key for each in facts.replicas}
    return (each for each in facts.pods if each.key in keys)


def _later(budgets: Sequence[Budget], arriving: Sequence[Pod], now: datetime) -> Iterator[str]:
    for each in budgets:
        concerns = any(each.concerns(pod.metadata.namespace, pod.metadata.labels) for pod in arriving)
        begin = None if each.holds_at(now) or not concerns else each.begins_at(now)
        if begin:
            yield f"{SETTING}budgets limits {each} at {each.times}: not now, but from {rfc3339(begin)} on."


def _tolerates(raw: Raw) -> bool:
    return decode(_encoded(raw)).tolerates


def _encoded(raw: Raw) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(raw))


def new_pod(template: Raw, owner: Mapping[str, Any], name: str, now: datetime) -> Raw:
    """As the controller of *owner* would create it."""
    metadata = {
        **template.get("metadata", {}),
        "name": name,
        "namespace": owner["metadata"]["namespace"],
        "uid": f"simulated-{name}",
        "creationTimestamp": rfc3339(now),
        "ownerReferences": [
            {
                "apiVersion": "apps/v1",
                "kind": owner["kind"],
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
                "controller": True,
            }
        ],
    }
    return {"metadata": metadata, "spec": template["spec"], "status": {"phase": "Pending"}}


def replicas_of_deployment(replica_set: Raw, numbers: range, now: datetime) -> list[Raw]:
    base = replica_set["metadata"]["name"]
    template = replica_set["spec"]["template"]
    return [new_pod(template, replica_set, f"{base}-new-{each}", now) for each in numbers]


def replicas_of_stateful_set(stateful_set: Raw, numbers: range, now: datetime) -> list[Raw]:
    return [_ordinal(stateful_set, each, now) for each in numbers]


def _ordinal(stateful_set: Raw, number: int, now: datetime) -> Raw:
    spec, status = stateful_set["spec"], stateful_set.get("status", {})
    first = spec.get("ordinals", {}).get("start", 0)
    name = f"{stateful_set['metadata']['name']}-{first + number}"
    labels = {
        **(spec["template"].get("metadata", {}).get("labels") or {}),
        "apps.kubernetes.io/pod-index": str(first + number),
        "controller-revision-hash": status.get("updateRevision", ""),
        "statefulset.kubernetes.io/pod-name": name,
    }
    made = new_pod(spec["template"], stateful_set, name, now)
    claims = [
        {
            "name": each["metadata"]["name"],
            "persistentVolumeClaim": {"claimName": f"{each['metadata']['name']}-{name}"},
        }
        for each in spec.get("volumeClaimTemplates", ())
    ]
    volumes = [*made["spec"].get("volumes", ()), *claims]
    with_claims = {**made["spec"], "volumes": volumes} if claims else made["spec"]
    return {**made, "metadata": {**made["metadata"], "labels": labels}, "spec": with_claims}


def placed_by_elasticity(subject: Subject, _: Namespace, settings: Settings) -> str:
    """Why a pod like it would be placed, for a change of values."""
    if not settings.elasticity.enabled:
        return ""
    pod = NewPod(subject.metadata, NewSpec(tolerations=subject.spec.tolerations))
    affinity = subject.spec.affinity
    reaches = reaches_super_nodes(pod, {} if affinity is None else {"affinity": affinity})
    why, _warnings = gate_reason(pod, subject.metadata.namespace, settings.elasticity, reaches=reaches)
    return f"one like it is placed by elasticity: {why}" if why else ""
