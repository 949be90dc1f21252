"""Metrics, Events and log messages about addresses that were promised to pods."""

from __future__ import annotations

import structlog
from prometheus_client import Counter

from api.same_address import Promise
from controllers.ip_reservation.promises import Ending
from kube.errors import KubeError
from kube.event_recorder import EventRecorder, Regarding
from kube.types import Pod

PROMISED = Counter(
    "drawbridge_same_address_promises",
    "Promises of the address of their predecessor to pods of StatefulSets, by how they ended.",
    ["ending"],
)
for _ending in Ending:
    PROMISED.labels(_ending)  # from zero on: a scraper cannot tell a first one from a new series

log = structlog.get_logger(__name__)


class SameAddressReporter:
    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder

    def ended(self, pod: Pod, promise: Promise, ending: Ending) -> None:
        at, addresses = pod.metadata, " and ".join(promise.addresses)
        PROMISED.labels(ending).inc()
        about = {"namespace": at.namespace, "name": at.name, "uid": at.uid}
        log.info("promised address", ending=ending, address=addresses, former=promise.former, **about)
        regarding, text = Regarding.pod(at.namespace, at.name, at.uid), message(pod, addresses, ending)
        if ending is Ending.KEPT:
            self._recorder.event(regarding, "SameAddress", text)
        else:
            self._recorder.event(regarding, "SameAddressDropped", text, type="Warning")

    def not_ended(self, pod: Pod, promise: Promise, error: KubeError) -> None:
        at = pod.metadata
        log.warning("promise not ended", namespace=at.namespace, name=at.name, uid=at.uid, error=str(error))
        self._recorder.event(
            Regarding.pod(at.namespace, at.name, at.uid),
            "SameAddressNotEnded",
            f"The pod still asks Calico for {' and '.join(promise.addresses)}, which is due to end: {error}; retrying",
            type="Warning",
        )


def message(pod: Pod, addresses: str, ending: Ending) -> str:
    """Of the Event about *pod*."""
    node = f" on node {pod.spec.node_name}" if pod.spec.node_name else ", which no node runs yet,"
    match ending:
        case Ending.KEPT:
            return f"The pod has the address of its predecessor, {addresses}: it is no longer reserved"
        case Ending.OTHER_ADDRESS:
            return f"The pod was promised {addresses}, the address of its predecessor, and came up with another one"
        case Ending.DROPPED:
            return (
                f"The pod{node} did not get {addresses}, the address of its predecessor, in time:"
                " from now on Calico gives it any address"
            )
