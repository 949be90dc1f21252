"""Decide about the promises of admission: which reservations wait for a pod, and when a promise has ended.

Admission asks Calico for the addresses that are reserved for a StatefulSet's new pod. Until that pod has them, they
stay reserved; once it has them, their reservations end. A pod that does not get them must not ask for them any longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from api.ip_reservation import cidrs_of
from api.same_address import Promise, predecessor_of, promise_of
from calico.segment import Record
from kube.types import Pod
from settings import IPReservationSettings


class Ending(StrEnum):
    """How a promise ended."""

    KEPT = "kept"
    OTHER_ADDRESS = "other-address"
    DROPPED = "dropped"


@dataclass(frozen=True)
class Promises:
    """Keys of records: those *waiting* for the pod that takes the place, and those *kept*, whose address it has."""

    waiting: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()


def promises_of(records: Iterable[Record], successors: Callable[[Record], Iterable[Pod]]) -> Promises:
    """*successors* are the pods to which the addresses of a record's pod were promised."""
    known = [(record, pod) for record in records for pod in successors(record)]
    return Promises(
        frozenset(record.key for record, pod in known if is_waited_for(record, pod)),
        frozenset(record.key for record, pod in known if is_kept(record, pod)),
    )


def is_waited_for(record: Record, pod: Pod) -> bool:
    """Whether *pod* may still come up with the address of *record*."""
    promise = open_promise(pod)
    return promise is not None and _is_successor(record, pod) and record.cidr in promise.cidrs


def is_kept(record: Record, pod: Pod) -> bool:
    has_it = record.cidr in cidrs_of(pod) and not pod.finished
    return has_it and _is_successor(record, pod)


def open_promise(pod: Pod) -> Promise | None:
    """Of a pod that has no address yet and may get one."""
    if pod.terminating or pod.finished or cidrs_of(pod):
        return None
    return promise_of(pod.metadata.annotations)


def plan(pod: Pod, promise: Promise, waited: float, settings: IPReservationSettings) -> Ending | float:
    """How the *promise* has ended, or the seconds until it has to be decided again.

    *waited* are the seconds for which the pod has had its node, or has been without one.
    """
    if addresses := cidrs_of(pod):
        return Ending.KEPT if set(promise.cidrs) <= set(addresses) else Ending.OTHER_ADDRESS
    has_node = bool(pod.spec.node_name)
    left = (settings.same_address.timeout if has_node else settings.ip_reserve_time) - waited
    return left if left > 0 else Ending.DROPPED


def _is_successor(record: Record, pod: Pod) -> bool:
    at = pod.metadata
    is_in_its_place = (at.namespace, at.name) == (record.namespace, record.pod)
    return bool(record.uid) and is_in_its_place and predecessor_of(at.annotations) == record.uid
