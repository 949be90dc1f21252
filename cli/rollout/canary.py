"""The canary of a rollout, and how it is promoted: functions of an IngressDaemonSet."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from api.ingress_daemonset import PROMOTE
from api.ingress_daemonset.types import time_of
from cli.errors import Failure
from cli.output import Document, duration

Raw = Mapping[str, Any]


class Metric(Document, frozen=True):
    """What was measured of a canary; *value* is empty, and *message* says why, when that was not conclusive."""

    value: str
    message: str
    measured_at: datetime | None
    passing_since: datetime | None
    failures: int
    failed_at: datetime | None


class Canary(Document, frozen=True):
    """*complete_since* is None while its nodes are not as desired, *promoted_at* before it is promoted."""

    id: str
    nodes: int
    nodes_complete: int
    complete_since: datetime | None
    promoted_at: datetime | None
    metric: Metric | None = None


def canary_of(status: Raw) -> Canary | None:
    raw = status.get("canary")
    if not raw:
        return None
    return Canary(
        raw["id"],
        raw.get("nodes", 0),
        raw.get("nodesComplete", 0),
        time_of(raw.get("completeSince", "")),
        time_of(raw.get("promotedAt", "")),
        _metric(raw["metric"]) if "metric" in raw else None,
    )


def _metric(raw: Raw) -> Metric:
    measured, passing, failed = (
        time_of(raw.get(name, "")) for name in ("measuredAt", "passingSince", "failedAt")
    )
    return Metric(
        raw.get("value", ""), raw.get("message", ""), measured, passing, raw.get("failures", 0), failed
    )


def metric_sentence(metric: Metric, now: datetime) -> str:
    if metric.measured_at is None:
        return "Its metric has not been measured yet"
    measured = f"measured {duration((now - metric.measured_at).total_seconds())} ago"
    if metric.failed_at:
        return f"Its metric has failed: {metric.message}"
    if metric.message:
        return f"Its metric: {metric.message}; {measured}"
    since = metric.passing_since or metric.measured_at
    return f"Its metric: {metric.value}, good for {duration((now - since).total_seconds())}; {measured}"


def sentence(canary: Canary, now: datetime) -> str:
    counted = f"{canary.nodes_complete} of {canary.nodes} nodes"
    if canary.promoted_at:
        return f"Canary: {canary.nodes} nodes, promoted {duration((now - canary.promoted_at).total_seconds())} ago"
    if canary.complete_since:
        return f"Canary: {counted}, complete for {duration((now - canary.complete_since).total_seconds())}"
    return f"Canary: {counted} complete"


def promote(annotations: Mapping[str, str], status: Raw) -> dict[str, Any] | None:
    """What to merge into the metadata; None when it is promoted already. Failure without a canary."""
    canary = canary_of(status)
    if canary is None:
        raise Failure("it has no canary in progress", "drawbridge rollout get shows what it waits for")
    if canary.promoted_at or annotations.get(PROMOTE) == canary.id:
        return None
    return {"annotations": {PROMOTE: canary.id}}
