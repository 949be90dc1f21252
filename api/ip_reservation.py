"""The names of ip_reservation, which pods it selects, and the records of their addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from calico.segment import Record, canonical
from kube.selectors import Expression, matches
from kube.types import MIRROR, Condition, Pod
from settings import IPReservationSettings, LabelSelector

NAME = "ip_reservation"
PATH = "/validate/pods/ip-reservation"
SAME_ADDRESS_PATH = "/mutate/pods/same-address"

NAMESPACE_LABEL = "ip-reserve"
NAMESPACE_LABEL_VALUES = ("enabled", "enable")
RESERVE = "drawbridge.io/reserve-ip"
RESERVE_FROM = "drawbridge.io/reserve-ip-from"
"""On a pod whose RESERVE is a copy: `<kind>/<name>=<value>`, the workload that it is of, and what was copied."""

RESERVE_FINISHED = "drawbridge.io/reserve-finished"
"""On a namespace: "true" where the addresses of pods that end by themselves stay reserved, too."""
FINISHED = "finished"
"""Reason of the records of pods that ended by themselves."""

DISRUPTION, BY_KUBELET = "DisruptionTarget", "TerminationByKubelet"
KUBELET_EVICTED, TERMINATING, GONE = "evicted by the kubelet", "seen terminating", "seen gone"
"""Reasons of late reservations: of pods that did not pass admission."""
KUBELET_REASONS = ("Evicted", "NodeShutdown", "Terminated", "Shutdown", "Preempting", "NodeLost")
"""status.reason of pods that a kubelet ended: node pressure, node shutdown, critical pods.

In Kubernetes, below ``pkg/kubelet``: ``eviction``, ``nodeshutdown`` ("Shutdown" up to 1.21) and ``preemption``;
"NodeLost" in ``pkg/util/node/node.go``.
"""
ADDRESSES = 2
"""Of a pod at most: the API server stores one for each family."""
LONGEST_NAME = 253
"""Characters in Kubernetes."""
CLOCKS = timedelta(minutes=5)
"""By how much the clock of a node may be slow."""
OWNERS = (
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "DaemonSet"),
    ("batch/v1", "Job"),
)
"""Workloads whose deletion excuses their pods, as (apiVersion, kind): those that the leader can look up, too."""


def disrupted(pod: Pod) -> bool:
    """Whether a finished pod ended because it is being removed.

    Kubernetes marks a pod of a lost node Failed, with this condition, just before it deletes it
    (``pkg/controller/podgc/gc_controller.go``).
    """
    return any(
        condition.type == DISRUPTION and condition.status == "True" for condition in pod.status.conditions
    )


def kubelet_evicted(pod: Pod) -> bool:
    """Whether its own kubelet ended it, which no admission sees.

    A pod whose containers are always restarted fails by no other means. But every deleted pod is marked finished at
    its end, and a pod of a lost node just before its deletion.
    """
    if pod.status.phase != "Failed":
        return False
    if _by_kubelet(pod) or pod.status.reason in KUBELET_REASONS:
        return True
    is_restarted = pod.spec.restart_policy == "Always" and not pod.spec.ending
    return is_restarted and not pod.terminating and not disrupted(pod)


def ended_by_itself(pod: Pod) -> bool:
    """Whether it succeeded or failed without being removed: Calico takes its address back before it is deleted."""
    return pod.finished and not (pod.terminating or disrupted(pod) or kubelet_evicted(pod))


def reserves_finished(namespace_annotations: Mapping[str, str]) -> bool:
    return namespace_annotations.get(RESERVE_FINISHED, "").lower() == "true"


def unselected(
    pod: Pod, namespace_annotations: Mapping[str, str], settings: IPReservationSettings
) -> str | None:
    """Why the addresses of *pod* are not reserved when it goes; None when they are.

    The pod's annotation says it first, then its namespace's, then the configured labels.
    """
    if not settings.enabled:
        return "ip reservation is disabled"
    if pod.spec.host_network:
        return "host network"
    if MIRROR in pod.metadata.annotations:
        return "mirror of a static pod, which keeps its IP"
    if not cidrs_of(pod):
        return "no IP"
    if choice := choice_of(pod.metadata.annotations):
        return None if choice == "true" else f"opted out by its annotation {RESERVE}"
    if choice := choice_of(namespace_annotations):
        return None if choice == "true" else f"its namespace opted out by annotation {RESERVE}"
    selected = meets_any(settings.label_selector, pod.metadata.labels)
    return None if selected else "it has no label of labelSelector"


def records_of(
    pod: Pod, settings: IPReservationSettings, *, reason: str, at: datetime, late: bool = False
) -> tuple[Record, ...]:
    """One record per address of *pod*; what is not an IP address cannot be reserved.

    Cut to what Kubernetes allows: one that is too long for an object would fail the write that others share.
    """
    owner, cidrs = pod.metadata.controller, cidrs_of(pod)
    comes_back = settings.same_address.enabled and owner is not None and owner.kind == "StatefulSet"
    return tuple(
        Record(
            cidr=cidr,
            at=at,
            namespace=pod.metadata.namespace,
            pod=pod.metadata.name,
            uid=pod.metadata.uid,
            node=pod.spec.node_name[:LONGEST_NAME],
            owner=f"{owner.kind}/{owner.name}"[: 2 * LONGEST_NAME] if owner else "",
            reason=reason,
            late=late,
            owner_uid=owner.uid[:LONGEST_NAME] if owner and comes_back else "",
            addresses=len(cidrs) if comes_back else 1,
        )
        for cidr in cidrs
    )


def records_of_evicted(pod: Pod, settings: IPReservationSettings, now: datetime) -> Sequence[Record] | str:
    """Why there is none: it was evicted so long ago that its time is over, however slow its node's clock is."""
    at = evicted_at(pod)
    if at is not None and now - at >= timedelta(seconds=settings.duration) + CLOCKS:
        return "evicted so long ago that the hold is over"
    return records_of(pod, settings, reason=KUBELET_EVICTED, at=now, late=True)


def evicted_at(pod: Pod) -> datetime | None:
    """When its kubelet ended it, by the node's clock; None where the kubelet does not say so.

    Any other condition, and this one while it is not "True", may have changed long before.
    """
    return next((condition.last_transition_time for condition in _by_kubelet(pod)), None)


def _by_kubelet(pod: Pod) -> Sequence[Condition]:
    said = DISRUPTION, "True", BY_KUBELET
    conditions = pod.status.conditions
    return [found for found in conditions if (found.type, found.status, found.reason) == said]


def meets_any(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Whether *labels* meet one of its requirements."""
    expressions = (Expression(each.key, each.operator, each.values) for each in selector.match_expressions)
    has_label = any(labels.get(key) == value for key, value in selector.match_labels.items())
    return has_label or any(matches(each, labels) for each in expressions)


def choice_of(annotations: Mapping[str, str]) -> str:
    """ "true" or "false"; "" where nothing is chosen."""
    value = annotations.get(RESERVE, "").lower()
    return value if value in ("true", "false") else ""


def cidrs_of(pod: Pod) -> tuple[str, ...]:
    """What can be reserved of the addresses of *pod*."""
    return tuple(cidr for address in pod.status.addresses[:ADDRESSES] if (cidr := canonical(address)))
