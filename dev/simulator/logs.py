"""Of what our programs log, the world sees one thing: tracebacks of mistakes of ours, which are caught and retried."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, MutableMapping
from typing import Any

import structlog

MISTAKES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    RecursionError,
    TypeError,
    ValueError,
)


def watch(report: Callable[[str], None]) -> None:
    def look(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> str:
        logged = event.get("exc_info")
        error = logged if isinstance(logged, BaseException) else sys.exc_info()[1] if logged else None
        if isinstance(error, MISTAKES):
            report(f"{event['event']}: {type(error).__name__}: {error}")
        raise structlog.DropEvent

    structlog.configure(
        processors=[look],
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        cache_logger_on_first_use=False,
    )
