"""The leader keeps little of each pod, and decides by that as by all of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from api.ip_reservation import (
    cidrs_of,
    disrupted,
    evicted_at,
    kubelet_evicted,
    records_of,
    unselected,
)
from controllers.ip_reservation.caches import decode_pod as decode
from controllers.ip_reservation.late_reservations import is_departure
from kube.types import Pod
from settings import IPReservationSettings

NOW = datetime(2026, 3, 1, tzinfo=UTC)
SETTINGS = IPReservationSettings()
READY = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-02-28T01:00:00Z"}
DISRUPTION = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "TerminationByKubelet",
    "lastTransitionTime": "2026-02-28T00:00:00Z",
}


def encoded(
    *, spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **metadata: Any
) -> msgspec.Raw:
    """A pod of a StatefulSet."""
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "redis", "uid": "o", "controller": True}
    known = {
        "name": "redis-0",
        "namespace": "shop",
        "uid": "u-1",
        "resourceVersion": "7",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"statefulset.kubernetes.io/pod-name": "redis-0"},
        "annotations": {"checksum": "abc"},
        "ownerReferences": [{"kind": "Other", "name": "x", "uid": "x"}, owner],
    }
    body = {
        "metadata": known | metadata,
        "spec": {"nodeName": "node-1", "restartPolicy": "Always"} | (spec or {}),
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.1",
            "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
            "conditions": [READY],
        }
        | (status or {}),
    }
    return msgspec.Raw(msgspec.json.encode(body))


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


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(encoded(), id="it runs"),
        pytest.param(encoded(labels={"app": "web"}), id="no label selects it"),
        pytest.param(encoded(annotations={"drawbridge.io/reserve-ip": "false"}), id="its annotation says no"),
        pytest.param(encoded(annotations={"kubernetes.io/config.mirror": "x"}), id="a mirror"),
        pytest.param(encoded(ownerReferences=[]), id="without an owner"),
        pytest.param(encoded(deletionTimestamp="2026-02-28T00:00:00Z"), id="it is being deleted"),
        pytest.param(encoded(spec={"hostNetwork": True}), id="host network"),
        pytest.param(encoded(status={"podIPs": []}), id="one address alone"),
        pytest.param(encoded(status={"podIP": "", "podIPs": []}), id="no address"),
        pytest.param(encoded(status={"phase": "Failed", "reason": "Evicted"}), id="evicted by its kubelet"),
        pytest.param(
            encoded(status={"phase": "Failed", "conditions": [READY, DISRUPTION]}),
            id="failed with a disruption",
        ),
        pytest.param(
            encoded(spec={"restartPolicy": "Never"}, status={"phase": "Failed"}), id="failed by itself"
        ),
        pytest.param(encoded(spec={"restartPolicy": "Never"}, status={"phase": "Succeeded"}), id="succeeded"),
        pytest.param(encoded(status={"conditions": [READY, DISRUPTION]}), id="about to be disrupted"),
    ],
)
def test_what_is_kept_decides_as_the_whole_pod(raw: msgspec.Raw) -> None:
    assert decided(decode(raw)) == decided(msgspec.json.decode(raw, type=Pod))
