"""Deny evictions of an IngressDaemonSet's pod until its node is detached, or the time for that is over.

The leader says so, by its own clock; where none works, they pass by that of this server, `FALL_BACK` later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from api.health_checks import deployment_name
from api.ingress_daemonset import EVICTIONS_PATH, NAME, NODE_LABEL
from api.ingress_daemonset.types import IngressDaemonSet, suspended_until, time_of
from kube.errors import KubeError, NotFound
from kube.types import Pod, rfc3339
from settings import IngressDaemonSetSettings
from webhook.admission import Decision, Request, allow, deny, is_dry_run

REVISION = "pod-template-hash"
RETRY_SECONDS = 3
"""Sent with a denial: client-go retries such a request by itself, and kubectl drain does so indefinitely."""
FALL_BACK = timedelta(minutes=5)
"""Clocks of servers may differ by less than this and `drainTimeoutSeconds`."""


class Cluster(Protocol):
    """The methods raise KubeError."""

    def pod(self, namespace: str, name: str, *, deadline: float) -> Pod: ...
    def ingress_daemonsets(self, namespace: str, name: str, *, deadline: float) -> Iterable[IngressDaemonSet]:
        """The one of *name*; all of them where that is empty."""

    def request_drain(self, resource: IngressDaemonSet, node: str, at: str, *, deadline: float) -> None:
        """Have the controllers detach *node*."""


@dataclass(frozen=True)
class Attached:
    """The node of a pod that may not be evicted yet, and its IngressDaemonSet."""

    node: str
    resource: IngressDaemonSet

    @property
    def requested_at(self) -> datetime | None:
        return time_of(self.resource.stored.drain_requests.get(self.node, ""))

    def has_timed_out(self, now: datetime) -> bool:
        """Even without a leader."""
        longest = timedelta(seconds=self.resource.spec.drain_timeout_seconds) + FALL_BACK
        return self.requested_at is not None and now - self.requested_at >= longest


class EvictionWebhook:
    name, path = f"{NAME}_evictions", EVICTIONS_PATH

    def __init__(
        self, settings: Callable[[], IngressDaemonSetSettings], cluster: Cluster, now: Callable[[], datetime]
    ) -> None:
        self._settings, self._cluster, self._now = settings, cluster, now

    def fails_open(self) -> bool:
        """Always: a drain must end, also when the API server does not answer."""
        return True

    def review(self, request: Request, deadline: float) -> Decision:
        if skipped := unconcerned(request, self._settings()):
            return allow(audit={"skipped": skipped})
        now, pod = self._now(), f"pod {request.namespace}/{request.name}"
        try:
            found = self._find(request, now, deadline)
            if isinstance(found, str):
                return allow(audit={"skipped": found})
            if found.has_timed_out(now):
                return _allowed(f"{pod} is evicted though its node is not known to be detached")
            if found.requested_at is None and not is_dry_run(request):
                self._cluster.request_drain(found.resource, found.node, rfc3339(now), deadline=deadline)
        except KubeError as error:
            return _allowed(f"{pod} is evicted though its node may be attached: {error}")
        return _denied(pod, found)

    def _find(self, request: Request, now: datetime, deadline: float) -> Attached | str:
        """The node of the pod, or why the eviction need not wait."""
        try:
            pod = self._cluster.pod(request.namespace, request.name, deadline=deadline)
            if not (deployment := deployment_of(pod)):
                return "no running pod of an IngressDaemonSet"
            name = _named_in(deployment, pod.spec.node_name)
            resources = self._cluster.ingress_daemonsets(request.namespace, name, deadline=deadline)
            resource = owner_of(pod, resources)
        except NotFound as error:
            return f"gone: {error}"
        if resource is None:
            return "no IngressDaemonSet has this pod"
        node = pod.spec.node_name
        if resource.metadata.deletion_timestamp is not None:
            return "its IngressDaemonSet is being deleted"
        # In a suspension the controllers clear each request: its time would never be over.
        if not resource.spec.detaches_for_evictions or suspended_until(resource, now):
            return "its node is not detached for evictions"
        if node in resource.stored.evictable_nodes:
            return "its node may be drained"
        return Attached(node, resource)


def unconcerned(request: Request, settings: IngressDaemonSetSettings) -> str | None:
    """Why *request* is allowed without reading its pod, if it is."""
    if not settings.enabled:
        return "ingress daemonset is disabled"
    if (request.operation, request.sub_resource) != ("CREATE", "eviction"):
        return "no eviction"
    return None


def deployment_of(pod: Pod) -> str:
    """The name of its Deployment; empty for a pod that is not ours, or has ended."""
    owner, labels = pod.metadata.controller, pod.metadata.labels
    if NODE_LABEL not in labels or pod.terminating or pod.finished or owner is None:
        return ""
    name, _, revision = owner.name.rpartition("-")
    return name if owner.kind == "ReplicaSet" and revision and revision == labels.get(REVISION) else ""


def _named_in(deployment: str, node: str) -> str:
    """The IngressDaemonSet: a drain asks again for each pod every few seconds. Empty where it was shortened."""
    name = deployment.removesuffix(f"-{node}")
    return name if name != deployment else ""


def owner_of(pod: Pod, resources: Iterable[IngressDaemonSet]) -> IngressDaemonSet | None:
    """By the name of the Deployment, and the selector."""
    name, node, labels = deployment_of(pod), pod.spec.node_name, pod.metadata.labels.items()
    for each in resources:
        selects = each.spec.selector.match_labels.items() <= labels
        if selects and deployment_name(each.metadata.name, node) == name:
            return each
    return None


def _denied(pod: str, found: Attached) -> Decision:
    resource, longest = found.resource.metadata, found.resource.spec.drain_timeout_seconds
    return deny(
        f"{pod} keeps running until node {found.node} is detached from the load balancer, for at most"
        f" spec.drainTimeoutSeconds ({longest} s): try again, or see"
        f" `kubectl describe ids -n {resource.namespace} {resource.name}`",
        code=429,
        reason="TooManyRequests",
        retry_after=RETRY_SECONDS,
    )


def _allowed(warning: str) -> Decision:
    return allow(warnings=(warning,), audit={"failed-open": warning})
