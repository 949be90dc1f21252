"""A thread that waits for a network or for another thread needs no turn to compute, and says so.

Programs that hand out no turns pay next to nothing for it.
"""

from __future__ import annotations

from typing import Any, Protocol

from runtime import threading


class Turn(Protocol):
    """A turn to compute, of the thread that has it."""

    def leave(self) -> None:
        """Let another one begin."""

    def resume(self) -> None:
        """Wait for one again."""


class _Current(threading.local):
    turn: Turn | None = None


_current = _Current()


class taking:  # noqa: N801 - a verb, as contextlib's
    """Within the block, this thread has *turn*."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    def __enter__(self) -> None:
        _current.turn = self._turn

    def __exit__(self, *_: object) -> None:
        _current.turn = None


class waiting:  # noqa: N801
    """Within the block, this thread waits, and others may compute in its place."""

    _turn: Turn | None

    def __enter__(self) -> None:
        self._turn, _current.turn = _current.turn, None  # a wait within a wait leaves nothing
        if self._turn:
            self._turn.leave()

    def __exit__(self, *_: object) -> None:
        if self._turn:
            self._turn.resume()
            _current.turn = self._turn


def give_up() -> None:
    """What remains for this thread to do needs no turn."""
    turn, _current.turn = _current.turn, None
    if turn:
        turn.leave()


def acquired(lock: Any, timeout: float) -> bool:
    """Whether *lock*, of `threading`, could be acquired within so many seconds."""
    if lock.acquire(blocking=False):
        return True
    with waiting():
        return bool(lock.acquire(timeout=timeout))
