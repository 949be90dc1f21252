"""The leader's copies of segments, selected namespaces and pods, trimmed to what decides about reservations."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

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
from api.standing import RESERVED, epoch_of, keys_of
from calico.segment import NO_KEYS, IPReservation, Keys, Record
from controllers.informers import Informers
from kube.informer import Informer
from kube.resources import NAMESPACES, PODS, Resource, Selection
from kube.types import MIRROR, Namespace, OwnerReference, Pod, PodSpec, PodStatus, compact
from runtime import threading

MOST_DECIDED = 50_000
"""The oldest are forgotten: their addresses stay reserved for their time."""


class Claims:
    """By the uid of pods, the keys of the records of their addresses. Safe to share between threads.

    A pod is *claimed* once its records are durable by a write of this leader, so that no write of a former one can take
    them away. It is *marked* from just before its mark is written until that is certainly gone. The keys of both are
    relied on. Of an *excused* pod, no address stays reserved once it is gone. Of one that *finished*, by itself, either
    is decided once.

    Marks count in *epoch*: any, while it is "", which is not known yet; none, while it is None. Segments with records
    of living pods go with their *owner*, so no claim outlasts it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._claimed: dict[str, Keys] = {}
        self._marked: dict[str, Keys] = {}
        self._decided: dict[str, bool] = {}
        self._epoch: str | None = ""
        self.owner: OwnerReference | None = None
        self.released = NO_KEYS
        """Of living pods whose address Calico has released, as far as the last pass knows."""

    def begin(self, epoch: str, owner: OwnerReference) -> None:
        with self._lock:
            if self.owner not in (None, owner):
                self._claimed.clear()
                self._marked.clear()
            self._epoch, self.owner = epoch, owner

    def end(self) -> None:
        """No mark counts any more."""
        with self._lock:
            self._epoch = self.owner = None
            self._claimed.clear()
            self._marked.clear()

    def has_mark_in_force(self, pod: Pod) -> bool:
        """As far as it is known."""
        epoch = epoch_of(pod)
        return epoch is not None and self._epoch in ("", epoch)

    def claim(self, pods: Mapping[str, Keys], owner: OwnerReference) -> None:
        """Those that are reserved in segments of *owner*."""
        with self._lock:
            if self.owner == owner:
                self._claimed |= pods

    def withdraw(self, uids: Iterable[str]) -> None:
        """Of living pods, whose marks are to be removed."""
        with self._lock:
            for uid in uids:
                self._claimed.pop(uid, None)

    def of(self, uid: str) -> Keys:
        """What is claimed."""
        return self._claimed.get(uid, NO_KEYS)

    def found_marked(self, uid: str, keys: Keys) -> None:
        """By this leader or another one."""
        with self._lock:
            if self._epoch is not None:
                self._marked.setdefault(uid, keys)

    def begin_marking(self, uid: str, keys: Keys) -> bool:
        """Whether its mark may be written: it is claimed with these *keys*, which are relied on from now on."""
        with self._lock:
            if self._claimed.get(uid) != keys:
                return False
            self._marked[uid] = self._marked.get(uid, NO_KEYS) | keys
            return True

    def marked(self, uid: str, keys: Keys) -> None:
        """Certainly with these *keys* alone; none without a mark."""
        with self._lock:
            if keys:
                self._marked[uid] = keys
            else:
                self._marked.pop(uid, None)

    def marked_of(self, uid: str) -> Keys:
        return self._marked.get(uid, NO_KEYS)

    def ended(self, uid: str) -> None:
        """The time of its reservations begins."""
        with self._lock:
            self._claimed.pop(uid, None)
            self._marked.pop(uid, None)

    def decide(self, uid: str, *, stays: bool) -> None:
        """Once: whether its addresses stay reserved, as those of a pod that finished, or it is excused."""
        with self._lock:
            self._decided.setdefault(uid, stays)
            if len(self._decided) > MOST_DECIDED:
                del self._decided[next(iter(self._decided))]

    def reconsider(self, uid: str) -> None:
        """Its pod is selected otherwise than when this was decided, and is not gone."""
        with self._lock:
            self._decided.pop(uid, None)

    def decided(self, *, stays: bool) -> frozenset[str]:
        """Uids."""
        with self._lock:
            return frozenset(uid for uid, either in self._decided.items() if either is stays)

    def is_excused(self, uid: str) -> bool:
        return self._decided.get(uid) is False

    def relied_on(self) -> Keys:
        with self._lock:
            every = (*self._claimed.values(), *self._marked.values())
        return NO_KEYS.union(*every)

    def __len__(self) -> int:
        """Claimed pods."""
        return len(self._claimed)

    def __contains__(self, uid: object) -> bool:
        return uid in self._claimed


KEPT = (MIRROR, RESERVE, RESERVE_FROM, RESERVED, SAME_ADDRESS_FROM, IP_ADDRS)
"""Annotations of pods."""


@dataclass(frozen=True)
class Caches:
    """*claims* are what the leader promised beyond what the others say."""

    segments: Informer[IPReservation]
    namespaces: Informer[Namespace]
    pods: Informer[Pod]
    claims: Claims = field(default_factory=Claims)

    def __post_init__(self) -> None:
        self.segments.add_index("keys", lambda segment: segment.keys)
        self.segments.add_index("cidrs", lambda segment: segment.cidrs if segment.ours else ())
        self.pods.add_index("uid", lambda pod: (pod.metadata.uid,))
        self.pods.add_index("namespace", lambda pod: (pod.metadata.namespace,))
        self.pods.add_index("cidrs", addresses_of)
        self.pods.add_index("predecessor", lambda pod: {predecessor_of(pod.metadata.annotations)} - {""})

    def is_reserved(self, record: Record) -> bool:
        return bool(self.segments.by_index("keys", record.key))

    def pod(self, uid: str) -> Pod | None:
        return next(iter(self.pods.by_index("uid", uid)), None)

    def end_claims_of_gone(self, uids: Iterable[str]) -> None:
        """After a claim or a mark: a pod may have gone while it was written, and its end have been handled before."""
        for uid in uids:
            if (pod := self.pod(uid)) is None or pod.finished:
                self.claims.ended(uid)

    def pods_of(self, namespace: Namespace) -> Sequence[Pod]:
        return self.pods.by_index("namespace", namespace.metadata.name)

    def pods_at(self, cidr: str) -> Sequence[Pod]:
        """Those that have this address, as :func:`addresses_of` says."""
        return self.pods.by_index("cidrs", cidr)

    def lives_with(self, key: str) -> bool:
        """Whether there is a pod with the address of this *key* of a record."""
        pod = self.pod(key.partition(" ")[2])
        return pod is not None and key in keys_of(pod)

    def successors_of(self, record: Record) -> Sequence[Pod]:
        """Pods to which the addresses of its pod were promised."""
        return self.pods.by_index("predecessor", record.uid) if record.uid else ()


def addresses_of(pod: Pod) -> frozenset[str]:
    """As CIDRs; none of one that has finished, nor on the host's network, whose addresses are its own."""
    return frozenset() if pod.finished or pod.spec.host_network else frozenset(cidrs_of(pod))


def caches_of(informers: Informers, reservations: Resource) -> Caches:
    return Caches(
        informers.of(reservations, IPReservation, optional=True),
        informers.of(NAMESPACES, Namespace, Selection(label_selector=selected_namespaces())),
        informers.of(PODS, Pod, decode=decode_pod),
    )


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
        PodSpec(sys.intern(spec.node_name), spec.host_network, sys.intern(spec.restart_policy), spec.ending),
        PodStatus(
            phase=sys.intern(status.phase),
            reason=status.reason,
            pod_ip="" if status.pod_ips else status.pod_ip,
            pod_ips=status.pod_ips,
            conditions=tuple(condition for condition in status.conditions if condition.type == DISRUPTION),
        ),
    )


_POD = msgspec.json.Decoder(Pod)
