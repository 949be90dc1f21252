"""Calico's own allocator, timed as a CNI plugin calls it: one program for each address."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dev.lab import binaries
from dev.lab.errors import LabError
from dev.lab.session import Lab

POOL = ("172.16.0.0/16", "--block-size", "26")
NODE = "kwok-0"


def ipam(lab: Lab, *words: str) -> Any:
    """The answer to a verb of `calico-ipam`; LabError with its words when it fails."""
    program = binaries.ensure("calico-ipam")["calico-ipam"]
    command = [str(program), *words, "--kubeconfig", str(lab.kubeconfig)]
    done = subprocess.run(command, check=False, capture_output=True)
    if done.returncode:
        raise LabError(f"`calico-ipam {' '.join(words)}` failed: {done.stdout.decode().strip()}")
    return json.loads(done.stdout)


def assigned(lab: Lab) -> float:
    """Seconds until a new pod of a node has an address, start of the program included."""
    begin = time.monotonic()
    ipam(lab, "assign", "1", "--node", NODE)
    return time.monotonic() - begin


@contextmanager
def assigning(lab: Lab, *, on: bool) -> Iterator[list[float]]:
    """While it is *on*, assign one address after the other for the length of the block; the seconds of each."""
    taken: list[float] = []
    ended = threading.Event()

    def assign() -> None:
        while on and not ended.is_set():
            taken.append(assigned(lab))

    thread = threading.Thread(target=assign, name="allocator", daemon=True)
    thread.start()
    try:
        yield taken
    finally:
        ended.set()
        thread.join()
