"""A pod of an attached node is not evicted before its node is off the load balancer, or the time for that is over."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from healthchecker.naming import deployment_name
from kube.errors import KubeError, NotFound
from kube.types import Pod, Value, complete
from settings import IngressDaemonSetSettings
from webhook.admission import Decision, Request, allow, decoded, deny
from webhook.ingress_daemonset import EVICTIONS_PATH, NAME, NODE_LABEL
from webhook.ingress_daemonset.types import IngressDaemonSet

REVISION = "pod-template-hash"
RETRY_SECONDS = 3
"""Sent with a refusal: client-go repeats such a request by itself, and kubectl drain does so for good."""


class Cluster(Protocol):
    """What the review reads and writes; the methods raise KubeError."""

    def pod(self, namespace: str, name: str, *, deadline: float) -> Pod: ...
    def ingress_daemonsets(self, namespace: str, *, deadline: float) -> Iterable[IngressDaemonSet]: ...
    def request_drain(self, resource: IngressDaemonSet, node: str, at: str, *, deadline: float) -> None:
        """Have the controllers detach *node*."""


@dataclass(frozen=True)
class Held:
    """A pod that has to wait, by its node and its IngressDaemonSet."""

    node: str
    resource: IngressDaemonSet

    @property
    def asked_at(self) -> datetime | None:
        """When its node was first to be detached, if it was."""
        return _time(self.resource.drain_requests.get(self.node, ""))

    def ends_at(self, now: datetime) -> datetime:
        return (self.asked_at or now) + timedelta(seconds=self.resource.spec.drain_timeout_seconds)


class Evictions:
    """As the admission server calls it: gather, decide, apply."""

    name, path = f"{NAME}_evictions", EVICTIONS_PATH

    def __init__(
        self,
        settings: Callable[[], IngressDaemonSetSettings],
        cluster: Cluster,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
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
            held = self._gather(request, deadline)
            if isinstance(held, str):
                return allow(audit={"skipped": held})
            if held.ends_at(now) <= now:
                return _allowed(f"{pod} is evicted though its node is not known to be off the load balancer")
            if held.asked_at is None and not _is_dry_run(request):
                said = f"{now:%Y-%m-%dT%H:%M:%SZ}"
                self._cluster.request_drain(held.resource, held.node, said, deadline=deadline)
        except KubeError as error:
            return _allowed(f"{pod} is evicted though its node may be attached: {error}")
        return _refused(pod, held, now)

    def _gather(self, request: Request, deadline: float) -> Held | str:
        """What holds the pod, or why nothing does."""
        try:
            pod = self._cluster.pod(request.namespace, request.name, deadline=deadline)
            if not deployment_of(pod):
                return "no running pod of an IngressDaemonSet"
            resource = owner_of(pod, self._cluster.ingress_daemonsets(request.namespace, deadline=deadline))
        except NotFound as error:
            return f"gone: {error}"
        if resource is None:
            return "no IngressDaemonSet has this pod"
        return _unheld(resource, pod.spec.node_name) or Held(pod.spec.node_name, resource)


def unconcerned(request: Request, settings: IngressDaemonSetSettings) -> str:
    """Why *request* needs no look at any pod, or nothing."""
    if not settings.enabled:
        return "ingress daemonset is disabled"
    if (request.operation, request.sub_resource) != ("CREATE", "eviction"):
        return "no eviction"
    return ""


def deployment_of(pod: Pod) -> str:
    """The name of its Deployment; empty for a pod that is not ours, or has ended."""
    owner, revision = pod.metadata.controller, pod.metadata.labels.get(REVISION, "")
    if NODE_LABEL not in pod.metadata.labels or pod.terminating or pod.finished:
        return ""
    is_ours = owner is not None and owner.kind == "ReplicaSet" and owner.name.endswith(f"-{revision}")
    return owner.name.removesuffix(f"-{revision}") if owner and revision and is_ours else ""


def owner_of(pod: Pod, resources: Iterable[IngressDaemonSet]) -> IngressDaemonSet | None:
    """The one whose Deployment of that node has *pod*, by the names and the selector."""
    name, node = deployment_of(pod), pod.spec.node_name
    return next(
        (
            each
            for each in resources
            if deployment_name(each.metadata.name, node) == name
            and each.spec.selector.match_labels.items() <= pod.metadata.labels.items()
        ),
        None,
    )


def _unheld(resource: IngressDaemonSet, node: str) -> str:
    """Why an eviction from *node* does not wait, or nothing."""
    if resource.metadata.deletion_timestamp is not None:
        return "its IngressDaemonSet is being deleted"
    if not resource.spec.detaches_for_evictions:
        return "its node is not detached for evictions"
    return "its node is detached" if node in resource.evictable_nodes else ""


def _refused(pod: str, held: Held, now: datetime) -> Decision:
    resource = held.resource.metadata
    return deny(
        f"{pod} keeps running until node {held.node} is off the load balancer, at the latest until"
        f" {held.ends_at(now):%H:%M:%SZ}: try again, or see `kubectl describe ids -n {resource.namespace}"
        f" {resource.name}`; spec.drainTimeoutSeconds says how long this may take",
        code=429,
        reason="TooManyRequests",
        retry_after=RETRY_SECONDS,
    )


def _allowed(what: str) -> Decision:
    return allow(warnings=(what,), audit={"failed-open": what})


def _time(said: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(said)
    except ValueError:
        return None
    return moment if moment.tzinfo else None


def _is_dry_run(request: Request) -> bool:
    if request.dry_run or request.object is None:
        return request.dry_run
    return bool(decoded(request.object, _Eviction, "object").delete_options.dry_run)


class _DeleteOptions(Value, frozen=True):
    dry_run: tuple[str, ...] = ()


class _Eviction(Value, frozen=True):
    delete_options: _DeleteOptions = _DeleteOptions()


complete(_Eviction)
