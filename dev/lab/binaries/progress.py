"""Long work is seen on stderr: a line at its begin and its end, and in between what is left of it."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

EVERY = 10.0


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def step(doing: str) -> Iterator[None]:
    """Show *doing* and its elapsed time; an exception ends the step as failed and goes on."""
    began = time.monotonic()
    outcome = "failed after"
    say(f"{doing} ...")
    try:
        yield
        outcome = "done in"
    finally:
        say(f"{doing}: {outcome} {elapsed(time.monotonic() - began)}")


class Countdown:
    """Print now and then how many of *count* things are done, and how long the others may take."""

    def __init__(self, things: str, count: int) -> None:
        self._things, self._count, self._done = things, count, 0
        self._began = self._printed = time.monotonic()

    def one_more(self) -> None:
        self._done += 1
        now = time.monotonic()
        if now - self._printed >= EVERY:
            self._printed = now
            say(self.line(now - self._began))

    def line(self, seconds: float) -> str:
        left = seconds * max(0, self._count - self._done) / self._done
        return f"  {self._done} of {self._count} {self._things}, about {elapsed(left)} left"


def elapsed(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
