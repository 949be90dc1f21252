"""What the controllers of Kubernetes ask of a pod, and how conditions are written.

https://github.com/kubernetes/kubernetes/blob/master/pkg/api/v1/pod/util.go
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

Raw = dict[str, Any]
ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Of hashes in names: no vowels, so no words."""


def stamp(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def time_of(text: str) -> datetime:
    return datetime.fromisoformat(text)


def condition(raw: Raw, kind: str) -> Raw | None:
    conditions = (raw.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if each["type"] == kind), None)


def with_condition(
    conditions: Sequence[Raw], kind: str, status: str, now: datetime, **more: Any
) -> list[Raw]:
    """With this one set; its lastTransitionTime is that of its status."""
    old = next((each for each in conditions if each["type"] == kind), None)
    since = old["lastTransitionTime"] if old and old["status"] == status else stamp(now)
    extra = {name: value for name, value in more.items() if value}
    new = {"type": kind, "status": status, "lastTransitionTime": since, **extra}
    if old is None:
        return [*conditions, new]
    return [new if each is old else each for each in conditions]


def is_deleted(raw: Raw) -> bool:
    return "deletionTimestamp" in raw["metadata"]


def is_ended(pod: Raw) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def is_active(pod: Raw) -> bool:
    return not is_ended(pod) and not is_deleted(pod)


def is_ready(pod: Raw) -> bool:
    found = condition(pod, "Ready")
    return found is not None and found["status"] == "True"


def is_unknown(node: Raw) -> bool:
    found = condition(node, "Ready")
    return found is not None and found["status"] == "Unknown"


def available_at(pod: Raw, min_ready: int) -> datetime | None:
    """Since or from when it is available; None for one that is not ready."""
    found = condition(pod, "Ready")
    if found is None or found["status"] != "True":
        return None
    return time_of(found["lastTransitionTime"]) + timedelta(seconds=min_ready)


def is_available(pod: Raw, min_ready: int, now: datetime) -> bool:
    at = available_at(pod, min_ready)
    return at is not None and at <= now


def next_available(pods: Sequence[Raw], min_ready: int, now: datetime) -> datetime | None:
    """When the next of those that are ready becomes available."""
    times = [at for each in pods if (at := available_at(each, min_ready)) and at > now]
    return min(times, default=None)


def scaled(value: Any, total: int, *, up: bool) -> int:
    """Of an int-or-percent."""
    if isinstance(value, int):
        return value
    percent = int(str(value).rstrip("%")) * total
    return -(-percent // 100) if up else percent // 100


def hashed(*parts: Any) -> str:
    """Ten characters for a name; not the number that Kubernetes comes to, but as stable."""
    digest = hashlib.sha256(msgspec.json.encode(parts, order="sorted")).digest()
    return "".join(ALPHABET[each % len(ALPHABET)] for each in digest[:10])


def created_at(raw: Raw) -> tuple[str, str]:
    """By which older ones come first."""
    return raw["metadata"]["creationTimestamp"], raw["metadata"]["name"]
