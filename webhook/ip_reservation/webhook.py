"""Reserve the addresses of a pod before its deletion or eviction is admitted: gather, decide, apply."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from api.ip_reservation import (
    LONGEST_NAME,
    NAME,
    OWNERS,
    PATH,
    RESERVE,
    choice_of,
    disrupted,
    kubelet_evicted,
    records_of,
    records_of_evicted,
    unselected,
)
from api.standing import epoch_of
from calico.segment import NotReserved, Record
from kube.errors import KubeError, NotFound
from kube.types import Namespace, Pod
from settings import IPReservationSettings
from webhook.admission import (
    Decision,
    Request,
    ReviewError,
    allow,
    decoded,
    deny,
    fails_open,
    is_dry_run,
)

GARBAGE_COLLECTOR = "system:serviceaccount:kube-system:generic-garbage-collector"
"""As the controller manager names its client (Kubernetes, ``cmd/kube-controller-manager/app/core.go``)."""
NAME_STORED = re.compile(rf"(?!\.{{1,2}}\Z)[-.:\w]{{1,{LONGEST_NAME}}}", re.ASCII)
"""Wider than Kubernetes' rules for the names of pods and namespaces and for uids."""
RETRY_SECONDS = 1
"""Sent with a denial: client-go, so kubectl and every controller, repeats such a request by itself."""


class Cluster(Protocol):
    """Reads for one review; the methods raise KubeError."""

    def pod(self, namespace: str, name: str, *, deadline: float) -> Pod: ...
    def namespace(self, name: str, *, deadline: float) -> Namespace: ...


class Ledger(Protocol):
    def reserve(self, records: Sequence[Record], deadline: float) -> object:
        """Return when *records* are durable, else raise NotReserved."""


@dataclass(frozen=True)
class IPReservationWebhook:
    """*believes* a review that says so many addresses of a pod, which may not exist.

    *epoch* is the one in which marks of pods count, None without; it raises KubeError.
    """

    name, path = NAME, PATH

    cluster: Cluster
    ledger: Ledger
    settings: Callable[[], IPReservationSettings]
    now: Callable[[], datetime]
    believes: Callable[[int], bool]
    epoch: Callable[[float], str | None] = lambda _: None

    def fails_open(self) -> bool:
        return self.settings().failure_policy == "Ignore"

    def review(self, request: Request, deadline: float) -> Decision:
        if skipped := _skip_reason(request):
            return allow(audit={"skipped": skipped})
        try:
            pod = self._pod(request, deadline)
            if pod is not None and self._is_reserved_ahead(request, pod, deadline):
                return allow(audit={"skipped": "reserved ahead"})
            records = self._records(request, pod, deadline)
            was_read = request.old_object is None
            if not (isinstance(records, str) or was_read or self.believes(len(records))):
                pod = self._stored(records[0], deadline)
                records = self._records(request, pod, deadline)
            if isinstance(records, str):
                return allow(audit={"skipped": records})
            _require_stored(records[0])
            self.ledger.reserve(records, deadline)
        except (KubeError, NotReserved) as error:
            return self._not_reserved(request, error)
        reserved = ",".join(record.cidr for record in records)
        return allow(audit={"reserved": reserved})

    def _pod(self, request: Request, deadline: float) -> Pod | None:
        # A delete-collection names no pod: a deletion is judged by the object that it carries.
        if request.old_object is not None:
            return decoded(request.old_object, Pod, "oldObject")
        try:
            return self.cluster.pod(request.namespace, request.name, deadline=deadline)
        except NotFound:
            return None

    def _records(self, request: Request, pod: Pod | None, deadline: float) -> Sequence[Record] | str:
        annotations: Mapping[str, str] = {}
        if pod is not None and not choice_of(pod.metadata.annotations):  # else they decide nothing
            annotations = self.cluster.namespace(request.namespace, deadline=deadline).metadata.annotations
        return decide(request, pod, annotations, self.settings(), self.now())

    def _is_reserved_ahead(self, request: Request, pod: Pod, deadline: float) -> bool:
        """As the match condition says of a deletion. An eviction does not show its pod to it, so this was read."""
        epoch = epoch_of(pod)
        with suppress(KubeError):  # what is not known is reserved once more
            return _is_eviction(request) and epoch is not None and epoch == self.epoch(deadline)
        return False

    def _stored(self, of: Record, deadline: float) -> Pod | None:
        """None where there is no such pod."""
        _require_stored(of)
        try:
            pod = self.cluster.pod(of.namespace, of.pod, deadline=deadline)
        except NotFound:
            return None
        return pod if pod.metadata.uid == of.uid else None

    def _not_reserved(self, request: Request, error: Exception) -> Decision:
        pod = f"pod {request.namespace}/{_name(request)}"
        if fails_open(self, request):
            warning = f"the IP of {pod} is not reserved yet: {error}"
            return allow(warnings=(warning,), audit={"failed-open": warning})
        # kubectl drain waits on 429 only, and gives up on any other code (kubectl, pkg/drain/drain.go).
        code, reason = (429, "TooManyRequests") if _is_eviction(request) else (503, "ServiceUnavailable")
        return deny(
            f"{pod} keeps running because its IP could not be reserved: {error}. Retry; if this lasts, check the API"
            f" server and Calico's IPReservations, or annotate the pod {RESERVE}=false to delete it without reserving"
            " its IP",
            code=code,
            reason=reason,
            retry_after=RETRY_SECONDS,
        )


def decide(
    request: Request,
    pod: Pod | None,
    namespace_annotations: Mapping[str, str],
    settings: IPReservationSettings,
    now: datetime,
) -> Sequence[Record] | str:
    """What must be reserved before *request* is admitted, or why nothing needs to be."""
    if pod is None:
        return "no such pod"
    if pod.terminating:
        return "already terminating"
    if not (evicted := kubelet_evicted(pod)):
        if pod.finished and not disrupted(pod):
            return f"phase {pod.status.phase}"
        if settings.skip_when_owner_is_deleted and _is_deleted_with_owner(request, pod):
            return "its owner is being deleted"
    if skipped := unselected(pod, namespace_annotations, settings):
        return skipped
    if evicted:  # the leader reserves it when it fails; this covers the time without a leader
        return records_of_evicted(pod, settings, now)
    return records_of(pod, settings, reason="evicted" if _is_eviction(request) else "deleted", at=now)


def _skip_reason(request: Request) -> str | None:
    """Why *request* needs no look at a pod."""
    if is_dry_run(request):
        return "dry run"
    return None if request.operation in ("DELETE", "CREATE") else f"operation {request.operation}"


def _is_deleted_with_owner(request: Request, pod: Pod) -> bool:
    """The garbage collector deletes a pod only when its owners are gone or terminating."""
    owner = pod.metadata.controller
    known = owner is not None and (owner.api_version, owner.kind) in OWNERS
    return known and request.user_info.username == GARBAGE_COLLECTOR


def _require_stored(pod: Record) -> None:
    """ReviewError if no API server stores a pod of these names: the leader puts them into paths."""
    for field, value in {"namespace": pod.namespace, "name": pod.pod, "uid": pod.uid}.items():
        if not NAME_STORED.fullmatch(value):
            raise ReviewError(f"request.oldObject is no stored pod: metadata.{field} is {value!r}")


def _name(request: Request) -> str:
    if request.name or request.old_object is None:
        return request.name
    return decoded(request.old_object, Pod, "oldObject").metadata.name


def _is_eviction(request: Request) -> bool:
    return request.sub_resource == "eviction"
