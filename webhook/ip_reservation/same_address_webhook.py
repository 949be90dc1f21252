"""Ask Calico, for a StatefulSet's new pod, for the addresses that are reserved for it: gather, decide, apply."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog
from prometheus_client import Counter

from api.ip_reservation import SAME_ADDRESS_PATH
from api.same_address import (
    CalicoIPAM,
    Outcome,
    Place,
    Promise,
    decide,
    left_alone,
    refusal,
    stateful_set_of,
)
from calico.reservations import NotServed
from calico.segment import IPReservation
from kube.errors import KubeError
from kube.types import ObjectMeta, Pod
from runtime import time
from settings import IPReservationSettings
from webhook.admission import Decision, Request, allow, change, decoded
from webhook.ip_reservation.webhook import Cluster

NAME = "same-address"
LONGEST = 1.5
"""Seconds for all reads: a pod must not wait longer for an address than it would for a new one."""

PROMISES = Counter(
    "drawbridge_same_address_decisions",
    "New pods of StatefulSets, by whether the addresses of their predecessor were promised to them.",
    ["outcome"],
)
for _outcome in Outcome:
    PROMISES.labels(_outcome)

WHY = {
    Outcome.NOT_RESERVED: "no address is reserved for it",
    Outcome.INCOMPLETE: "not all addresses of its predecessor are still reserved",
    Outcome.OF_OTHERS: "the address of its predecessor is reserved for others, too",
    Outcome.TO_BE_RELEASED: "an operator wants the address of its predecessor released",
    Outcome.NEARLY_OVER: "the reservation for it is about to end",
    Outcome.STRICT_AFFINITY: "Calico's strictAffinity: the node that it will run on may not have the address",
    Outcome.NODE_SELECTOR: "the nodeSelector of its predecessor's IPPool: the node that it will run on may have others",
    Outcome.NO_POOL: "no IPPool has the address of its predecessor, as on a super node: Calico does not give it",
    Outcome.DISABLED_POOL: "the IPPool of its predecessor is disabled or being deleted: Calico gives no address of it",
    Outcome.COOLDOWN: "Calico's ipCooldownSeconds: it may still refuse the address of its predecessor",
    Outcome.NOT_READ: "the reservations could not be read",
}

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True)
class SameAddressWebhook:
    """*segments* are all that are there when they are asked for, until a deadline, as *of_calico*.

    Both raise KubeError, or NotServed without Calico.
    """

    name, path = NAME, SAME_ADDRESS_PATH

    cluster: Cluster
    segments: Callable[[float], Sequence[IPReservation]]
    of_calico: Callable[[float], CalicoIPAM]
    settings: Callable[[], IPReservationSettings]
    now: Callable[[], datetime]

    def fails_open(self) -> bool:
        """Always: a pod to which nothing is promised gets another address, as without this."""
        return True

    def review(self, request: Request, deadline: float) -> Decision:
        if request.object is None or request.operation != "CREATE" or request.sub_resource:
            return allow(audit={"skipped": "no new pod"})
        pod, by = decoded(request.object, Pod, "object"), min(deadline, time.monotonic() + LONGEST)
        if skipped := left_alone(pod, {}, self.settings()):
            return allow(audit={"skipped": skipped})
        try:
            namespace = self.cluster.namespace(request.namespace, deadline=by)
            if skipped := left_alone(pod, namespace.metadata.annotations, self.settings()):
                return allow(audit={"skipped": skipped})
            outcome = self._decided(place_of(request.namespace, pod.metadata), by)
        except (KubeError, NotServed) as error:
            log.warning("reservations not read", namespace=request.namespace, error=str(error))
            outcome = Outcome.NOT_READ
        return answer(pod.metadata.annotations, outcome)

    def _decided(self, place: Place, deadline: float) -> Promise | Outcome:
        segments, now = self.segments(deadline), self.now()
        found = decide(place, segments, self.settings(), now)
        if isinstance(found, Outcome):
            return found
        return refusal(found, segments, self.of_calico(deadline), now) or found


def place_of(namespace: str, pod: ObjectMeta) -> Place:
    owner = stateful_set_of(pod)
    return Place(namespace, pod.name, owner.uid if owner else "")


def answer(annotations: Mapping[str, str], outcome: Promise | Outcome) -> Decision:
    """For a pod with these *annotations*."""
    if isinstance(outcome, Outcome):
        PROMISES.labels(outcome).inc()
        return allow(audit={"skipped": WHY[outcome]})
    PROMISES.labels(Outcome.PROMISED).inc()
    before = {"annotations": annotations} if annotations else {}  # else it may lack the field
    after = {"annotations": {**annotations, **outcome.annotations}}
    promised = {"promised": ",".join(outcome.addresses)}
    return change({"metadata": before}, {"metadata": after}, audit=promised)
