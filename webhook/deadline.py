"""The end of the caller's timeout, by ``time.monotonic``: after it, a request is answered by the fail mode."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from runtime import time

T = TypeVar("T")


class DeadlineExceeded(Exception):
    """The caller waits no longer."""


def in_time(items: Iterable[T], deadline: float) -> Iterator[T]:
    """*items*; raises DeadlineExceeded after *deadline*."""
    for each in items:
        check_time(deadline)
        yield each


def check_time(deadline: float) -> None:
    """Raises DeadlineExceeded after *deadline*."""
    if time.monotonic() > deadline:
        raise DeadlineExceeded
