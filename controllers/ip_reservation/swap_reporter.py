"""Metrics, Events and log messages about addresses that came to other pods."""

from __future__ import annotations

import structlog
from prometheus_client import Counter

from calico.segment import Record
from controllers.ip_reservation.swap_planner import Hold
from kube.event_recorder import EventRecorder, Regarding
from kube.types import Pod

SWAPPED = Counter(
    "drawbridge_swapped_addresses",
    "Pods that came up with an address of another pod, whose clients may still use it.",
    ["hold"],
)
for _hold in Hold:
    SWAPPED.labels(_hold)  # from zero on: a scraper cannot tell a first one from a new series

WHY = {
    Hold.RESERVED: "which is reserved for",
    Hold.RELEASED_EARLY: "which was released before ipReserveTime, and had been of",
}

log = structlog.get_logger(__name__)


class SwapReporter:
    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder

    def swapped(self, pod: Pod, record: Record, hold: Hold) -> None:
        at, former, address = pod.metadata, f"{record.namespace}/{record.pod}", record.cidr.partition("/")[0]
        SWAPPED.labels(hold).inc()
        about = {"namespace": at.namespace, "name": at.name, "uid": at.uid}
        log.warning("address swapped", address=record.cidr, hold=hold, former=former, **about)
        self._recorder.event(
            Regarding.pod(at.namespace, at.name, at.uid),
            "AddressSwapped",
            f"The pod has {address}, {WHY[hold]} pod {former}: clients of that one may reach this pod",
            type="Warning",
        )
