"""The leader's copies of segments, selected namespaces and pods, trimmed to what decides about reservations."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from api.ip_reservation import (
    DISRUPTION,
    NAMESPACE_LABEL,
    NAMESPACE_LABEL_VALUES,
    RESERVE,
    RESERVE_FROM,
    cidrs_of,
)
from api.same_address import IP_ADDRS, SAME_ADDRESS_FROM, predecessor_of
from api.standing import RESERVED, keys_of
from calico.segment import IPReservation, Record
from controllers.informers import Informers
from controllers.ip_reservation.claims import Claims
from kube.compact import compact
from kube.informer import Informer
from kube.resources import NAMESPACES, PODS, Resource, Selection
from kube.types import MIRROR, Namespace, Pod, PodSpec, PodStatus

KEPT = (MIRROR, RESERVE, RESERVE_FROM, RESERVED, SAME_ADDRESS_FROM, IP_ADDRS)
"""Annotations of pods."""


@dataclass(frozen=True)
class Caches:
    """Segments are indexed by the "keys" and the "cidrs" of their records, pods by "uid" and "predecessor".

    *claims* are what the leader promised beyond what they say.
    """

    segments: Informer[IPReservation]
    namespaces: Informer[Namespace]
    pods: Informer[Pod]
    claims: Claims = field(default_factory=Claims)

    @property
    def informers(self) -> Sequence[Informer[Any]]:
        return self.segments, self.namespaces, self.pods

    def is_reserved(self, record: Record) -> bool:
        return bool(self.segments.by_index("keys", record.key))

    def pod_of(self, record: Record) -> Pod | None:
        return next(iter(self.pods.by_index("uid", record.uid)), None)

    def lives_with(self, key: str) -> bool:
        """Whether there is a pod with the address of this *key* of a record."""
        return any(key in keys_of(pod) for pod in self.pods.by_index("uid", key.partition(" ")[2]))

    def has_left(self, record: Record) -> bool:
        """Whether its pod lives on with other addresses, as in a new sandbox."""
        pod = self.pod_of(record)
        return pod is not None and bool(now := cidrs_of(pod)) and record.cidr not in now

    def successors_of(self, record: Record) -> Sequence[Pod]:
        """Pods to which the addresses of its pod were promised."""
        return self.pods.by_index("predecessor", record.uid) if record.uid else ()


def caches_of(informers: Informers, reservations: Resource) -> Caches:
    caches = Caches(
        informers.of(reservations, IPReservation, optional=True),
        informers.of(NAMESPACES, Namespace, Selection(label_selector=selected_namespaces())),
        informers.of(PODS, Pod, decode=decode_pod),
    )
    caches.segments.add_index("keys", lambda segment: segment.keys)
    caches.segments.add_index(
        "cidrs", lambda segment: {record.cidr for record in segment.records if segment.ours}
    )
    caches.pods.add_index("uid", lambda pod: (pod.metadata.uid,))
    caches.pods.add_index("predecessor", lambda pod: {predecessor_of(pod.metadata.annotations)} - {""})
    return caches


def selected_namespaces() -> str:
    """The namespaces that the webhook configuration selects; Drawbridge's own is not one of them."""
    enabled = f"{NAMESPACE_LABEL} in ({','.join(NAMESPACE_LABEL_VALUES)})"
    own = os.environ.get("POD_NAMESPACE")
    return f"{enabled},kubernetes.io/metadata.name notin ({own})" if own else enabled


def decode_pod(encoded: msgspec.Raw) -> Pod:
    """As much of a pod as reserving its addresses may need. MsgspecError when it cannot be read."""
    pod = _POD.decode(encoded)
    spec, status = pod.spec, pod.status
    return Pod(
        compact(pod.metadata, KEPT),
        PodSpec(sys.intern(spec.node_name), spec.host_network, sys.intern(spec.restart_policy)),
        PodStatus(
            phase=sys.intern(status.phase),
            reason=status.reason,
            pod_ip="" if status.pod_ips else status.pod_ip,
            pod_ips=status.pod_ips,
            conditions=tuple(condition for condition in status.conditions if condition.type == DISRUPTION),
        ),
    )


_POD = msgspec.json.Decoder(Pod)
