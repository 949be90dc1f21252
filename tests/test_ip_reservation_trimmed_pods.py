"""The leader keeps little of each pod, and decides by that as by all of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml

from api.ip_reservation import (
    cidrs_of,
    disrupted,
    evicted_at,
    kubelet_evicted,
    records_of,
    unselected,
)
from controllers.ip_reservation.caches import decode_pod
from controllers.ip_reservation.late_reservations import is_departure
from kube.types import Pod
from settings import IPReservationSettings
from tests.factories import NOW, raw_pod
from tests.ip_reservation_world import encoded
from tests.test_ip_reservation import CASES

SETTINGS = IPReservationSettings()
UNREAD = {"annotations": {"checksum": "abc"}, "resourceVersion": "7", "creationTimestamp": NOW.isoformat()}
READY = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-02-28T01:00:00Z"}
MORE: list[dict[str, Any]] = [
    {"metadata": UNREAD, "status": {"conditions": [READY]}},
    {"metadata": {"ownerReferences": []}},
    {"metadata": {"deletionTimestamp": NOW.isoformat()}},
    {"status": {"podIPs": []}},
]


def pods() -> list[dict[str, Any]]:
    """Those of the golden cases, and some more."""
    golden = [yaml.safe_load(path.read_text()) for path in CASES]
    parts = [each for case in golden for each in (case["request"].get("pod"), *case.get("pods", []))]
    return [raw_pod(**each) for each in [*parts, *MORE] if each is not None]


def decided(pod: Pod) -> list[object]:
    return [
        unselected(pod, {}, SETTINGS),
        cidrs_of(pod),
        records_of(pod, SETTINGS, reason="deleted", at=NOW),
        kubelet_evicted(pod),
        kubelet_evicted(pod) and evicted_at(pod),
        pod.finished and disrupted(pod),
        is_departure(pod, gone=False),
        pod.terminating,
        pod.metadata.controller,
        (pod.metadata.uid, pod.metadata.resource_version),
    ]


@pytest.mark.parametrize("raw", pods())
def test_what_is_kept_decides_as_the_whole_pod(raw: dict[str, Any]) -> None:
    assert decided(decode_pod(encoded(raw))) == decided(msgspec.json.decode(encoded(raw), type=Pod))
