"""The caller's side of a lab's daemon: closing its pipes ends the lab, unless the lab is kept."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from dev.lab import processes, workdir
from dev.lab.cloud import fixture
from dev.lab.errors import LabError
from dev.lab.repository import ROOT
from dev.lab.waiting import stretch

KEEP = b"keep\n"
START_SECONDS = 300.0
END_SECONDS = 30.0


@dataclass(frozen=True)
class Owner:
    """A daemon that was started, and our ends of the two pipes to it."""

    process: subprocess.Popen[bytes]
    speak: int
    listen: int

    def await_ready(self, progress: Callable[[str], None]) -> None:
        """Report progress until the lab is ready; LabError with the daemon's message when it fails."""
        for message in _messages(self.listen, time.monotonic() + START_SECONDS * stretch()):
            if "ready" in message:
                return
            if "failed" in message:
                raise LabError(message["failed"])
            progress(message["progress"])
        raise LabError("the lab's daemon ended without a message")

    def keep(self) -> None:
        """Keep the lab running after this process."""
        os.write(self.speak, KEEP)

    def close(self, *, wait: bool) -> None:
        """Close the pipes, which ends a lab that is not to be kept, and *wait* for that end."""
        os.close(self.speak)
        os.close(self.listen)
        if wait:
            self.process.wait(timeout=END_SECONDS * stretch())


def start(
    name: str, *, nodes: int, kwok_nodes: int, cloud: Mapping[str, Any] | None = None, policy: bool = False
) -> Owner:
    """Start the daemon of a new lab, with a *cloud* of these knobs; LabError when that name is in use."""
    knobs = None if cloud is None else fixture.knobs(cloud)
    lock = workdir.acquire(name)
    if lock is None:
        raise LabError(
            f"lab '{name}' is in use; choose another name, or: python -m dev.lab down --name {name}"
        )
    stdin, speak = os.pipe()
    listen, stdout = os.pipe()
    command = [sys.executable, "-m", "dev.lab.daemon", "--name", name]
    command += ["--nodes", str(nodes), "--kwok-nodes", str(kwok_nodes)]
    logs = workdir.directory(name) / "logs"
    if knobs:
        command += ["--knobs", str(logs.with_name("knobs.json"))]
    if policy:
        command += ["--policy"]
    try:
        logs.mkdir(parents=True, exist_ok=True)
        if knobs:
            logs.with_name("knobs.json").write_bytes(msgspec.json.encode(knobs))
        with (logs / "daemon.log").open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=processes.marked_environment(workdir.directory(name)),
                stdin=stdin,
                stdout=stdout,
                stderr=log,
                pass_fds=[lock],  # the lock is the daemon's from the first moment on
                start_new_session=True,  # Ctrl-C is for the caller alone
            )
    finally:
        for descriptor in (lock, stdin, stdout):
            os.close(descriptor)
    return Owner(process, speak, listen)


def _messages(descriptor: int, end: float) -> Iterator[dict[str, Any]]:
    rest = b""
    while select.select([descriptor], [], [], max(0, end - time.monotonic()))[0]:
        chunk = os.read(descriptor, 65536)
        if not chunk:
            return
        *lines, rest = (rest + chunk).split(b"\n")
        yield from map(json.loads, lines)
    raise LabError(f"the lab was not ready after {START_SECONDS:g} s")
