"""What the API server fills in, and what its built-in admission does to every object; conformance is tested."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

Raw = dict[str, Any]

PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
SOURCES = ("configMap", "secret", "downwardAPI", "projected")
NODE_INFO = (
    "architecture",
    "bootID",
    "containerRuntimeVersion",
    "kernelVersion",
    "kubeProxyVersion",
    "kubeletVersion",
    "machineID",
    "operatingSystem",
    "osImage",
    "systemUUID",
)
SCHEDULED = ("currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady")
TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
GATED = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}
NOT_READY = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
TOLERATED = [{"key": f"node.kubernetes.io/{each}", **NOT_READY} for each in ("not-ready", "unreachable")]


def none(raw: Raw) -> None:
    """Nothing is filled in."""


def deployment(raw: Raw) -> None:
    spec = raw.setdefault("spec", {})
    _fill(spec, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600)
    _rolling(spec.setdefault("strategy", {}), maxUnavailable="25%", maxSurge="25%")
    template(spec.setdefault("template", {}))
    raw.setdefault("status", {})


def daemon_set(raw: Raw) -> None:
    spec = raw.setdefault("spec", {})
    _fill(spec, revisionHistoryLimit=10)
    _rolling(spec.setdefault("updateStrategy", {}), maxUnavailable=1, maxSurge=0)
    template(spec.setdefault("template", {}))
    _fill(raw.setdefault("status", {}), **dict.fromkeys(SCHEDULED, 0))


def stateful_set(raw: Raw) -> None:
    spec = raw.setdefault("spec", {})
    _fill(spec, replicas=1, revisionHistoryLimit=10, podManagementPolicy="OrderedReady")
    _rolling(spec.setdefault("updateStrategy", {}), partition=0)
    _fill(spec, persistentVolumeClaimRetentionPolicy={"whenDeleted": "Retain", "whenScaled": "Retain"})
    template(spec.setdefault("template", {}))
    _fill(raw.setdefault("status", {}), replicas=0, availableReplicas=0)


def replica_set(raw: Raw) -> None:
    spec = raw.setdefault("spec", {})
    _fill(spec, replicas=1)
    if "template" in spec:
        template(spec["template"])
    _fill(raw.setdefault("status", {}), replicas=0)


def pod(raw: Raw) -> None:
    spec = raw.setdefault("spec", {})
    pod_spec(spec)
    _fill(spec, enableServiceLinks=True)
    for each in _containers(spec):
        limits = each.get("resources", {}).get("limits", {})
        if limits:
            requests = each["resources"].setdefault("requests", {})
            _fill(requests, **limits)
        if spec.get("hostNetwork"):
            for port in each.get("ports", ()):
                _fill(port, hostPort=port.get("containerPort"))
    status = raw.setdefault("status", {})
    if "podIP" in status:
        _fill(status, podIPs=[{"ip": status["podIP"]}])
    _timeless(status.get("conditions", ()), "lastProbeTime", "lastTransitionTime")


def prepared_pod(old: Raw | None, new: Raw) -> None:
    """DefaultTolerationSeconds, ServiceAccount and Priority, and the status that the pod's strategy prepares."""
    spec = new["spec"]
    tolerations = spec.get("tolerations", [])
    missing = [each for each in TOLERATED if not any(_covers(held, each) for held in tolerations)]
    spec["tolerations"] = [*tolerations, *missing]
    if old is None:
        _fill(spec, priority=0, preemptionPolicy="PreemptLowerPriority")
        _fill(spec, serviceAccountName="default", serviceAccount="default")
        since = {"lastProbeTime": None, "lastTransitionTime": new["metadata"]["creationTimestamp"]}
        gated = [GATED | since] if spec.get("schedulingGates") else []
        new["status"] = {"phase": "Pending", "qosClass": quality(spec)} | (
            {"conditions": gated} if gated else {}
        )


def prepared_node(old: Raw | None, new: Raw) -> None:
    """TaintNodesByCondition: a node is not ready until a controller has seen it ready."""
    if old is None:
        taints = new.setdefault("spec", {}).setdefault("taints", [])
        if not any(each.get("key") == "node.kubernetes.io/not-ready" for each in taints):
            taints.append({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"})


def prepared_daemon_set(old: Raw | None, new: Raw) -> None:
    """The number of its templates, which clients cannot change."""
    before = int((old or {"metadata": {}})["metadata"].get("annotations", {}).get(TEMPLATE_GENERATION, 0))
    is_new = not old or old["spec"]["template"] != new["spec"]["template"]
    new["metadata"].setdefault("annotations", {})[TEMPLATE_GENERATION] = str(before + is_new)


def prepared_other(old: Raw | None, new: Raw) -> None:
    """Nothing."""


def node(raw: Raw) -> None:
    status = raw.setdefault("status", {})
    _fill(status, daemonEndpoints={"kubeletEndpoint": {"Port": 0}})
    _fill(status.setdefault("nodeInfo", {}), **dict.fromkeys(NODE_INFO, ""))
    _timeless(status.get("conditions", ()), "lastHeartbeatTime", "lastTransitionTime")


def role(raw: Raw) -> None:
    _fill(raw, rules=None)


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
        container(each)
    for each in spec.get("volumes", ()):
        _volume(each)


def container(raw: Raw) -> None:
    policy = "Always" if _is_latest(raw.get("image", "")) else "IfNotPresent"
    _fill(raw, imagePullPolicy=policy, resources={})
    _fill(raw, terminationMessagePath="/dev/termination-log", terminationMessagePolicy="File")
    for port in raw.get("ports", ()):
        _fill(port, protocol="TCP")
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
    return bool(
        held.get("key", wanted["key"]) == wanted["key"] and held.get("effect", "NoExecute") == "NoExecute"
    )


def _timeless(conditions: Iterable[Raw], *names: str) -> None:
    """Times that are not set are written as null."""
    for each in conditions:
        _fill(each, **dict.fromkeys(names))


def _fill(raw: Raw, **values: Any) -> None:
    for name, value in values.items():
        raw.setdefault(name, value)
