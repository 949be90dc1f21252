"""The record of a Lease, and the changes to it: functions of values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from kube.types import Value


class LeaseSpec(Value, frozen=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


@dataclass(frozen=True)
class Observed:
    """A record, and when we first saw it so, on our clock."""

    spec: LeaseSpec
    at: float


def spec_of(lease: dict[str, Any]) -> LeaseSpec:
    return msgspec.convert(lease.get("spec") or {}, LeaseSpec)


def observe(before: Observed | None, spec: LeaseSpec, now: float) -> Observed:
    return before if before is not None and before.spec == spec else Observed(spec, now)


def first_seen(spec: LeaseSpec, now: float, wall: datetime) -> Observed:
    """For readers that have seen no change yet: as old as its renewTime says, by the time of day.

    The clocks of two machines may differ; the first change, which counts from when it is seen, corrects that.
    """
    try:
        age = (wall - datetime.fromisoformat(spec.renew_time or "")).total_seconds()
    except (ValueError, TypeError):
        age = 0.0
    return Observed(spec, now - max(0.0, age))


def expired_for(observed: Observed, now: float) -> float:
    """Seconds since the lease expired; 0 when it has not."""
    return max(0.0, now - observed.at - (observed.spec.lease_duration_seconds or 0))


def may_take(observed: Observed, identity: str, duration: float, now: float) -> bool:
    """Whether the lease is free, held by *identity*, or expired: not before *duration*, whatever was edited."""
    holder = observed.spec.holder_identity
    expires = observed.at + max(duration, observed.spec.lease_duration_seconds or 0)
    return not holder or holder == identity or now >= expires


def acquired(before: LeaseSpec, identity: str, duration: float, now: datetime) -> dict[str, Any]:
    """The fields that change when *identity* takes the lease."""
    changes_hands = before.holder_identity not in (None, identity)
    return renewed(duration, now) | {
        "holderIdentity": identity,
        "acquireTime": _micro_time(now),
        "leaseTransitions": (before.lease_transitions or 0) + changes_hands,
    }


def renewed(duration: float, now: datetime) -> dict[str, Any]:
    """With the duration, which may have been edited."""
    return {"leaseDurationSeconds": math.ceil(duration), "renewTime": _micro_time(now)}


def released(now: datetime) -> dict[str, Any]:
    """As client-go writes it: without a holder, and expired at once for readers that ignore the holder."""
    return renewed(1, now) | {"holderIdentity": ""}


def _micro_time(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
