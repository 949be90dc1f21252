"""The objects of an IngressDaemonSet: as they are read, the Deployment that a node should have, and what a plan writes.

An action is one request; a change applies only to the version that it was decided on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Literal, NamedTuple

import msgspec

from api.health_checks import deployment_name, shortened
from api.ingress_daemonset import API_VERSION, KIND, NODE_LABEL, TEMPLATE_HASH
from api.ingress_daemonset.template import template_of, tolerations
from api.ingress_daemonset.types import IngressDaemonSet, is_some
from kube.types import Condition, ObjectMeta, Value

LONG_AGO = datetime.fromisoformat("1970-01-01T00:00:00+00:00")

Kind = Literal["Deployment", "DaemonSet", "RoleBinding", "ControllerRevision", "Node", "IngressDaemonSet"]


class Target(NamedTuple):
    """The object that an action is for; *namespace* is empty for a Node."""

    kind: Kind
    namespace: str
    name: str

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def target(kind: Kind, metadata: ObjectMeta) -> Target:
    return Target(kind, metadata.namespace, metadata.name)


@dataclass(frozen=True)
class Create:
    target: Target
    body: Mapping[str, Any]


@dataclass(frozen=True)
class Change:
    """A merge patch of the object, or of a *subresource* of it."""

    target: Target
    body: Mapping[str, Any]
    subresource: str = ""


@dataclass(frozen=True)
class Delete:
    """Only of the object with this uid."""

    target: Target
    uid: str


Action = Create | Change | Delete


Seen = Mapping[tuple[Target, datetime], datetime]


@dataclass(frozen=True)
class Writes:
    """What is known of the controller's writes, but not visible in the objects.

    A write may still arrive at an *uncertain* target. What is wanted of a *refused* one is refused, with these words.
    *seen* is when this process first saw a target with the mark of a time: it stays while the mark does, so that it is
    not compared.
    """

    uncertain: frozenset[Target] = frozenset()
    refused: Mapping[Target, str] = field(default_factory=dict)
    seen: Seen = field(default_factory=dict, compare=False)

    def began(self, marked_at: datetime, marked: Target) -> datetime:
        """From when a grace counts: by our clock, whatever the one shows by which it was *marked*."""
        return self.seen.get((marked, marked_at), marked_at)

    def refusal(self, target: Target) -> str | None:
        """That a change of *target* is refused, and why; None while it is not."""
        why = self.refused.get(target)
        return f"the API server refuses to change {target.kind} {target.name}: {why}" if why else None

    def about(self, targets: Sequence[Target]) -> Sequence[object]:
        """What is known of writes to *targets*."""
        return [(each in self.uncertain, self.refused.get(each)) for each in targets]

    @property
    def may_detach(self) -> bool:
        return any(each.kind == "Node" for each in self.uncertain)


def create(body: Mapping[str, Any]) -> Create:
    metadata = body["metadata"]
    return Create(Target(body["kind"], metadata["namespace"], metadata["name"]), body)


def change(
    kind: Kind,
    held: ObjectMeta,
    metadata: Mapping[str, Any],
    subresource: str = "",
    **parts: Any,
) -> Change:
    """Of *metadata* and of other *parts* of the object; empty parts are left out."""
    body: dict[str, Any] = {"metadata": {**metadata, **held.guard}}
    body |= {name: part for name, part in parts.items() if part}
    return Change(target(kind, held), body, subresource)


def delete(kind: Kind, held: ObjectMeta) -> Delete:
    return Delete(target(kind, held), held.uid)


DEFAULT_GRACE = 30
"""Seconds: the API server's default."""
COMPLETE, STUCK = "NewReplicaSetAvailable", "ProgressDeadlineExceeded"
"""Reasons of the condition Progressing of a Deployment: its rollout has ended, or is late by its own deadline."""


class Child(Value, frozen=True, dict=True):
    metadata: ObjectMeta = ObjectMeta()

    def is_of(self, uid: str) -> bool:
        owner = self.metadata.controller
        return owner is not None and owner.uid == uid

    def is_managed(self, uid: str, body: Mapping[str, Any]) -> bool:  # noqa: ARG002 - see Workload
        """Whether it is ours, and can be changed into *body*."""
        return self.is_of(uid)

    @property
    def is_terminating(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    def missing_labels(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """What of its metadata gives it all labels of *body*; nothing while it has them.

        Without its label, no informer follows an object, and another leader would not find it to delete it.
        """
        labels: dict[str, str] = body["metadata"]["labels"]
        return {} if labels.items() <= self.metadata.labels.items() else {"labels": labels}


class WorkloadStatus(Value, frozen=True):
    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    available_replicas: int = 0
    conditions: tuple[Condition, ...] = ()
    desired_number_scheduled: int = 0
    """Nodes of a DaemonSet, and those of them that have a pod of its present template."""
    updated_number_scheduled: int = 0


class Workload(Child, frozen=True, dict=True):
    """A Deployment or a DaemonSet; *spec* is raw, to be compared with the desired one."""

    spec: dict[str, Any] = {}
    status: WorkloadStatus = WorkloadStatus()

    @property
    def node(self) -> str:
        """On which the pods of a Deployment run."""
        return str(((self.spec.get("template") or {}).get("spec") or {}).get("nodeName", ""))

    @property
    def replicas(self) -> int:
        return int(self.spec.get("replicas", 1))

    @property
    def min_ready_seconds(self) -> int:
        return int(self.spec.get("minReadySeconds", 0))

    @property
    def termination_grace(self) -> int:
        """Of its pods, in seconds."""
        pod = (self.spec.get("template") or {}).get("spec") or {}
        return int(pod.get("terminationGracePeriodSeconds", DEFAULT_GRACE))

    @property
    def available(self) -> bool:
        """Whether health checks may pass; another writer may have scaled it to 0."""
        return self.status.available_replicas >= max(1, self.replicas)

    @property
    def rolled_out(self) -> bool:
        """All pods have the current template and are available, and no other pod is left."""
        observed, status = self.status.observed_generation >= self.metadata.generation, self.status
        complete = status.replicas == status.updated_replicas == self.replicas
        return observed and complete and self.available

    @property
    def lacks(self) -> str:
        """What is left of its update beside pods that are not available; empty for nothing."""
        status, pods = self.status, f"{self.status.available_replicas} of {self.replicas} are available"
        if status.observed_generation < self.metadata.generation:
            return "the Deployment controller has not begun with its new template"
        if status.updated_replicas < self.replicas:
            return f"{status.updated_replicas} of {self.replicas} pods have the new template; {pods}"
        if status.replicas > status.updated_replicas:
            return f"pods of the former template are still there: {status.replicas - status.updated_replicas}; {pods}"
        return ""

    @property
    def progress(self) -> str:
        """The reason of its condition Progressing: how far its last rollout is; pods may have been lost since."""
        return next((each.reason for each in self.status.conditions if each.type == "Progressing"), "")

    @cached_property
    def template_digest(self) -> str:
        """The same on all nodes that have the same template."""
        return shared_digest(self.spec.get("template") or {})

    @cached_property
    def spec_digest(self) -> str:
        return digest({**self.spec, "template": without_timestamp(self.spec.get("template") or {})})

    def is_managed(self, uid: str, body: Mapping[str, Any]) -> bool:
        """The selector can never be changed; the original controller gave its Deployments another one."""
        wanted: dict[str, Any] = body["spec"]["selector"]
        return self.is_of(uid) and bool(self.spec.get("selector", wanted) == wanted)


class Grant(Child, frozen=True, dict=True):
    """A RoleBinding; the API server writes an empty list as null."""

    role: dict[str, Any] = msgspec.field(name="roleRef", default_factory=dict)
    subjects: list[dict[str, Any]] | None = None


Children = Mapping[Kind, Sequence[Any]]
"""By kind: objects of a namespace that bear a label of ours, and unmanaged ones of our names."""


Raw = Mapping[str, Any]
HISTORY = 1
"""Old ReplicaSets per node; they are never rolled back to."""


def deployment(resource: IngressDaemonSet, node: str) -> dict[str, Any]:
    template = template_for(resource, node)
    labels = {**resource.spec.selector.match_labels, NODE_LABEL: shortened(node)}
    own = metadata(resource, deployment_name(resource.metadata.name, node), labels)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": own | {"annotations": {TEMPLATE_HASH: digest(template)}},
        "spec": {
            **settings_of(resource),
            **size_of(resource),
            "selector": {"matchLabels": labels},
            "template": template,
        },
    }


def metadata(resource: IngressDaemonSet, name: str, labels: Mapping[str, str]) -> dict[str, Any]:
    owner = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": resource.metadata.name,
        "uid": resource.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    whole = {"name": name, "namespace": resource.metadata.namespace, "labels": dict(labels)}
    return whole | {"ownerReferences": [owner]}


def size_of(resource: IngressDaemonSet) -> dict[str, Any]:
    """The fields by which health checks are judged: with other ones, a node may fail them until it has more pods."""
    return {"replicas": resource.spec.pods_per_node, "minReadySeconds": resource.spec.min_ready_seconds}


def settings_of(resource: IngressDaemonSet) -> dict[str, Any]:
    """The fields that can change without an effect on pods or health checks."""
    return {
        "progressDeadlineSeconds": resource.spec.progress_deadline_seconds,
        "revisionHistoryLimit": HISTORY,
        # The IngressDaemonSet pauses a rollout; a paused Deployment would hold up its node silently.
        "paused": False,
        "strategy": _strategy(resource),
    }


AT_ONCE = "100%"


def stops_all(settings: Mapping[str, Any]) -> bool:
    """Whether a Deployment with these stops all pods of the former template at once."""
    rolling = (settings.get("strategy") or {}).get("rollingUpdate") or {}
    return bool(rolling.get("maxUnavailable") == AT_ONCE)


def _strategy(resource: IngressDaemonSet) -> dict[str, Any]:
    if (shares_ports(resource) or has_host_ports(resource.spec.template)) and not _crowds(resource):
        # The kubelet refuses a pod while another holds its ports, even a terminating one.
        return {"type": "Recreate"}
    rolling = resource.spec.update_strategy.rolling_update
    surge, unavailable = rolling.max_surged_pods_per_node, rolling.max_unavailable_pods_per_node
    if rolling.detaches:
        unavailable = AT_ONCE
    elif not is_some(unavailable) and not is_some(surge):
        # The API server refuses a Deployment in which both are 0.
        unavailable = 1
    return {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": unavailable, "maxSurge": surge}}


def template_for(resource: IngressDaemonSet, node: str) -> dict[str, Any]:
    template = resource.spec.template
    meta, spec = template.get("metadata") or {}, template.get("spec") or {}
    if shares_ports(resource) and _crowds(resource):
        spec = without_ports(spec)
    tolerated = [msgspec.to_builtins(each) for each in tolerations(template_of(resource.spec).spec)]
    labels = {**(meta.get("labels") or {}), NODE_LABEL: shortened(node)}
    spec = {**spec, "nodeName": node, "tolerations": tolerated}
    return {"metadata": {**meta, "labels": labels}, "spec": spec}


def shares_ports(resource: IngressDaemonSet) -> bool:
    return bool((resource.spec.template.get("spec") or {}).get("hostNetwork"))


def has_host_ports(template: Raw) -> bool:
    """Whether a pod lists ports of its node, though it may not be in the host's network."""
    pod = template.get("spec") or {}
    containers = (each for name in ("containers", "initContainers") for each in pod.get(name) or ())
    return any(port.get("hostPort") for each in containers for port in each.get("ports") or ())


def _crowds(resource: IngressDaemonSet) -> bool:
    """Whether a node may have to run two of the pods at a time."""
    surge = resource.spec.update_strategy.rolling_update.max_surged_pods_per_node
    return resource.spec.pods_per_node > 1 or is_some(surge)


class Version(NamedTuple):
    """What nodes are to have: the *revision* ends the name of the ControllerRevision of what the user writes.

    *template* is a digest of it as nodes get it, and *all* of its size, too. When it *is_current*, it is the last one
    that all nodes had: the way back to it waits for nothing.
    """

    revision: str
    template: str
    all: str
    is_current: bool


def version_of(resource: IngressDaemonSet) -> Version:
    revision, stored = revision_of_template(resource.spec.template), resource.stored
    template = shared_digest(template_for(resource, ""))[:10]
    everything = digest({"template": template, **size_of(resource)})[:10]
    is_current = revision == stored.current_revision and stored.current_digest in ("", template)
    return Version(revision, template, everything, is_current)


def revision_of_template(template: Raw) -> str:
    return digest(without_timestamp(template))[:10]


def digest(template: Raw) -> str:
    return hashlib.sha256(msgspec.json.encode(template, order="deterministic")).hexdigest()[:16]


def shared_digest(template: Raw) -> str:
    """A digest of all but the node's name and its label, so that it is the same on all nodes."""
    template = without_timestamp(template)
    meta, pod = template["metadata"], template.get("spec") or {}
    labels = _without(meta.get("labels") or {}, NODE_LABEL)
    return digest({**template, "metadata": {**meta, "labels": labels}, "spec": _without(pod, "nodeName")})


def without_timestamp(template: Raw) -> dict[str, Any]:
    """Some versions of the API server write a null where others write nothing."""
    return {**template, "metadata": _without(template.get("metadata") or {}, "creationTimestamp")}


def _without(part: Raw, key: str) -> dict[str, Any]:
    return {name: value for name, value in part.items() if name != key}


def without_ports(spec: Raw) -> dict[str, Any]:
    """A pod's *spec* without port lists, in which probes and hooks have numbers instead of names.

    The kubelet refuses a second pod on a node that lists the same ports of the host.
    """
    lists = {name: spec[name] for name in ("containers", "initContainers") if spec.get(name)}
    return {**spec} | {name: [_bare(each) for each in containers] for name, containers in lists.items()}


def _bare(container: Raw) -> dict[str, Any]:
    ports = {port.get("name"): port.get("containerPort") for port in container.get("ports") or ()}
    bare = _numbered(_without(container, "ports"), ("livenessProbe", "readinessProbe", "startupProbe"), ports)
    if hooks := bare.get("lifecycle"):
        bare["lifecycle"] = _numbered(hooks, ("postStart", "preStop"), ports)
    return bare


def _numbered(parts: Raw, handlers: tuple[str, ...], ports: Mapping[str, int]) -> dict[str, Any]:
    """*parts*, with numbers for the named ports of those that are *handlers*."""
    found = {**parts}
    for handler in handlers:
        for asking in ("httpGet", "tcpSocket"):
            asked = (found.get(handler) or {}).get(asking)
            if asked and isinstance(asked.get("port"), str):
                number = ports.get(asked["port"], asked["port"])
                found[handler] = {**found[handler], asking: {**asked, "port": number}}
    return found
