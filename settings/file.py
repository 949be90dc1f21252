"""The settings of the file, reloaded when it changes; the last good ones while it cannot be used."""

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import structlog
from prometheus_client import Counter, Gauge

from runtime import threading
from settings.load import SettingsError, load
from settings.models import Settings

log = structlog.stdlib.get_logger(__name__)

RELOADS = Counter(
    "drawbridge_config_reloads_total", "Reloads of the configuration file, by result.", ["result"]
)
SUCCESSFUL = Gauge(
    "drawbridge_config_last_reload_successful", "1 when the current file is in force, 0 when it was refused."
)
HASH = Gauge(
    "drawbridge_config_hash", "A hash of the settings in force: processes with the same settings agree."
)

NEEDS_RESTART = (
    "health.healthProbeBindAddress",
    "metrics.bindAddress",
    "metrics.authentication",
    "webhook.port",
    "webhook.certDir",
    "webhook.threads",
    "webhook.drainPeriod",
    "leaderElection.",
    "certs.mode",
    "certs.secretName",
    "certs.configurationName",
    "cloud.",
    "anycastIP.allowList.http.",
    "elasticity.openGates",
    "elasticity.switch.",
    "ingressDaemonSet.clb.enabled",
    "ipReservation.calicoApiVersion",
    "ipReservation.pools.enabled",
    "ipReservation.sameAddress.enabled",
    "ipReservation.standing.enabled",
    "ipReservation.workloadOptIn",
    *(
        f"{field.alias}.enabled"
        for field in Settings.model_fields.values()
        if "enabled" in getattr(field.annotation, "model_fields", ())
    ),
)
"""Read once, when a process starts: fields, or sections when it ends in a dot."""


class SettingsFile:
    """`current` is the newest valid configuration of one file; SettingsError when there is none at the start.

    `poll` calls *on_change* with new settings that differ from the old ones, and *on_refused* with the error.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        on_change: Callable[[Settings], None] = lambda _new: None,
        on_refused: Callable[[SettingsError], None] = lambda _error: None,
    ) -> None:
        self.path = Path(path)
        self._on_change, self._on_refused = on_change, on_refused
        self._seen = _identity(self.path)
        self.current = load(self.path)
        _report(self.current)

    def poll(self) -> None:
        """Reload the file if it changed since the last look; for one thread."""
        # Look before reading: the next poll finds a change in between.
        seen = _identity(self.path)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._apply(load(self.path))
        except SettingsError as error:
            if isinstance(error.__cause__, OSError):
                self._seen = None  # it may be readable in a moment, and look the same
            self._refuse(error)

    def watch(self, stop: threading.Event, period: float = 2.0) -> None:
        """Poll every *period* seconds until *stop* is set."""
        while not stop.wait(period):
            try:
                self.poll()
            except Exception:  # of a callback
                log.exception("configuration reload failed")

    def _apply(self, new: Settings) -> None:
        old, self.current = self.current, new
        RELOADS.labels("applied").inc()
        _report(new)
        if fields := changed_fields(old, new):
            log.info("configuration changed", fields=fields)
            if waiting := needing_restart(fields, new):
                log.warning("configuration change needs a restart", fields=waiting)
            self._on_change(new)

    def _refuse(self, error: SettingsError) -> None:
        RELOADS.labels("refused").inc()
        SUCCESSFUL.set(0)
        log.error("configuration refused, last good one stays", path=str(self.path), problems=error.problems)
        self._on_refused(error)


def _identity(path: Path) -> tuple[str, int, int, int] | None:
    """Differs after any change of a file, also when the kubelet moved the link of a mounted volume."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return os.path.realpath(path), stat.st_ino, stat.st_size, stat.st_mtime_ns


def _report(settings: Settings) -> None:
    SUCCESSFUL.set(1)
    HASH.set(fingerprint(settings))


def changed_fields(old: Settings, new: Settings) -> list[str]:
    """Their names as written in the file."""
    before, after = (dict(_leaves("", each.model_dump(by_alias=True))) for each in (old, new))
    return [name for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name)]


def needing_restart(fields: list[str], new: Settings) -> list[str]:
    """Of the changed *fields*; the server of the allow-list starts with the process, or not at all."""
    starts_to_serve = ("anycastIP.allowList.enabled",) if new.anycast_ip.allow_list.is_served else ()
    return [field for field in fields if field.startswith((*NEEDS_RESTART, *starts_to_serve))]


def fingerprint(settings: Settings) -> int:
    """The same for the same settings; small enough to be exact as a float."""
    digest = hashlib.sha256(settings.model_dump_json().encode()).digest()
    return int.from_bytes(digest[:6], "big")


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict) or not value:
        yield path, value
        return
    for name, part in value.items():
        yield from _leaves(f"{path}.{name}" if path else name, part)
