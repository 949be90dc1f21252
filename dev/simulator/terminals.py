"""The command as people call it, each at an own terminal: two may be at work at a time."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TextIO

import click

from dev.simulator.core.kernel import Kernel

SHOWN = "what the terminal of a task shows"


class Terminals(io.TextIOBase):
    """In place of standard output: what the task of a command writes goes to its own terminal, all else to *beyond*."""

    def __init__(self, kernel: Kernel, beyond: TextIO) -> None:
        self._kernel, self._beyond = kernel, beyond

    def write(self, text: str) -> int:
        task = self._kernel.task
        shown: TextIO = task.locals.get(SHOWN, self._beyond) if task else self._beyond
        return shown.write(text)

    def flush(self) -> None:
        self._beyond.flush()


def called(kernel: Kernel, command: click.Command, arguments: Sequence[str], obj: object) -> tuple[int, str]:
    """The exit code and the output of *command*, in the task that calls it."""
    task = kernel.task
    assert task is not None
    task.locals[SHOWN] = shown = io.StringIO()
    try:
        command.main([*arguments], obj=obj)
    except SystemExit as ended:
        return int(ended.code or 0), shown.getvalue()
    finally:
        del task.locals[SHOWN]
    raise AssertionError("a command ends by SystemExit")
