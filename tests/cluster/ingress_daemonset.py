"""How IngressDaemonSets are written in tests, and what is looked at of their objects."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from controllers.ingress_daemonset.drift import baseline_of
from dev.lab.policy.mutations import without_mirror
from kube.client import Resource
from tests.cluster.elasticity import is_settled

Raw = dict[str, Any]

API_VERSION = "ingressdaemonsets.mumoshu.github.io/v1alpha1"
INGRESS_DAEMONSETS = Resource("ingressdaemonsets.mumoshu.github.io", "v1alpha1", "ingressdaemonsets")
BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings")

VALUES: dict[str, Any] = {
    "replicaCount": 1,
    "controllers": {"replicaCount": 1, "leaseDuration": "10s"},
    "ipReservation": {"enabled": False},
    "ingressDaemonSet": {"enabled": True, "detachmentReminder": "2s"},
    "webhook": {"preStopSleep": "1s", "drainPeriod": "2s"},
}
BALANCER = "lb-edge0000"
"""The load balancer at which IngressDaemonSets may set weights, in a lab with a cloud."""
WITH_CLB: dict[str, Any] = {
    "anycastIP": {"enabled": False},
    "ingressDaemonSet": {"clb": {"enabled": True, "loadBalancers": [{"id": BALANCER}]}},
}
EDGE = "tests/edge"
"""The label by which IngressDaemonSets choose their nodes."""
NODE_LABEL = "ingress-daemon-for-node"
DETACHED, CONFIRMED = "node-detacher.variant.run/detached", "node-detacher.variant.run/detachment-timestamp"
TO_BE_UPDATED = "ingressdaemonsets.mumoshu.github.com/to-be-updated"
SCHEDULED, DETACHED_BY = "drawbridge.io/update-scheduled", "drawbridge.io/detached-by"
SECONDS = 180
"""For what is awaited: most of it takes a few."""
EVERY = 0.25


def detaching(limit: int | str = 1, **parts: Any) -> Raw:
    """How it is updated: *limit* nodes at a time, which are taken off the load balancer before."""
    return {"maxUnavailableNodes": limit, **parts}


def by_deployment(seconds: int) -> Raw:
    return {"annotateDeploymentToDetach": {"gracePeriodSeconds": seconds}}


def by_node(seconds: int, **value: str) -> Raw:
    return {"annotateNodeToDetach": {"key": DETACHED, "gracePeriodSeconds": seconds, **value}}


def confirmed(seconds: int, **parts: Any) -> Raw:
    """By the Deployment's annotation, and by the word of health checkers."""
    return {**by_deployment(seconds), "confirm": "required", **parts}


def awaiting(seconds: int) -> Raw:
    """A timestamp, that is, and so many seconds after it."""
    return {"waitForDetachmentByAnnotatedTimestamp": {"key": CONFIRMED, "gracePeriodSeconds": seconds}}


def is_at_rest(deployment: Raw, image: str, pods: int) -> bool:
    annotations = deployment["metadata"].get("annotations", {})
    marked, baseline = {TO_BE_UPDATED, SCHEDULED} & annotations.keys(), baseline_of(annotations)
    # Before it is recorded, an edit by hand may lead to a rollout of its node.
    is_recorded = baseline is not None and bool(baseline.digest)
    has_image = image_of(deployment["spec"]["template"]) == image
    return has_image and is_recorded and not marked and is_settled(deployment, pods)


def image_of(pod: Raw) -> str:
    """Of a pod or a template, as it was asked for: the policy of the lab rewrites it."""
    return without_mirror(str(pod["spec"]["containers"][0]["image"]))


def reasons_of(resource: Raw) -> dict[str, str]:
    """Of its conditions, each with its status: ``True Complete``."""
    conditions = resource.get("status", {}).get("conditions", ())
    return {each["type"]: f"{each['status']} {each['reason']}" for each in conditions}


def names_of(objects: Sequence[Raw]) -> set[str]:
    return {each["metadata"]["name"] for each in objects}


def now() -> str:
    """As RFC 3339 has it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
