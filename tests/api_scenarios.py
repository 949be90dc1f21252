"""Sequences of requests, for the real API server and for the fake one, and what of the answers must be the same."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from api.ingress_daemonset import INGRESS_DAEMONSETS
from kube.client import Client, Resource
from kube.errors import ApiError
from kube.resources import CONFIG_MAPS, DAEMON_SETS, DEPLOYMENTS, LEASES, NODES, PODS, STATEFUL_SETS
from kube.transport import Typed

Raw = dict[str, Any]
CONTROLLER_REVISIONS = Resource("apps", "v1", "controllerrevisions")
SECRETS = Resource("", "v1", "secrets")
ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles")
BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings")
VOLATILE = {"uid", "resourceVersion", "creationTimestamp", "managedFields", "selfLink", "namespace"}
# What only a request's namespace decides, or the cluster's own admission of secrets and tokens.
ANY = "(anything)"


@dataclass(frozen=True)
class Step:
    """One request; *body* may be made of the object as it was answered last."""

    verb: str
    resource: Resource
    name: str = "a"
    body: Any = None
    query: Mapping[str, object] = field(default_factory=dict)
    content_type: str = ""
    subresource: str = ""


@dataclass(frozen=True)
class Outcome:
    """What is compared: an error's status and reason, or the object and whether it has a new version."""

    error: tuple[int, str] | None = None
    object: Raw | None = None
    is_written: bool = False


def create(resource: Resource, body: Any, name: str = "a", **query: object) -> Step:
    return Step("POST", resource, name, body, query)


def patch(resource: Resource, body: Any, name: str = "a", **query: object) -> Step:
    return Step("PATCH", resource, name, body, query)


def operate(resource: Resource, *operations: Raw, name: str = "a") -> Step:
    return Step("PATCH", resource, name, list(operations))


def replace(resource: Resource, change: Callable[[Raw], object], name: str = "a") -> Step:
    def changed(held: Raw) -> Raw:
        new = copy.deepcopy(held)
        change(new)
        return new

    return Step("PUT", resource, name, changed)


def status(resource: Resource, body: Any, name: str = "a") -> Step:
    return Step("PATCH", resource, name, body, subresource="status")


def bind(name: str = "a", **fields: object) -> Step:
    """A pod, to a node, as a scheduler does."""
    return Step("POST", PODS, name, {"apiVersion": "v1", "kind": "Binding", **fields}, subresource="binding")


def evict(name: str = "a", **options: object) -> Step:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "deleteOptions": options}
    return Step("POST", PODS, name, body, subresource="eviction")


def delete(resource: Resource, body: Any = None, name: str = "a") -> Step:
    return Step("DELETE", resource, name, body)


def get(resource: Resource, name: str = "a") -> Step:
    return Step("GET", resource, name)


def run(client: Client, namespace: str, steps: Sequence[Step]) -> list[Outcome]:
    """The outcome of each step; names of objects that stand in no namespace get that of the namespace added."""
    held: dict[tuple[Resource, str], Raw] = {}
    outcomes = []
    for step in steps:
        name = step.name if step.resource.namespaced else f"{namespace}-{step.name}"
        key = (step.resource, name)
        outcomes.append(_run(client, namespace, name, step, held.get(key, {})))
        found = _read(client, step.resource, name, namespace)
        if found:
            held[key] = found
    return outcomes


def _run(client: Client, namespace: str, name: str, step: Step, before: Raw) -> Outcome:
    body = step.body(before) if callable(step.body) else copy.deepcopy(step.body)
    if step.verb == "POST":
        body["metadata"] = {"name": name} | body.get("metadata", {})
    is_new = step.verb == "POST" and not step.subresource
    path = step.resource.sub(step.subresource).path(namespace, None if is_new else name)
    if step.content_type:
        body = Typed(step.content_type, body)
    try:
        answer: Raw = client.request(step.verb, path, body=body, query=step.query)
    except ApiError as error:
        return Outcome(error=(error.status, error.reason))
    if answer.get("kind") == "Status":
        return Outcome(is_written=True)
    version = answer["metadata"].get("resourceVersion", "")
    return Outcome(
        object=compared(answer), is_written=version != before.get("metadata", {}).get("resourceVersion", "")
    )


def _read(client: Client, resource: Resource, name: str, namespace: str) -> Raw | None:
    try:
        return client.get(resource, name, namespace)
    except ApiError:
        return None


def compared(raw: Raw) -> Raw:
    """Without what differs from one cluster to the next."""
    metadata = {name: each for name, each in raw["metadata"].items() if name not in VOLATILE}
    metadata["name"] = metadata["name"].rpartition("-")[2]
    metadata["in a namespace"] = "namespace" in raw["metadata"]
    if "deletionTimestamp" in metadata:
        metadata["deletionTimestamp"] = ANY
    found = {**raw, "metadata": metadata}
    for each in found.get("status", {}).get("conditions", ()):
        if each.get("lastTransitionTime"):
            each["lastTransitionTime"] = ANY
    return found


LABELS = {"app": "web"}
CONTAINER = {"name": "proxy", "image": "proxy:1"}


def workload(pod: Raw | None = None, **spec: Any) -> Raw:
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [CONTAINER], **(pod or {})}}
    return {"spec": {"selector": {"matchLabels": LABELS}, "template": template, **spec}}


EVERYTHING: Raw = {
    "hostNetwork": True,
    "hostPID": False,
    "serviceAccountName": "proxy",
    "nodeSelector": {},
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "initContainers": [{"name": "first", "image": "first", "env": []}],
    "volumes": [
        {"name": "empty"},
        {"name": "config", "configMap": {"name": "c"}},
        {"name": "secret", "secret": {"secretName": "s"}},
        {"name": "host", "hostPath": {"path": "/srv"}},
        {
            "name": "api",
            "downwardAPI": {"items": [{"path": "a", "fieldRef": {"fieldPath": "metadata.labels"}}]},
        },
        {"name": "all", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
    ],
    "containers": [
        {
            "name": "proxy",
            "image": "registry/proxy@sha256:" + "0" * 64,
            "tty": False,
            "stdin": True,
            "env": [
                {"name": "A", "value": ""},
                {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            ],
            "ports": [{"containerPort": 80}, {"containerPort": 81, "name": "x", "protocol": "UDP"}],
            "resources": {"limits": {"cpu": 1, "memory": "64Mi"}},
            "livenessProbe": {"httpGet": {"port": 80}, "initialDelaySeconds": 0},
            "readinessProbe": {"tcpSocket": {"port": 80}, "periodSeconds": 5},
            "lifecycle": {"preStop": {"httpGet": {"port": 80}}},
            "volumeMounts": [{"name": "empty", "mountPath": "/e", "readOnly": False}],
            "securityContext": {},
        },
        {"name": "latest", "image": "other:latest"},
    ],
}
TYPO = {"dnsPolcy": "Default", "containers": [{**CONTAINER, "imagPullPolicy": "Always"}]}
GATED = {
    "spec": {
        "containers": [CONTAINER],
        "schedulingGates": [{"name": "example.com/gate"}],
        "automountServiceAccountToken": False,
    }
}
PLACED = {
    "spec": {
        "containers": [CONTAINER],
        "nodeName": "n",
        "automountServiceAccountToken": False,
        "tolerations": [{"operator": "Exists"}],
    }
}
UNSCHEDULED = {**GATED["spec"], "schedulingGates": None, "schedulerName": "nobody"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def node_affinity(*expressions: Raw) -> Raw:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": list(expressions)}]}}}


ZONE = {"key": "zone", "operator": "In", "values": ["a"]}
KIND = {"key": "kind", "operator": "Exists"}

IDENTITY = {"apiVersion": INGRESS_DAEMONSETS.api_version, "kind": "IngressDaemonSet"}

WITHOUT_PORT = {"rollingUpdate": {"waitForConnections": {"endpoint": {"path": "/metrics"}}}}

SCENARIOS: dict[str, list[Step]] = {
    "a Deployment is defaulted, and a write of what is there is none": [
        create(DEPLOYMENTS, workload(replicas=0)),
        patch(DEPLOYMENTS, {"spec": {"replicas": 0}}),
        patch(DEPLOYMENTS, {"spec": workload(replicas=0)["spec"]}),
        patch(DEPLOYMENTS, {"spec": {"revisionHistoryLimit": 10}}),
        replace(DEPLOYMENTS, lambda raw: None),
        patch(DEPLOYMENTS, {"spec": {"paused": True}}),
        patch(DEPLOYMENTS, {"spec": {"paused": False}}),
        patch(DEPLOYMENTS, {"spec": {"paused": None}}),
        patch(DEPLOYMENTS, {"metadata": {"labels": {"a": "b"}}}),
        patch(DEPLOYMENTS, {"metadata": {"annotations": {"a": "b"}}}),
        patch(DEPLOYMENTS, {"metadata": {"annotations": {}}}),
        patch(DEPLOYMENTS, {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}}),
        patch(DEPLOYMENTS, {"spec": {"template": {"spec": {"nodeSelector": None}}}}),
        status(DEPLOYMENTS, {"status": {"replicas": 2}, "spec": {"replicas": 7}}),
        patch(DEPLOYMENTS, {"status": {"replicas": 3}}),
        patch(DEPLOYMENTS, {"spec": {"replicas": 5}}, dryRun="All"),
        get(DEPLOYMENTS),
        delete(DEPLOYMENTS),
        get(DEPLOYMENTS),
    ],
    "a full pod template is pruned and defaulted": [
        create(DEPLOYMENTS, workload(EVERYTHING, replicas=0, minReadySeconds=0)),
        create(DAEMON_SETS, workload({**EVERYTHING, "nodeSelector": {"no": "node"}})),
        create(DEPLOYMENTS, workload(TYPO, replicas=0), "b"),
        create(DEPLOYMENTS, workload(TYPO, replicas=0), "c", fieldValidation="Strict"),
        create(DEPLOYMENTS, workload(replicas=0), "c", fieldValidation="Strict", dryRun="All"),
        get(DEPLOYMENTS, "c"),
        patch(DEPLOYMENTS, {"spec": {"template": {"spec": TYPO}}}, "b", fieldValidation="Strict"),
        patch(DEPLOYMENTS, {"spec": {"template": {"spec": TYPO}}}, "b"),
        create(DEPLOYMENTS, workload({"hostNetwork": "yes"}, replicas=0), "d"),
        create(DEPLOYMENTS, workload(replicas="1"), "d"),
        create(DEPLOYMENTS, workload({"containers": []}), "d"),
        create(DEPLOYMENTS, workload({"containers": [{"name": "a"}]}), "d"),
        create(DEPLOYMENTS, workload({"restartPolicy": "Never"}), "d"),
        create(DEPLOYMENTS, workload(selector={"matchLabels": {"app": "other"}}), "d"),
    ],
    "a ControllerRevision keeps its data, and a JSON patch of an old version conflicts": [
        create(
            CONTROLLER_REVISIONS, {"revision": 1, "data": {"spec": {"template": {"any": ["thing", None]}}}}
        ),
        patch(CONTROLLER_REVISIONS, {"revision": 3}),
        patch(CONTROLLER_REVISIONS, {"data": {"spec": {"template": {"other": 1}}}}),
        patch(CONTROLLER_REVISIONS, {"revision": -1}),
        operate(CONTROLLER_REVISIONS, {"op": "replace", "path": "/metadata/resourceVersion", "value": "1"}),
        create(CONTROLLER_REVISIONS, {"revision": 1, "data": {}}),
        get(CONTROLLER_REVISIONS),
    ],
    "a DaemonSet and a StatefulSet are defaulted": [
        create(DAEMON_SETS, workload({"nodeSelector": {"no": "node"}})),
        create(
            DAEMON_SETS, workload({"nodeSelector": {"no": "node"}}, updateStrategy={"type": "OnDelete"}), "b"
        ),
        patch(DAEMON_SETS, {"spec": {"minReadySeconds": 0}}),
        patch(DAEMON_SETS, {"metadata": {"annotations": {"a": "b"}}}),
        patch(DAEMON_SETS, {"spec": {"selector": {"matchLabels": {"app": "x"}}}}),
        create(STATEFUL_SETS, workload(replicas=0, serviceName="s")),
    ],
    "versions, uids and names are guarded": [
        create(CONFIG_MAPS, {"data": {"a": "b"}}),
        create(CONFIG_MAPS, {"data": {"a": "b"}}),
        create(CONFIG_MAPS, {"metadata": {"resourceVersion": "1"}}, "b"),
        create(CONFIG_MAPS, {"metadata": {"uid": "mine", "generation": 7, "labels": {}}, "data": {}}, "c"),
        create(CONFIG_MAPS, {"dat": {"a": "b"}}, "d"),
        patch(CONFIG_MAPS, {"metadata": {"resourceVersion": "1"}, "data": {"a": "c"}}),
        patch(CONFIG_MAPS, {"metadata": {"uid": "other"}, "data": {"a": "c"}}),
        patch(CONFIG_MAPS, {"metadata": {"uid": "other", "resourceVersion": "1"}, "data": {"a": "c"}}),
        patch(CONFIG_MAPS, {"metadata": {"resourceVersion": "1"}}),
        patch(CONFIG_MAPS, {"data": {"a": None}}),
        replace(CONFIG_MAPS, lambda raw: raw.update(data={"x": "y"})),
        replace(CONFIG_MAPS, lambda raw: raw["metadata"].pop("namespace") and raw.update(data={"x": "z"})),
        replace(CONFIG_MAPS, lambda raw: raw["metadata"].update(namespace="other")),
        replace(CONFIG_MAPS, lambda raw: raw["metadata"].update(resourceVersion="1")),
        replace(CONFIG_MAPS, lambda raw: raw["metadata"].pop("resourceVersion") and raw.update(data={})),
        replace(CONFIG_MAPS, lambda raw: raw["metadata"].update(name="other")),
        replace(CONFIG_MAPS, lambda raw: raw.update(metadata={"name": "absent"}), "absent"),
        patch(CONFIG_MAPS, {"data": {}}, "absent"),
        delete(CONFIG_MAPS, {"preconditions": {"uid": "other"}}),
        delete(CONFIG_MAPS, {"preconditions": {"resourceVersion": "1"}}),
        delete(CONFIG_MAPS),
        delete(CONFIG_MAPS),
        replace(CONFIG_MAPS, lambda raw: raw.update(data={"x": "y"})),
        replace(CONFIG_MAPS, lambda raw: raw["metadata"].pop("uid")),
    ],
    "JSON patches apply whole or not at all": [
        create(CONFIG_MAPS, {"data": {"a": "b"}}),
        operate(
            CONFIG_MAPS,
            {"op": "test", "path": "/data/a", "value": "b"},
            {"op": "replace", "path": "/data/a", "value": "c"},
        ),
        operate(
            CONFIG_MAPS,
            {"op": "test", "path": "/data/a", "value": "b"},
            {"op": "replace", "path": "/data/a", "value": "d"},
        ),
        operate(CONFIG_MAPS, {"op": "remove", "path": "/data/absent"}),
        operate(CONFIG_MAPS, {"op": "add", "path": "/data/b", "value": "e"}),
        operate(CONFIG_MAPS, {"op": "add", "path": "/data/b", "value": "e"}),
        Step("PATCH", CONFIG_MAPS, body={}, content_type="application/json"),
    ],
    "a pod gets the annotations of its Binding, and no second node": [
        create(PODS, {"metadata": {"annotations": {"a": "b"}}, "spec": UNSCHEDULED}),
        bind(metadata={"annotations": {"a": "c", "d": "e"}}, target={"kind": "Node", "name": "n"}),
        patch(PODS, {"metadata": {"labels": {"f": "g"}}}),
        bind(target={"kind": "Node", "name": "m"}),
    ],
    "an eviction says so on the pod, and deletes it": [
        create(PODS, PLACED),
        status(PODS, {"status": {"phase": "Running"}}),
        evict(preconditions={"uid": "other"}),
        evict(preconditions={"resourceVersion": "1"}),
        evict(),
        get(PODS),
        evict(),
        delete(PODS, {"gracePeriodSeconds": 0}),
        evict(),
        create(PODS, GATED, "b"),
        evict("b"),
        get(PODS, "b"),
    ],
    "finalizers hold an object until they are gone": [
        create(CONFIG_MAPS, {"metadata": {"finalizers": ["example.com/a"]}}),
        delete(CONFIG_MAPS),
        delete(CONFIG_MAPS),
        patch(CONFIG_MAPS, {"metadata": {"finalizers": ["example.com/a", "example.com/b"]}}),
        patch(CONFIG_MAPS, {"data": {"a": "b"}}),
        patch(CONFIG_MAPS, {"metadata": {"deletionTimestamp": None}}),
        patch(CONFIG_MAPS, {"metadata": {"finalizers": None}}),
        get(CONFIG_MAPS),
        create(DEPLOYMENTS, workload(replicas=0) | {"metadata": {"finalizers": ["example.com/a"]}}),
        delete(DEPLOYMENTS),
        patch(DEPLOYMENTS, {"metadata": {"finalizers": []}}),
        get(DEPLOYMENTS),
    ],
    "a pod's spec is fixed but for few fields": [
        create(PODS, GATED),
        patch(PODS, {"spec": {"nodeSelector": {"a": "b"}}}),
        patch(PODS, {"spec": {"nodeSelector": {"a": "c"}}}),
        patch(PODS, {"spec": {"affinity": node_affinity(ZONE)}}),
        patch(PODS, {"spec": {"affinity": node_affinity(ZONE, KIND)}}),
        patch(PODS, {"spec": {"affinity": node_affinity(ZONE)}}),
        patch(PODS, {"spec": {"schedulingGates": [{"name": "example.com/other"}]}}),
        patch(PODS, {"spec": {"tolerations": []}}),
        operate(
            PODS, {"op": "add", "path": "/spec/tolerations/-", "value": {"key": "a", "operator": "Exists"}}
        ),
        patch(PODS, {"spec": {"priority": 7}}),
        patch(PODS, {"metadata": {"annotations": {"a": "b"}}}),
        patch(PODS, {"spec": {"schedulingGates": None}}),
        patch(PODS, {"spec": {"nodeSelector": {"a": "b", "c": "d"}}}),
        patch(PODS, {"spec": {"containers": [{**CONTAINER, "image": "proxy:2"}]}}),
        patch(PODS, {"spec": {"containers": [{**CONTAINER, "env": [{"name": "A", "value": "b"}]}]}}),
        status(PODS, {"status": {"phase": "Running", "podIP": "10.0.0.1"}, "spec": {"hostname": "x"}}),
        delete(PODS),
        get(PODS),
        create(PODS, {"spec": {**GATED["spec"], "nodeName": "n"}}, "b"),
    ],
    "a pod on a node ends within its grace period": [
        create(PODS, PLACED),
        delete(PODS),
        delete(PODS, {"gracePeriodSeconds": 60}),
        delete(PODS, {"gracePeriodSeconds": 0}),
        get(PODS),
        create(PODS, PLACED, "b"),
        delete(PODS, {"gracePeriodSeconds": 60}, "b"),
        delete(PODS, None, "b"),
        status(PODS, {"status": {"phase": "Succeeded"}}, "b"),
        delete(PODS, None, "b"),
        delete(PODS, {"gracePeriodSeconds": 20}, "b"),
        delete(PODS, {"gracePeriodSeconds": 0}, "b"),
        get(PODS, "b"),
        create(PODS, {**PLACED, "metadata": {"finalizers": ["example.com/a"]}}, "c"),
        delete(PODS, None, "c"),
        patch(PODS, {"metadata": {"finalizers": None}}, "c"),
        get(PODS, "c"),
        patch(PODS, {"metadata": {"finalizers": ["example.com/a"]}}, "c"),
        delete(PODS, {"gracePeriodSeconds": 0}, "c"),
        get(PODS, "c"),
    ],
    "leases, secrets and RBAC": [
        create(LEASES, {"spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}}),
        replace(LEASES, lambda raw: raw["spec"].update(holderIdentity="b")),
        replace(LEASES, lambda raw: raw["metadata"].pop("resourceVersion")),
        replace(LEASES, lambda raw: raw["spec"].update(leaseDurationSeconds=0)),
        create(SECRETS, {"data": {"a": "Yg=="}}),
        patch(SECRETS, {"type": "other"}),
        create(ROLES, {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
        patch(ROLES, {"rules": []}),
        create(
            BINDINGS,
            {
                "roleRef": {"apiGroup": ROLES.group, "kind": "Role", "name": "a"},
                "subjects": [
                    {"kind": "User", "name": "u"},
                    {"kind": "ServiceAccount", "name": "s", "namespace": "default"},
                ],
            },
        ),
        patch(BINDINGS, {"roleRef": {"name": "b"}}),
    ],
    "a node": [
        create(NODES, {"metadata": {"labels": {"x": "y"}}, "spec": {"providerID": "cloud:///1"}}),
        patch(NODES, {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}),
        patch(NODES, {"spec": {"taints": []}}),
        patch(NODES, {"spec": {"providerID": "cloud:///2"}}),
        patch(NODES, {"spec": {"unschedulable": True}}),
        patch(NODES, {"spec": {"unschedulable": False}}),
        status(
            NODES,
            {
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
                "metadata": {"annotations": {"a": "b"}},
            },
        ),
        patch(NODES, {"metadata": {"labels": {"bad label": "b"}}}),
        delete(NODES),
    ],
    "a custom resource keeps what its schema knows": [
        create(INGRESS_DAEMONSETS, {"spec": {}}),
        create(
            INGRESS_DAEMONSETS,
            {
                **IDENTITY,
                "spec": {"podsPerNode": 1, "template": workload()["spec"]["template"]},
                "status": {"desiredNodes": 1},
                "typo": 1,
            },
        ),
        patch(INGRESS_DAEMONSETS, {"spec": {"typo": 1}}),
        patch(INGRESS_DAEMONSETS, {"spec": {"typo": 1}}, fieldValidation="Strict"),
        patch(INGRESS_DAEMONSETS, {"spec": {"template": {"spec": {"typo": 1, "empty": {}, "none": []}}}}),
        patch(INGRESS_DAEMONSETS, {"spec": {"updateStrategy": WITHOUT_PORT}}),
        patch(INGRESS_DAEMONSETS, {"spec": {"podsPerNode": 2}}),
        patch(INGRESS_DAEMONSETS, {"spec": {"podsPerNode": 2}}),
        patch(INGRESS_DAEMONSETS, {"metadata": {"annotations": {"a": "b"}}}),
        patch(INGRESS_DAEMONSETS, {"status": {"desiredNodes": 3}}),
        status(INGRESS_DAEMONSETS, {"status": {"desiredNodes": 3}, "spec": {"podsPerNode": 9}}),
        status(INGRESS_DAEMONSETS, {"metadata": {"annotations": {"a": "c"}}}),
        replace(INGRESS_DAEMONSETS, lambda raw: raw["metadata"].pop("resourceVersion")),
        delete(INGRESS_DAEMONSETS),
    ],
}
