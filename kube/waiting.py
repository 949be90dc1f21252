"""A thread that begins to wait for a network or for another thread needs its turn to compute no more, and says so.

Programs that hand out no turns pay next to nothing for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from runtime import threading


class _Current(threading.local):
    leave: Callable[[], object] | None = None


_current = _Current()


@contextmanager
def taking(leave: Callable[[], object]) -> Iterator[None]:
    """Within the block, this thread has a turn, which *leave* ends."""
    _current.leave = leave
    try:
        yield
    finally:
        _current.leave = None


def give_up() -> None:
    """Before a wait: others may compute in its place. What comes after it is little, and needs no turn."""
    leave, _current.leave = _current.leave, None
    if leave:
        leave()


def acquired(lock: Any, timeout: float) -> bool:
    """Whether *lock*, of `threading`, could be acquired within so many seconds."""
    if lock.acquire(blocking=False):
        return True
    give_up()
    return bool(lock.acquire(timeout=timeout))
