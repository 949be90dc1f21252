"""The waves of a rollout, and how one is freed from its window: functions of an IngressDaemonSet."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from api.ingress_daemonset import UPDATE_NOW
from api.ingress_daemonset.types import resource, time_of
from cli.errors import Failure
from cli.output import Document
from controllers.ingress_daemonset.desired import applied_digest

Raw = Mapping[str, Any]


class Waves(Document, frozen=True):
    """By the values of *label*; an empty value is of the nodes without it. *completed_at* is None but in a pause."""

    label: str
    current: str
    next: tuple[str, ...]
    completed_at: datetime | None


def waves_of(status: Raw) -> Waves | None:
    raw = status.get("waves")
    if not raw:
        return None
    completed = time_of(raw.get("completedAt", ""))
    return Waves(raw.get("label", ""), raw.get("current", ""), tuple(raw.get("next") or ()), completed)


def sentence(waves: Waves) -> str:
    state = "complete" if waves.completed_at else "in progress"
    following = f", then {', '.join(map(_named, waves.next))}" if waves.next else ""
    return f"Waves by {waves.label}: {_named(waves.current)} is {state}{following}"


def update_now(spec: Raw, status: Raw, annotations: Mapping[str, str]) -> dict[str, Any] | None:
    """What to merge into the metadata; None when it does not wait already. Failure without a window."""
    if not spec.get("updateStrategy", {}).get("rollingUpdate", {}).get("window"):
        raise Failure("it has no window", "drawbridge rollout get shows what it waits for")
    rolled_out = (status.get("rollout") or {}).get("digest")
    digest = rolled_out or applied_digest(resource({"metadata": {}, "spec": spec}))
    return None if annotations.get(UPDATE_NOW) == digest else {"annotations": {UPDATE_NOW: digest}}


def _named(value: str) -> str:
    return value or "nodes without it"
