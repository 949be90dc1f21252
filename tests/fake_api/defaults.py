"""What the API server fills in, and what its built-in admission does to every object; conformance is tested."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Raw = dict[str, Any]

PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
SOURCES = ("configMap", "secret", "downwardAPI", "projected")
NOT_READY = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
TOLERATED = [{"key": f"node.kubernetes.io/{each}", **NOT_READY} for each in ("not-ready", "unreachable")]


def none(raw: Raw) -> None:
    """Nothing is filled in."""


def deployment(raw: Raw) -> None:
    spec = raw.setdefault("spec", {})
    _fill(spec, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600)
    _rolling(spec.setdefault("strategy", {}), maxUnavailable="25%", maxSurge="25%")
    template(spec.setdefault("template", {}))


def daemon_set(raw: Raw) -> None:
    spec = raw.setdefault("spec", {})
    _fill(spec, revisionHistoryLimit=10)
    _rolling(spec.setdefault("updateStrategy", {}), maxUnavailable=1, maxSurge=0)
    template(spec.setdefault("template", {}))


def stateful_set(raw: Raw) -> None:
    spec = raw.setdefault("spec", {})
    _fill(spec, replicas=1, revisionHistoryLimit=10, podManagementPolicy="OrderedReady")
    _rolling(spec.setdefault("updateStrategy", {}), partition=0)
    _fill(spec, persistentVolumeClaimRetentionPolicy={"whenDeleted": "Retain", "whenScaled": "Retain"})
    template(spec.setdefault("template", {}))


def replica_set(raw: Raw) -> None:
    spec = raw.setdefault("spec", {})
    _fill(spec, replicas=1)
    if "template" in spec:
        template(spec["template"])


def pod(raw: Raw) -> None:
    spec = raw.setdefault("spec", {})
    pod_spec(spec)
    _fill(spec, enableServiceLinks=True)
    for each in _containers(spec):
        limits = each.get("resources", {}).get("limits", {})
        if limits:
            requests = each["resources"].setdefault("requests", {})
            _fill(requests, **limits)


def created_pod(raw: Raw) -> None:
    """Priority, DefaultTolerationSeconds, and the status that the pod strategy prepares."""
    spec = raw["spec"]
    _fill(spec, priority=0, preemptionPolicy="PreemptLowerPriority")
    tolerations = spec.get("tolerations", [])
    missing = [each for each in TOLERATED if not any(_covers(held, each) for held in tolerations)]
    spec["tolerations"] = [*tolerations, *missing]
    status = raw.setdefault("status", {})
    _fill(status, phase="Pending", qosClass=quality(spec))


def created_node(raw: Raw) -> None:
    """TaintNodesByCondition: a node is not ready until a controller has seen it ready."""
    taints = raw.setdefault("spec", {}).setdefault("taints", [])
    if not any(each.get("key") == "node.kubernetes.io/not-ready" for each in taints):
        taints.append({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"})


def namespace(raw: Raw) -> None:
    _fill(
        raw["metadata"].setdefault("labels", {}), **{"kubernetes.io/metadata.name": raw["metadata"]["name"]}
    )
    _fill(raw.setdefault("spec", {}), finalizers=["kubernetes"])
    _fill(raw.setdefault("status", {}), phase="Active")


def secret(raw: Raw) -> None:
    _fill(raw, type="Opaque")


def role_binding(raw: Raw) -> None:
    for each in raw.get("subjects") or ():
        if each.get("kind") in ("User", "Group"):
            each.setdefault("apiGroup", "rbac.authorization.k8s.io")


def webhook_configuration(raw: Raw) -> None:
    for each in raw.get("webhooks") or ():
        _fill(each, failurePolicy="Fail", matchPolicy="Equivalent", timeoutSeconds=10)
        _fill(each, namespaceSelector={}, objectSelector={})
        for rule in each.get("rules") or ():
            _fill(rule, scope="*")
        if "service" in each.get("clientConfig", {}):
            _fill(each["clientConfig"]["service"], port=443)


def mutating_webhook_configuration(raw: Raw) -> None:
    webhook_configuration(raw)
    for each in raw.get("webhooks") or ():
        _fill(each, reinvocationPolicy="Never")


def template(raw: Raw) -> None:
    raw.setdefault("metadata", {})
    pod_spec(raw.setdefault("spec", {}))


def pod_spec(spec: Raw) -> None:
    _fill(spec, restartPolicy="Always", terminationGracePeriodSeconds=30, dnsPolicy="ClusterFirst")
    _fill(spec, securityContext={}, schedulerName="default-scheduler")
    if "serviceAccountName" in spec or "serviceAccount" in spec:
        name = spec.get("serviceAccountName") or spec["serviceAccount"]
        spec["serviceAccountName"] = spec["serviceAccount"] = name
    for each in _containers(spec):
        container(each, host_network=spec.get("hostNetwork", False))
    for each in spec.get("volumes", ()):
        _volume(each)


def container(raw: Raw, *, host_network: bool) -> None:
    policy = "Always" if _is_latest(raw.get("image", "")) else "IfNotPresent"
    _fill(raw, imagePullPolicy=policy, resources={})
    _fill(raw, terminationMessagePath="/dev/termination-log", terminationMessagePolicy="File")
    for port in raw.get("ports", ()):
        _fill(port, protocol="TCP")
        if host_network:
            _fill(port, hostPort=port.get("containerPort"))
    for each in raw.get("env", ()):
        if "fieldRef" in each.get("valueFrom", {}):
            _fill(each["valueFrom"]["fieldRef"], apiVersion="v1")
    for name in PROBES:
        if name in raw:
            _probe(raw[name])
    for hook in raw.get("lifecycle", {}).values():
        if isinstance(hook, dict):
            _probe_handler(hook)


def quality(spec: Raw) -> str:
    """The pod's class of service."""
    resources = [each.get("resources", {}) for each in _containers(spec)]
    if not any(each.get("requests") or each.get("limits") for each in resources):
        return "BestEffort"
    whole = all(
        each.get("limits", {}).keys() >= {"cpu", "memory"}
        and each.get("requests", each["limits"]) == each["limits"]
        for each in resources
    )
    return "Guaranteed" if whole else "Burstable"


def _volume(raw: Raw) -> None:
    if not raw.keys() - {"name"}:
        raw["emptyDir"] = {}
    for source in SOURCES:
        if source in raw:
            _fill(raw[source], defaultMode=420)
    if "hostPath" in raw:
        _fill(raw["hostPath"], type="")
    for each in raw.get("projected", {}).get("sources", ()):
        if "serviceAccountToken" in each:
            _fill(each["serviceAccountToken"], expirationSeconds=3600)
        _field_references(each.get("downwardAPI", {}))
    _field_references(raw.get("downwardAPI", {}))


def _field_references(raw: Raw) -> None:
    for item in raw.get("items", ()):
        if "fieldRef" in item:
            _fill(item["fieldRef"], apiVersion="v1")


def _probe(raw: Raw) -> None:
    _fill(raw, **PROBE)
    _probe_handler(raw)


def _probe_handler(raw: Raw) -> None:
    if "httpGet" in raw:
        _fill(raw["httpGet"], path="/", scheme="HTTP")
    if "grpc" in raw:
        _fill(raw["grpc"], service="")


def _rolling(strategy: Raw, **values: Any) -> None:
    _fill(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        _fill(strategy.setdefault("rollingUpdate", {}), **values)


def _containers(spec: Raw) -> Iterator[Raw]:
    for name in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(name) or ()


def _is_latest(image: str) -> bool:
    name = image.rpartition("/")[2]
    return "@" not in name and (":" not in name or name.endswith(":latest"))


def _covers(held: Raw, wanted: Raw) -> bool:
    """Whether a toleration that is there makes the default one needless."""
    return held.get("key", wanted["key"]) == wanted["key"] and held.get("effect", "NoExecute") == "NoExecute"


def _fill(raw: Raw, **values: Any) -> None:
    for name, value in values.items():
        raw.setdefault(name, value)
