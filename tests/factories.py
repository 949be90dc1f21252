"""The smallest valid objects, with overrides."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from calico.segment import LEVEL, MANAGED_BY, MANAGER, RELEASE, IPReservation, Record, body
from kube.types import Pod

DEEP = "[" * 9_000 + "]" * 9_000
"""JSON that is nested more deeply than a decoder follows."""
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


def ago(**delta: float) -> datetime:
    return NOW - timedelta(**delta)


BEYOND_ALL_TIMES = [
    {"type": "A", "lastTransitionTime": each}
    for each in ("0000-01-01T00:00:00Z", "-0001-12-31T10:00:00Z", "10000-01-01T13:59:59Z")
]
"""Conditions as Kubernetes stores them, the last two with times of other zones: no datetime can be one of these."""


def raw_pod(
    name: str = "redis-0", *, namespace: str = "redis", ip: str = "10.0.0.1", **parts: Any
) -> dict[str, Any]:
    """A running pod of a StatefulSet as the API server sends it; *parts* are merged into metadata, spec and status."""
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{name}",
        "labels": {"statefulset.kubernetes.io/pod-name": name},
        "ownerReferences": [
            {
                "apiVersion": "apps/v1",
                "kind": "StatefulSet",
                "name": "redis",
                "uid": "uid-redis",
                "controller": True,
            }
        ],
    }
    status = {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}]} if ip else {"phase": "Pending"}
    return {
        "metadata": metadata | parts.get("metadata", {}),
        "spec": {"nodeName": "node-1"} | parts.get("spec", {}),
        "status": status | parts.get("status", {}),
    }


def pod(name: str = "redis-0", **parts: Any) -> Pod:
    return msgspec.convert(raw_pod(name, **parts), Pod, strict=False)


def record(cidr: str = "10.0.0.1/32", **fields: Any) -> Record:
    return Record(
        **(
            {"cidr": cidr, "at": ago(minutes=5), "namespace": "redis", "pod": "redis-0", "uid": "uid-redis-0"}
            | fields
        )
    )


def numbered(n: int, **fields: Any) -> Record:
    """One of many."""
    return record(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}/32", **{"uid": f"uid-{n}"} | fields)


def segment(
    *records: Record,
    name: str = "drawbridge-a",
    version: str = "1",
    ours: bool = True,
    level: int = 0,
    release: str = "",
    entries: Iterable[str] = (),
) -> IPReservation:
    """An operator wants *release* released, and a hand has added *entries*."""
    raw = body(records)
    raw["spec"]["reservedCIDRs"] += entries
    raw["metadata"]["annotations"] |= {RELEASE: release} if release else {}
    raw["metadata"] |= {
        "name": name,
        "resourceVersion": version,
        "labels": ({MANAGED_BY: MANAGER} if ours else {}) | {LEVEL: str(level)},
    }
    return msgspec.convert(raw, IPReservation)
