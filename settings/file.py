"""Keep the settings as the file has them, and the last good ones while the file cannot be used."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import structlog
from prometheus_client import Counter, Gauge

from settings.changes import changed_fields, fingerprint, needing_restart
from settings.load import SettingsError, load
from settings.models import Settings

log = structlog.stdlib.get_logger(__name__)

RELOADS = Counter(
    "drawbridge_config_reloads_total", "Changes of the configuration file that were read.", ["result"]
)
SUCCESSFUL = Gauge(
    "drawbridge_config_last_reload_successful",
    "1 when the file as it stands is in force, 0 when it was refused.",
)
HASH = Gauge(
    "drawbridge_config_hash", "A hash of the settings in force: processes with the same settings agree."
)


class SettingsFile:
    """The settings of one file: `current` always is a valid configuration, the newest one that there was.

    *on_change* is called with the old and the new settings when they differ, *on_refused* with what is
    wrong, both from within `poll`. SettingsError when the file cannot be used at the start.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        on_change: Callable[[Settings, Settings], None] | None = None,
        on_refused: Callable[[SettingsError], None] | None = None,
    ) -> None:
        self.path = Path(path)
        self._on_change = on_change
        self._on_refused = on_refused
        self._seen = _identity(self.path)
        self._current = load(self.path)
        _report(self._current)

    @property
    def current(self) -> Settings:
        return self._current

    def poll(self) -> None:
        """Read the file again if it changed since the last look; not for two threads at once."""
        # The look comes before the read: a change in between is found by the next poll.
        seen = _identity(self.path)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._apply(load(self.path))
        except SettingsError as error:
            self._refuse(error)

    def watch(self, stop: threading.Event, period: float = 2.0) -> None:
        """Poll every *period* seconds until *stop* is set; for a thread of its own."""
        while not stop.wait(period):
            try:
                self.poll()
            except Exception:
                # What a callback does wrong must not end the watching.
                log.exception("following the configuration failed")

    def _apply(self, new: Settings) -> None:
        old, self._current = self._current, new
        RELOADS.labels("applied").inc()
        _report(new)
        if fields := changed_fields(old, new):
            _log_changes(fields)
            if self._on_change:
                self._on_change(old, new)

    def _refuse(self, error: SettingsError) -> None:
        RELOADS.labels("refused").inc()
        SUCCESSFUL.set(0)
        log.error(
            "configuration refused, the last good one stays", path=str(self.path), problems=error.problems
        )
        if self._on_refused:
            self._on_refused(error)


def _identity(path: Path) -> tuple[str, int, int, int] | None:
    """What differs after any change of a file, also when the kubelet moved the link of a mounted volume."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return os.path.realpath(path), stat.st_ino, stat.st_size, stat.st_mtime_ns


def _report(settings: Settings) -> None:
    SUCCESSFUL.set(1)
    HASH.set(fingerprint(settings))


def _log_changes(fields: list[str]) -> None:
    log.info("configuration changed", fields=fields)
    if waiting := needing_restart(fields):
        log.warning("these changes take effect at the next start", fields=waiting)
