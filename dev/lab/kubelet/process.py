"""One container's process, from its start in separate namespaces to its exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from dev.lab.kubelet.values import CannotRun

LAUNCH = Path(__file__).with_name("launch.py")
TICK = 0.1


@dataclass(frozen=True)
class Mount:
    source: str
    target: str
    readOnly: bool  # noqa: N815 - as launch.py reads it


@dataclass(frozen=True)
class Recipe:
    """All that makes a container."""

    argv: Sequence[str]
    env: Mapping[str, str]
    workingDir: str  # noqa: N815
    hostname: str
    mounts: Sequence[Mount]
    readOnlyRoot: bool  # noqa: N815
    base: str  # an empty directory


class Process:
    """A running container. It is killed when the thread that made it ends."""

    def __init__(self, recipe: Recipe, log: Path) -> None:
        self._ended = threading.Event()
        self.exit_code: int | None = None
        log.parent.mkdir(parents=True, exist_ok=True)
        read, write = os.pipe()
        try:
            with log.open("ab") as output:
                self._shim = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(LAUNCH), str(write), str(os.getpid())],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=output,
                    pass_fds=(write,),
                    start_new_session=True,
                )
        finally:
            os.close(write)
        self._send(asdict(recipe))
        self.pid = self._started(read)

    def _send(self, recipe: Mapping[str, object]) -> None:
        assert self._shim.stdin is not None
        self._shim.stdin.write(json.dumps(recipe).encode())
        self._shim.stdin.close()

    def _started(self, read: int) -> int:
        with os.fdopen(read) as reports:
            lines = dict(line.rstrip("\n").split(" ", 1) for line in reports)
        if "error" in lines or "pid" not in lines:
            self._shim.kill()
            self._shim.wait()
            raise CannotRun(
                "CreateContainerError", lines.get("error", "its launcher died; see the container's log")
            )
        return int(lines["pid"])

    def follow(self, ended: Callable[[], None]) -> None:
        """Wait for the end in a separate thread, then call ``ended``."""

        def wait() -> None:
            self.exit_code = self._shim.wait()
            self._ended.set()
            ended()

        threading.Thread(target=wait, name=f"wait-{self.pid}", daemon=True).start()

    def wait(self, until: Callable[[], float]) -> bool:
        """Whether it ends before the instant of ``time.monotonic()``, which may come nearer meanwhile."""
        while not self._ended.is_set() and (left := until() - time.monotonic()) > 0:
            self._ended.wait(min(TICK, left))
        return self._ended.is_set()

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """The whole of the container, at once: its namespace goes with its first process."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if not self._ended.is_set():
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return
