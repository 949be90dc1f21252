"""The fields that differ between two configurations, and those that need a restart."""

import hashlib
from collections.abc import Iterator
from typing import Any

from settings.models import Settings

NEEDS_RESTART = (
    "health.healthProbeBindAddress",
    "metrics.bindAddress",
    "webhook.port",
    "webhook.certDir",
    "webhook.threads",
    "webhook.drainPeriod",
    "leaderElection.",
    "certs.mode",
    "certs.secretName",
    "certs.serviceName",
    "certs.configurationName",
    "cloud.",
    "anycastIP.enabled",
    "elasticity.enabled",
    "elasticity.switch.",
    "ingressDaemonSet.enabled",
    "ipReservation.enabled",
    "ipReservation.calicoApiVersion",
)
"""Read once, when a process starts: fields, or sections when it ends in a dot."""


def changed_fields(old: Settings, new: Settings) -> list[str]:
    """Their names as written in the file."""
    before, after = _fields(old), _fields(new)
    return [name for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name)]


def needing_restart(fields: list[str]) -> list[str]:
    return [field for field in fields if field.startswith(NEEDS_RESTART)]


def fingerprint(settings: Settings) -> int:
    """The same for the same settings; small enough to be exact as a float."""
    digest = hashlib.sha256(settings.model_dump_json().encode()).digest()
    return int.from_bytes(digest[:6], "big")


def _fields(settings: Settings) -> dict[str, Any]:
    return dict(_leaves("", settings.model_dump(by_alias=True)))


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict) or not value:
        yield path, value
        return
    for name, part in value.items():
        yield from _leaves(f"{path}.{name}" if path else name, part)
