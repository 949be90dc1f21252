"""A controller as the manager runs it, against any API server."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import Any

from controllers.informers import Informers
from controllers.manager import Context, run_all
from settings import Settings


def context_of(client: Any, recorder: Any, check: Callable[[], None] = lambda: None) -> Context:
    """For a reconciler that no manager runs."""
    return Context(client.fenced(check, math.inf), Informers(client), recorder, check, threading.Event())


def lead(
    feature: ModuleType,
    client: Any,
    sections: Callable[[], Mapping[str, Any]],
    recorder: Any,
    stop: threading.Event,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Run *feature* until *stop*; *sections* are those of the settings that are not the default, by name."""
    informers = Informers(client)
    context = Context(client.fenced(check, math.inf), informers, recorder, check, stop)

    def settings() -> Settings:
        return Settings().model_copy(update=dict(sections()))

    def watch(context: Context) -> None:
        while not context.stop.wait(0.05):
            informers.check()

    try:
        run_all({"feature": partial(feature.run, settings=settings), "informers": watch}, context)
    finally:
        informers.stop()
