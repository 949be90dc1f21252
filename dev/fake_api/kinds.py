"""The kinds that the API server serves, and how each behaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import yaml

from dev.fake_api import defaults, rules
from dev.fake_api.schema import Anything, Schema, Structural, Typed, defaults_of
from dev.lab.repository import ROOT
from kube.client import Resource

Raw = dict[str, Any]
Rule = Callable[[Raw | None, Raw], Iterator[str]]

# What makes metadata.generation count: nothing, a change of the spec, or of the annotations, too, or of all
# that is neither metadata nor status.
Generation = Literal["none", "spec", "spec and annotations", "body"]


@dataclass(frozen=True)
class Kind:
    """One kind; *unconditional* kinds may be replaced without a resourceVersion."""

    resource: Resource
    kind: str
    schema: Schema = field(default_factory=Anything)
    default: Callable[[Raw], None] = defaults.none
    prepare: Callable[[Raw | None, Raw], None] = defaults.prepared_other
    rules: tuple[Rule, ...] = (rules.metadata,)
    has_status: bool = False
    generation: Generation = "none"
    unconditional: bool = True
    graceful: bool = False
    custom: bool = False
    fields: frozenset[str] = frozenset()

    @property
    def selectable(self) -> frozenset[str]:
        own = {"metadata.name", "metadata.namespace"} if self.resource.namespaced else {"metadata.name"}
        return self.fields | own

    @property
    def described(self) -> str:
        """As errors name it."""
        return f"{self.resource.plural}.{self.resource.group}".rstrip(".")


def _kind(
    api_version: str, kind: str, plural: str = "", *, namespaced: bool = True, model: str = "", **parts: Any
) -> Kind:
    group, _, version = api_version.rpartition("/")
    resource = Resource(group, version, plural or f"{kind.lower()}s", namespaced)
    schema = Typed(model or f"{version.title()}{kind}")
    own = (parts.pop("rule"),) if "rule" in parts else ()
    return Kind(resource, kind, schema, rules=(rules.metadata, *own), **parts)


def _workload(
    kind: str, default: Callable[[Raw], None], generation: Generation = "spec", **parts: Any
) -> Kind:
    return _kind(
        "apps/v1",
        kind,
        default=default,
        rule=rules.workload,
        has_status=True,
        generation=generation,
        **parts,
    )


POD_FIELDS = frozenset(
    f"{part}.{name}"
    for part, names in {
        "spec": ("nodeName", "restartPolicy", "schedulerName", "serviceAccountName", "hostNetwork"),
        "status": ("phase", "podIP", "nominatedNodeName"),
    }.items()
    for name in names
)
EVENT_FIELDS = frozenset(
    {f"involvedObject.{each}" for each in ("kind", "namespace", "name", "uid", "apiVersion", "fieldPath")}
    | {"reason", "reportingComponent", "source", "type"}
)
RBAC = "rbac.authorization.k8s.io/v1"
REGISTRATION = "admissionregistration.k8s.io/v1"

BUILT_IN = (
    _kind(
        "v1",
        "Pod",
        default=defaults.pod,
        prepare=defaults.prepared_pod,
        rule=rules.pod,
        has_status=True,
        generation="spec",
        graceful=True,
        fields=POD_FIELDS,
    ),
    _kind(
        "v1",
        "Node",
        namespaced=False,
        default=defaults.node,
        prepare=defaults.prepared_node,
        rule=rules.node,
        has_status=True,
        fields=frozenset({"spec.unschedulable"}),
    ),
    _kind(
        "v1",
        "Namespace",
        namespaced=False,
        default=defaults.namespace,
        has_status=True,
        fields=frozenset({"status.phase"}),
    ),
    _kind("v1", "ConfigMap", rule=rules.immutable_data),
    _kind("v1", "Secret", default=defaults.secret, rule=rules.secret, fields=frozenset({"type"})),
    _kind("v1", "Service", has_status=True),
    _kind("v1", "ServiceAccount"),
    _kind("v1", "Event", model="CoreV1Event", fields=EVENT_FIELDS),
    _kind("v1", "PersistentVolume", namespaced=False, has_status=True),
    _kind("v1", "PersistentVolumeClaim", has_status=True),
    _kind("v1", "ResourceQuota", has_status=True),
    _workload("Deployment", defaults.deployment, "spec and annotations"),
    _workload("DaemonSet", defaults.daemon_set, prepare=defaults.prepared_daemon_set),
    _workload("StatefulSet", defaults.stateful_set),
    _kind("apps/v1", "ReplicaSet", default=defaults.replica_set, has_status=True, generation="spec"),
    _kind("apps/v1", "ControllerRevision", rule=rules.controller_revision),
    _kind("batch/v1", "Job", has_status=True, generation="spec"),
    _kind("coordination.k8s.io/v1", "Lease", rule=rules.lease, unconditional=False),
    _kind(RBAC, "Role", default=defaults.role),
    _kind(RBAC, "RoleBinding", default=defaults.role_binding, rule=rules.role_binding),
    _kind(RBAC, "ClusterRole", namespaced=False, default=defaults.role),
    _kind(
        RBAC, "ClusterRoleBinding", namespaced=False, default=defaults.role_binding, rule=rules.role_binding
    ),
    _kind(
        REGISTRATION,
        "MutatingWebhookConfiguration",
        namespaced=False,
        default=defaults.mutating_webhook_configuration,
        generation="body",
        unconditional=False,
    ),
    _kind(
        REGISTRATION,
        "ValidatingWebhookConfiguration",
        namespaced=False,
        default=defaults.webhook_configuration,
        generation="body",
        unconditional=False,
    ),
    _kind(REGISTRATION, "MutatingAdmissionPolicy", "mutatingadmissionpolicies", namespaced=False),
    _kind(REGISTRATION, "MutatingAdmissionPolicyBinding", namespaced=False),
    _kind("storage.k8s.io/v1", "StorageClass", "storageclasses", namespaced=False),
    _kind("policy/v1", "PodDisruptionBudget", has_status=True, generation="spec", unconditional=False),
)


def of_crd(raw: Raw) -> Iterator[Kind]:
    """The kinds that a CRD defines, one for each served version."""
    spec = raw["spec"]
    names = spec["names"]
    for each in spec["versions"]:
        schema = each["schema"]["openAPIV3Schema"]
        resource = Resource(
            spec["group"], each["name"], names["plural"], namespaced=spec["scope"] == "Namespaced"
        )
        yield Kind(
            resource,
            names["kind"],
            Structural(schema),
            defaults_of(schema),
            rules=(rules.metadata, rules.required(schema)),
            has_status="status" in each.get("subresources", {}),
            generation="body",
            unconditional=False,
            custom=True,
        )


def from_file(path: str) -> tuple[Kind, ...]:
    """The kinds of the CRDs in the repository's file *path*."""
    documents: Iterable[Raw] = yaml.load_all((ROOT / path).read_text(), yaml.CSafeLoader)
    return tuple(kind for raw in documents if raw for kind in of_crd(raw))


def definition(path: str, part: str) -> Raw:
    """The schema of a *part* of the objects that the CRD in the repository's file *path* defines."""
    versions = yaml.load((ROOT / path).read_text(), yaml.CSafeLoader)["spec"]["versions"]
    found: Raw = versions[0]["schema"]["openAPIV3Schema"]["properties"][part]
    return found


INGRESS_DAEMONSETS = from_file("charts/drawbridge/files/ingressdaemonsets.yaml")
CALICO_V3 = from_file("dev/lab/crds/projectcalico.org_ipreservations.yaml")
CALICO_V1 = from_file("dev/lab/crds/crd.projectcalico.org_ipreservations.yaml")
