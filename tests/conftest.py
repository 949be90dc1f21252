"""What all tests share: logs and machines under load that cost no test its time or its outcome."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator

import pytest
import structlog
from hypothesis import settings

pytest_plugins = ["tests.groups"]


def pytest_configure() -> None:
    # Of a logger that keeps what it found in one test, none of the later tests can capture a line.
    configure = structlog.configure
    structlog.configure = lambda **options: configure(**options | {"cache_logger_on_first_use": False})
    # By default structlog draws each traceback with rich, boxes and all variables: up to a second of work.
    plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[structlog.processors.add_log_level, plain])
    # Tests that run beside each other make an example slow now and then; that says nothing about the code.
    settings.register_profile("beside others", deadline=None, max_examples=50, derandomize=is_repeatable())
    settings.load_profile("beside others")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and items stay: to search them for garbage again and again takes up to a fifth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def is_repeatable() -> bool:
    """Whether the run shall have the outcome of the one before: a failure by chance would hold up any change."""
    return os.environ.get("PYTHONHASHSEED") == "0"
