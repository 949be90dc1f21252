"""Other work on the machine, always as much: a loop for every second core."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from dev.lab.processes import die_with_parent

LOOP = "while True: pass"


@contextmanager
def side_load(*, busy: bool) -> Iterator[None]:
    """Keep half of the cores busy for the length of the block, when it is to be so."""
    count = max(1, (os.cpu_count() or 1) // 2) if busy else 0
    loops = [
        subprocess.Popen([sys.executable, "-I", "-S", "-c", LOOP], preexec_fn=die_with_parent)
        for _ in range(count)
    ]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
