"""Long work is seen on stderr: a live line on a terminal, a plain line at begin and end elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def step(doing: str) -> Iterator[None]:
    """Show *doing* and its elapsed time; an exception ends the step as failed and goes on."""
    began = time.monotonic()
    outcome = "failed after"
    try:
        with _live(doing) if sys.stderr.isatty() else _plain(doing):
            yield
        outcome = "done in"
    finally:
        say(f"{doing}: {outcome} {elapsed(time.monotonic() - began)}")


def elapsed(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


@contextmanager
def _live(doing: str) -> Iterator[None]:
    columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task(doing, total=None)
        yield


@contextmanager
def _plain(doing: str) -> Iterator[None]:
    say(f"{doing} ...")
    yield
