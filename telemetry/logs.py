"""Every log line is one JSON object, whichever library wrote it."""

import logging
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any, TextIO

import structlog
from structlog.typing import Processor

from runtime import threading, time

_COMMON: tuple[Processor, ...] = (
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)


def configure(level: str, stream: TextIO | None = None) -> None:
    """Log to *stream* (default: standard error) from *level* (debug, info, warning, error) on.

    May be called again, for example after a fork. Python's warnings are logged, too.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*_COMMON, structlog.stdlib.ExtraAdder()],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.StackInfoRenderer(),
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    logging.getLogger().handlers = [handler]
    logging.captureWarnings(True)
    set_level(level)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_COMMON,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


def set_level(level: str) -> None:
    """Log from *level* on, from now on."""
    logging.getLogger().setLevel(level.upper())


INTERVAL = 1.0
"""Seconds between two messages of one event."""


class SparingLogger:
    """Passes on the first warning of each event in an interval, with how many were *omitted* since the last one."""

    def __init__(self, log: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._clock = log, clock
        self._next: dict[str, float] = {}
        self._omitted = Counter[str]()
        self._lock = threading.Lock()

    def warning(self, event: str, **details: object) -> None:
        with self._lock:
            now = self._clock()
            if now < self._next.get(event, now):
                self._omitted[event] += 1
                return
            self._next[event] = now + INTERVAL
            omitted = self._omitted.pop(event, 0)
        self._log.warning(event, omitted=omitted, **details)
