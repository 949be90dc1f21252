"""A selected pod is not deleted or evicted before its addresses are durably reserved in Calico."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from msgspec.structs import replace

from calico.errors import NotReserved
from calico.segment import Record, canonical
from kube.errors import KubeError, NotFound
from kube.types import Namespace, ObjectMeta, Pod, Value, complete
from settings import IPReservationSettings
from webhook.admission import Decision, Request, allow, decoded, deny

NAME = "ip_reservation"
PATH = "/validate/pods/ip-reservation"

NAMESPACE_LABEL = "ip-reserve"
NAMESPACE_LABEL_VALUES = ("enabled", "enable")
RESERVE = "drawbridge.io/reserve-ip"

DELETED, EVICTED = "deleted", "evicted"

DISRUPTION, BY_KUBELET = "DisruptionTarget", "TerminationByKubelet"
KUBELET_EVICTED = "evicted by the kubelet"
KUBELET_REASONS = ("Evicted", "NodeShutdown", "Terminated", "Shutdown", "Preempting", "NodeLost")
"""status.reason of pods that a kubelet ended: node pressure, node shutdown, critical pods."""
ALWAYS = "Always"

MIRROR = "kubernetes.io/config.mirror"

OWNERS = (
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "DaemonSet"),
    ("batch/v1", "Job"),
)
"""Workloads whose deletion excuses their pods, as (apiVersion, kind)."""
GARBAGE_COLLECTOR = "system:serviceaccount:kube-system:generic-garbage-collector"
RETRY_SECONDS = 1
"""Sent with a refusal: client-go, so kubectl and every controller, repeats such a request by itself."""


class Cluster(Protocol):
    """What the review reads of the cluster; the methods raise KubeError."""

    def pod(self, namespace: str, name: str, *, deadline: float) -> Pod: ...
    def namespace(self, name: str, *, deadline: float) -> Namespace: ...


class Ledger(Protocol):
    def reserve(self, records: Sequence[Record], deadline: float) -> object:
        """Return once *records* are durable, else raise NotReserved."""


@dataclass(frozen=True)
class Facts:
    """What the decision needs to know: the pod (None when there is none) and its namespace's annotations."""

    pod: Pod | None
    namespace_annotations: Mapping[str, str]


class Gate:
    """The feature as the admission server calls it: gather, decide, apply."""

    name, path = NAME, PATH

    def __init__(
        self,
        cluster: Cluster,
        ledger: Ledger,
        settings: Callable[[], IPReservationSettings],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._cluster, self._ledger = cluster, ledger
        self._settings, self._now = settings, now

    def fails_open(self) -> bool:
        return self._settings().failure_policy == "Ignore"

    def review(self, request: Request, deadline: float) -> Decision:
        if skipped := unconcerned(request):
            return allow(audit={"skipped": skipped})
        try:
            facts = self._gather(request, deadline)
            records = decide(request, facts, self._settings(), self._now())
            if isinstance(records, str):
                return allow(audit={"skipped": records})
            self._ledger.reserve(records, deadline)
        except (KubeError, NotReserved) as error:
            return self._not_reserved(request, error)
        reserved = ",".join(record.cidr for record in records)
        return allow(warnings=_left_out(facts.pod), audit={"reserved": reserved})

    def _gather(self, request: Request, deadline: float) -> Facts:
        pod = self._pod(request, deadline)
        if pod is None or RESERVE in pod.metadata.annotations:
            return Facts(pod, {})
        namespace = self._cluster.namespace(request.namespace, deadline=deadline)
        return Facts(pod, namespace.metadata.annotations)

    def _pod(self, request: Request, deadline: float) -> Pod | None:
        # A delete-collection names no pod, so a deletion is judged by the object that it carries.
        if request.old_object is not None:
            return decoded(request.old_object, Pod, "oldObject")
        try:
            return self._cluster.pod(request.namespace, request.name, deadline=deadline)
        except NotFound:
            return None

    def _not_reserved(self, request: Request, error: Exception) -> Decision:
        pod = f"pod {request.namespace}/{_name(request)}"
        # kubectl drain waits on 429 only, and gives up on any other code.
        code, reason = (429, "TooManyRequests") if _is_eviction(request) else (503, "ServiceUnavailable")
        if self.fails_open():
            what = f"the IP of {pod} is not reserved yet: {error}"
            return allow(warnings=(what,), audit={"failed-open": what})
        return deny(
            f"{pod} keeps running because its IP could not be reserved: {error}. Try again; if this lasts, look"
            f" at the API server and Calico's IPReservations, or annotate the pod {RESERVE}=false to let it go"
            " without its IP being held",
            code=code,
            reason=reason,
            retry_after=RETRY_SECONDS,
        )


def unconcerned(request: Request) -> str:
    """Why *request* needs no look at any pod, or nothing."""
    if request.dry_run or _eviction_is_dry_run(request):
        return "dry run"
    if request.operation not in ("DELETE", "CREATE"):
        return f"operation {request.operation}"
    return ""


def decide(
    request: Request, facts: Facts, settings: IPReservationSettings, now: datetime
) -> Sequence[Record] | str:
    """What must be reserved before *request* may pass, or why nothing needs to be."""
    pod = facts.pod
    if pod is None:
        return "no such pod"
    if pod.terminating:
        return "already terminating"
    if kubelet_evicted(pod):
        return _evicted(pod, facts, settings, now)
    if pod.finished and not disrupted(pod):
        return f"phase {pod.status.phase}"
    if settings.skip_when_owner_is_deleted and deleted_with_owner(request, pod):
        return "its owner is being deleted"
    if skipped := unselected(pod, facts.namespace_annotations, settings):
        return skipped
    return records_of(pod, reason=EVICTED if _is_eviction(request) else DELETED, at=now)


def disrupted(pod: Pod) -> bool:
    """Whether a finished pod ended because somebody is removing it.

    Kubernetes marks a pod of a lost node Failed, with this condition, just before it deletes it.
    """
    return any(each.type == DISRUPTION and each.status == "True" for each in pod.status.conditions)


def kubelet_evicted(pod: Pod) -> bool:
    """Whether its own kubelet ended it, which no admission sees.

    One whose containers are always restarted never fails by itself, whatever reason the kubelet gives; but each
    deleted one is marked finished at last, and one of a lost node just before it is deleted.
    """
    if pod.status.phase != "Failed":
        return False
    by_kubelet = any(each.type == DISRUPTION and each.reason == BY_KUBELET for each in pod.status.conditions)
    if by_kubelet or pod.status.reason in KUBELET_REASONS:
        return True
    return pod.spec.restart_policy == ALWAYS and not pod.terminating and not disrupted(pod)


def evicted_at(pod: Pod, seen: datetime) -> datetime:
    """When its kubelet ended it, at most *seen*: by that condition, else by the last one that changed."""
    changes = {each.type: each.last_transition_time for each in pod.status.conditions}
    told = changes.get(DISRUPTION) or max(filter(None, changes.values()), default=seen)
    return min(told, seen)


def unselected(pod: Pod, namespace_annotations: Mapping[str, str], settings: IPReservationSettings) -> str:
    """Why the addresses of *pod* are not to be held when it goes, or nothing when they are."""
    if not settings.enabled:
        return "ip reservation is disabled"
    if pod.spec.host_network:
        return "host network"
    if MIRROR in pod.metadata.annotations:
        return "mirror of a static pod, which keeps its IP"
    if not _cidrs(pod):
        return "no IP"
    return "" if _wanted(pod.metadata, namespace_annotations, settings) else "not selected"


def records_of(pod: Pod, *, reason: str, at: datetime, late: bool = False) -> tuple[Record, ...]:
    """One record per address of *pod*; what is no IP address cannot be held and is left out."""
    owner = pod.metadata.controller
    return tuple(
        Record(
            cidr=cidr,
            at=at,
            namespace=pod.metadata.namespace,
            pod=pod.metadata.name,
            uid=pod.metadata.uid,
            node=pod.spec.node_name,
            owner=f"{owner.kind}/{owner.name}" if owner else "",
            reason=reason,
            late=late,
        )
        for cidr in _cidrs(pod)
    )


def deleted_with_owner(request: Request, pod: Pod) -> bool:
    """The garbage collector deletes a pod only when its owners are gone or going.

    Only for owners that the leader can look up, too: it would reserve the others late.
    """
    owner = pod.metadata.controller
    known = owner is not None and (owner.api_version, owner.kind) in OWNERS
    return known and request.user_info.username == GARBAGE_COLLECTOR


def records_of_evicted(pod: Pod, settings: IPReservationSettings, now: datetime) -> Sequence[Record] | str:
    """The hold counts from the eviction: whoever reserves it, and however often, it is over at one time."""
    ended = evicted_at(pod, now)
    if now - ended >= timedelta(seconds=settings.ip_reserve_time):
        return "evicted so long ago that the hold is over"
    records = records_of(pod, reason=KUBELET_EVICTED, at=now, late=True)
    return tuple(replace(record, ended=ended) for record in records)


def _evicted(
    pod: Pod, facts: Facts, settings: IPReservationSettings, now: datetime
) -> Sequence[Record] | str:
    """The leader reserves such a pod when it fails; its deletion is the net for when none is there."""
    skipped = unselected(pod, facts.namespace_annotations, settings)
    return skipped or records_of_evicted(pod, settings, now)


def _wanted(
    pod: ObjectMeta, namespace_annotations: Mapping[str, str], settings: IPReservationSettings
) -> bool:
    """The pod's own word first, then its namespace's, then the configured labels."""
    for said in (pod.annotations, namespace_annotations):
        if (word := said.get(RESERVE, "").lower()) in ("true", "false"):
            return word == "true"
    return settings.label_selector.matches_any(pod.labels)


def _cidrs(pod: Pod) -> tuple[str, ...]:
    return tuple(cidr for address in pod.status.addresses if (cidr := canonical(address)))


def _left_out(pod: Pod | None) -> tuple[str, ...]:
    """A warning for each address of *pod* that no reservation can hold."""
    addresses = pod.status.addresses if pod else ()
    return tuple(
        f"{each!r} is no IP address and is not reserved" for each in addresses if not canonical(each)
    )


def _is_eviction(request: Request) -> bool:
    return request.sub_resource == "eviction"


def _name(request: Request) -> str:
    if request.name or request.old_object is None:
        return request.name
    return decoded(request.old_object, Pod, "oldObject").metadata.name


def _eviction_is_dry_run(request: Request) -> bool:
    if not _is_eviction(request) or request.object is None:
        return False
    eviction = decoded(request.object, _Eviction, "object")
    return bool(eviction.delete_options.dry_run)


class _DeleteOptions(Value, frozen=True):
    dry_run: tuple[str, ...] = ()


class _Eviction(Value, frozen=True):
    delete_options: _DeleteOptions = _DeleteOptions()


complete(_Eviction)
