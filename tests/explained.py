"""Clusters as `drawbridge explain` finds them: webhook configurations, settings, a namespace and pods of all sorts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from hypothesis import strategies as st

from api.health_checks import deployment_name
from api.ip_reservation import KUBELET_REASONS, RESERVE
from cli.installation import CONFIGURATIONS, POLICIES, RegisteredWebhook, WebhookConfiguration
from dev.fake_api import FakeAPI
from kube.resources import CONFIG_MAPS
from tests.charts import NAMESPACE, Objects

Raw = dict[str, Any]
VALUES: Raw = {
    "ipReservation": {"enabled": True, "sameAddress": {"enabled": True}},
    "anycastIP": {"enabled": True, "clusterID": "cls-1"},
    "elasticity": {"enabled": True},
    "ingressDaemonSet": {"enabled": True},
    "cloud": {"region": "ap-singapore", "existingSecret": "keys"},
}
TOLERATION = "eks.tke.cloud.tencent.com/eklet"


def installed(api: FakeAPI, objects: Objects) -> FakeAPI:
    """*api* with the webhook configurations, the policies and the settings that the chart renders."""
    for (kind, _), each in objects.items():
        if resource := {**CONFIGURATIONS, **POLICIES}.get(kind):
            api.put(resource, each)
        if kind == "ConfigMap" and "config.yaml" in each["data"]:
            api.put(CONFIG_MAPS, each)
    return api


def registered(objects: Objects) -> list[RegisteredWebhook]:
    found = [objects[key] for kind in CONFIGURATIONS for key in objects if key[0] == kind]
    return [webhook for each in found for webhook in msgspec.convert(each, WebhookConfiguration).webhooks]


def pod_in(namespace: str, part: Mapping[str, Any]) -> Raw:
    metadata = {"name": "redis-0", "namespace": namespace, "uid": "uid-redis-0", **part["metadata"]}
    return {"metadata": metadata, "spec": part["spec"], "status": part["status"]}


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Raw]:
    """Any of *fields*, or none."""
    return st.fixed_dictionaries({}, optional=fields)


def one_of(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


def owner(kind: str, name: str = "redis", *, controls: bool = True) -> Raw:
    api = "batch/v1" if kind == "Job" else "apps/v1"
    return {"apiVersion": api, "kind": kind, "name": name, "uid": "uid-redis", "controller": controls}


ANNOTATIONS = some(
    **{
        RESERVE: one_of("true", "false", "True", "yes", ""),
        "kubernetes.io/config.mirror": one_of("x"),
        "LOCAL_REPLICAS": one_of("1", "0", "many"),
        "drawbridge.io/placement": one_of("super"),
        "drawbridge.io/burst": one_of("x"),
        "drawbridge.io/ignore-rules": one_of("true", "false"),
    }
)
OF_AN_INGRESS_DAEMONSET = {"app": "web", "ingress-daemon-for-node": "node-1", "pod-template-hash": "7d4"}
LABELS = some(**{"statefulset.kubernetes.io/pod-name": one_of("redis-0"), "app": one_of("web")}) | one_of(
    OF_AN_INGRESS_DAEMONSET
)
OWNERS = one_of(
    *([owner(kind)] for kind in ("StatefulSet", "ReplicaSet", "DaemonSet", "Job")),
    [owner("DaemonSet", controls=False)],
    [owner("ReplicaSet", f"{deployment_name('redis', 'node-1')}-7d4")],
    [],
)
TOLERATIONS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "key": one_of(TOLERATION, "other"),
            "operator": one_of("Exists", "Equal"),
            "value": one_of("", "x"),
            "effect": one_of("NoSchedule", "NoExecute"),
        },
    ),
    max_size=2,
)
EXPRESSION = st.fixed_dictionaries(
    {
        "key": one_of("node.kubernetes.io/instance-type", "zone"),
        "operator": one_of("In", "NotIn"),
        "values": one_of(["eklet"], ["a"], ["eklet", "a"]),
    }
)
AFFINITY = some(
    nodeAffinity=some(
        requiredDuringSchedulingIgnoredDuringExecution=st.fixed_dictionaries(
            {
                "nodeSelectorTerms": st.lists(
                    some(
                        matchExpressions=st.lists(EXPRESSION, max_size=2),
                        matchFields=one_of(
                            [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]
                        ),
                    ),
                    min_size=1,
                    max_size=2,
                )
            }
        )
    )
)
SPECS = st.builds(
    lambda fields: {"containers": [{"name": "a", "image": "a"}], **fields},
    some(
        nodeName=one_of("node-1"),
        hostNetwork=st.booleans(),
        restartPolicy=one_of("Always", "OnFailure", "Never"),
        schedulerName=one_of("default-scheduler", "tke-scheduler"),
        schedulingGates=one_of([{"name": "drawbridge.io/placement"}], [{"name": "other"}]),
        tolerations=TOLERATIONS,
        affinity=AFFINITY,
    ),
)
CONDITIONS = st.lists(
    st.fixed_dictionaries(
        {
            "type": one_of("DisruptionTarget", "Ready"),
            "status": one_of("True", "False"),
            "reason": one_of("TerminationByKubelet", "DeletionByPodGC", ""),
            "lastTransitionTime": one_of("2026-01-02T03:04:05Z", "2099-01-02T03:04:05Z"),
        }
    ),
    max_size=2,
)
IPS = one_of(
    {},
    {"podIP": ""},
    {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]},
    {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]},
    {"podIP": "10.0.0.1"},
    {"podIP": "no address", "podIPs": [{"ip": "no address"}]},
)
STATUSES = st.builds(
    lambda ips, fields: {**ips, **fields},
    IPS,
    some(
        phase=one_of("Pending", "Running", "Succeeded", "Failed"),
        reason=one_of("", "DeadlineExceeded", *KUBELET_REASONS),
        conditions=CONDITIONS,
    ),
)
PODS_OF_ALL_SORTS = st.builds(
    lambda metadata, annotations, labels, owners, spec, status: {
        "metadata": {**metadata, "annotations": annotations, "labels": labels, "ownerReferences": owners},
        "spec": spec,
        "status": status,
    },
    some(deletionTimestamp=one_of("2026-01-02T03:04:05Z")),
    ANNOTATIONS,
    LABELS,
    OWNERS,
    SPECS,
    STATUSES,
)
NAMESPACES_OF_ALL_SORTS = st.builds(
    lambda name, labels, annotations: {
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/metadata.name": name, **labels},
            "annotations": annotations,
        }
    },
    one_of("shop", "shop", "kube-system", NAMESPACE),
    some(**{"ip-reserve": one_of("enabled", "enable", "enabled", "no")}),
    some(**{RESERVE: one_of("true", "false")}),
)
NODES_OF_ALL_SORTS = st.builds(
    lambda labels, annotations, taints: {
        "metadata": {"name": "node-1", "uid": "uid-1", "labels": labels, "annotations": annotations},
        "spec": {"taints": taints},
    },
    some(
        **{
            "tke.cloud.tencent.com/need-aia-ip": one_of("true", "true", "false"),
            "node.kubernetes.io/instance-type": one_of("eklet", "S5"),
        }
    ),
    some(**{"drawbridge.io/anycast-ip-bound": one_of("uid-1/eip-1", "uid-2/eip-1", "uid-1/", "")}),
    st.lists(
        st.fixed_dictionaries(
            {
                "key": one_of("tke.cloud.tencent.com/no-aia-ip", "other"),
                "value": one_of("true"),
                "effect": one_of("NoSchedule", "NoExecute"),
            }
        ),
        max_size=2,
    ),
)
