"""A pod of an attached node is not evicted before its node is off the load balancer, or the time for that is over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from kube.errors import KubeError, NotFound
from kube.objects import ObjectMeta, Pod, Value, complete
from settings import IngressDaemonSetSettings
from webhook.admission import Decision, Request, allow, decoded, deny
from webhook.ingress_daemonset import DRAIN_REQUESTED, EVICTABLE, EVICTIONS_PATH, KIND, NAME, NODE_LABEL
from webhook.ingress_daemonset.model import IngressDaemonSet

REVISION = "pod-template-hash"
RETRY_SECONDS = 3
"""Sent with a refusal: client-go repeats such a request by itself, and kubectl drain does so for good."""


class Cluster(Protocol):
    """What the review reads and writes; the methods raise KubeError."""

    def pod(self, namespace: str, name: str, *, deadline: float) -> Pod: ...
    def deployment(self, namespace: str, name: str, *, deadline: float) -> ObjectMeta: ...
    def ingress_daemonset(self, namespace: str, name: str, *, deadline: float) -> IngressDaemonSet: ...
    def request_drain(self, deployment: ObjectMeta, at: str, *, deadline: float) -> None:
        """Have the controllers detach the node of *deployment*."""


@dataclass(frozen=True)
class Held:
    """A pod that has to wait, and its Deployment; *asked_at* is when its node was first to be detached, if it was."""

    deployment: ObjectMeta
    resource: IngressDaemonSet
    asked_at: datetime | None

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
        """Always: a drain must end, also when nobody can be asked."""
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
                return _let_go(f"{pod} is evicted though its node is not known to be off the load balancer")
            if held.asked_at is None and not _is_dry_run(request):
                self._cluster.request_drain(held.deployment, f"{now:%Y-%m-%dT%H:%M:%SZ}", deadline=deadline)
        except KubeError as error:
            return _let_go(f"{pod} is evicted though its node may be attached: {error}")
        return _refused(pod, held, now)

    def _gather(self, request: Request, deadline: float) -> Held | str:
        """What holds the pod, or why nothing does."""
        try:
            pod = self._cluster.pod(request.namespace, request.name, deadline=deadline)
            if not (name := deployment_of(pod)):
                return "no running pod of an IngressDaemonSet"
            deployment = self._cluster.deployment(request.namespace, name, deadline=deadline)
            owner = deployment.controller
            if skipped := _unheld(deployment):
                return skipped
            resource = self._cluster.ingress_daemonset(
                request.namespace, owner.name if owner else "", deadline=deadline
            )
        except NotFound as error:
            return f"gone: {error}"
        if not detaches(resource):
            return "its node is not detached for evictions"
        return Held(deployment, resource, _time(deployment.annotations.get(DRAIN_REQUESTED, "")))


def unconcerned(request: Request, settings: IngressDaemonSetSettings) -> str:
    """Why *request* needs no look at any pod, or nothing."""
    if not settings.enabled:
        return "ingress daemonset is disabled"
    if (request.operation, request.sub_resource) != ("CREATE", "eviction"):
        return "no eviction"
    return ""


def deployment_of(pod: Pod) -> str:
    """The name of its Deployment; nothing for a pod that is none of ours, or serves nobody any more."""
    owner, revision = pod.metadata.controller, pod.metadata.labels.get(REVISION, "")
    if NODE_LABEL not in pod.metadata.labels or pod.terminating or pod.finished:
        return ""
    is_ours = owner is not None and owner.kind == "ReplicaSet" and owner.name.endswith(f"-{revision}")
    return owner.name.removesuffix(f"-{revision}") if owner and revision and is_ours else ""


def detaches(resource: IngressDaemonSet) -> bool:
    """Whether nodes are detached for evictions, by the same means as in a rollout."""
    rolling = resource.spec.update_strategy.rolling_update
    means = rolling.deployment_annotation or rolling.node_annotation
    return bool(means) and resource.spec.drain_timeout_seconds > 0


def _unheld(deployment: ObjectMeta) -> str:
    owner = deployment.controller
    if owner is None or owner.kind != KIND:
        return "no Deployment of an IngressDaemonSet"
    if deployment.deletion_timestamp is not None:
        return "its Deployment is being deleted"
    return "its node is detached" if EVICTABLE in deployment.annotations else ""


def _refused(pod: str, held: Held, now: datetime) -> Decision:
    node, resource = held.deployment.labels.get(NODE_LABEL, ""), held.resource.metadata
    return deny(
        f"{pod} keeps running until node {node} is off the load balancer, at the latest until"
        f" {held.ends_at(now):%H:%M:%SZ}: try again, or see `kubectl describe ids -n {resource.namespace}"
        f" {resource.name}`; spec.drainTimeoutSeconds says how long this may take",
        code=429,
        reason="TooManyRequests",
        retry_after=RETRY_SECONDS,
    )


def _let_go(what: str) -> Decision:
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
