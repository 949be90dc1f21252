"""The canary of a rollout, and how it is promoted: functions of an IngressDaemonSet."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from cli.errors import Failure
from cli.output import Document, duration
from webhook.ingress_daemonset import PROMOTE
from webhook.ingress_daemonset.types import time_of

Raw = Mapping[str, Any]


class Canary(Document, frozen=True):
    """*complete_since* is None while its nodes are not as desired, *promoted_at* before it is promoted."""

    id: str
    nodes: int
    nodes_complete: int
    complete_since: datetime | None
    promoted_at: datetime | None


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
    )


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
