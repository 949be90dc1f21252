"""End a lab in any state, and remove what a killed daemon left behind."""

from __future__ import annotations

import os
import signal
import time

from dev.lab import processes, workdir
from dev.lab.errors import LabError
from dev.lab.owner import END_SECONDS


def sweep() -> list[str]:
    """Remove what labs have left whose daemon was killed; their names."""
    return [name for name in workdir.names() if _take(name)]


def down(name: str) -> bool:
    """End the lab *name*; whether there was one. LabError when it does not end, not even killed."""
    existed = workdir.directory(name).exists()
    start = time.monotonic()
    asked: set[signal.Signals] = set()
    while not _take(name):
        waited = time.monotonic() - start
        if waited > 2 * END_SECONDS:
            raise LabError(
                f"lab '{name}' does not end; its log: {workdir.directory(name) / 'logs' / 'daemon.log'}"
            )
        number = signal.SIGTERM if waited < END_SECONDS else signal.SIGKILL
        if number not in asked and _send_to_owner(name, number):
            asked.add(number)
        time.sleep(0.05)
    return existed


def _take(name: str) -> bool:
    """Whether *name* had no owner and is now removed."""
    lock = workdir.acquire(name)
    if lock is None:
        return False
    try:
        processes.kill_marked(workdir.directory(name))
        workdir.forget(name)
    finally:
        os.close(lock)
    return True


def _send_to_owner(name: str, number: signal.Signals) -> bool:
    state = workdir.read_state(name)
    if state is None or not processes.has_mark(state.pid, workdir.directory(name)):
        return False
    processes.send(state.pid, number)
    return True
