"""A lab's processes carry its mark in their environment, so that none can be lost, by any starter."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from dev.lab.waiting import until

MARK = "DRAWBRIDGE_LAB"
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
LISTEN = "0A"  # the kernel's number for the TCP state, as /proc/net/tcp shows it
_libc = ctypes.CDLL(None, use_errno=True)


def marked_environment(directory: Path) -> dict[str, str]:
    return {**os.environ, MARK: str(directory)}


def running() -> list[int]:
    """Every process of this machine, also those of others."""
    return [int(entry) for entry in os.listdir("/proc") if entry.isdecimal()]


def words(pid: int, what: str) -> list[str]:
    """Of its ``cmdline`` or its ``environ``; none of a process that is gone meanwhile, or another user's."""
    try:
        text = Path(f"/proc/{pid}/{what}").read_text(errors="surrogateescape")
    except OSError:
        return []
    return [each for each in text.split("\0") if each]


def name_of(pid: int) -> str:
    """Of its program, or of the Python module that it runs, as in "dev.lab.policy"."""
    command = words(pid, "cmdline")
    if command[1:2] == ["-m"]:
        return command[2]
    return Path(command[0]).name if command else ""


def variable(pid: int, name: str) -> str:
    """What it has in its environment."""
    variables = words(pid, "environ")
    return next((each.partition("=")[2] for each in variables if each.startswith(f"{name}=")), "")


def with_variable(name: str, value: str) -> list[int]:
    """Those that have it so in their environment."""
    return [pid for pid in running() if variable(pid, name) == value]


def marked(directory: Path) -> list[int]:
    """Every living process but this one that carries the mark of *directory*."""
    return [pid for pid in running() if pid != os.getpid() and has_mark(pid, directory)]


def has_mark(pid: int, directory: Path) -> bool:
    return variable(pid, MARK) == str(directory)


def kill_marked(directory: Path) -> None:
    """Kill all marked processes, and those that they start meanwhile, until none is left."""

    def none_left() -> bool:
        alive = marked(directory)
        for pid in alive:
            send(pid, signal.SIGKILL)
        return not alive

    until(none_left, what=f"the processes of {directory} to end")


def send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def reap() -> dict[int, int]:
    """The children that have ended, adopted ones too, with their exit codes (negative: the signal)."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = os.waitstatus_to_exitcode(status)


def has_ended(pid: int) -> bool:
    """Whether a child, an adopted one too, has ended; it is gone with the answer, so once."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return False


def adopt_orphans() -> None:
    """From now on, descendants whose parent ends become children of this process."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """For ``preexec_fn``: the child is killed when the thread that started it ends."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def listeners(pids: Iterable[int]) -> set[tuple[str, int]]:
    """The addresses and ports on which these processes accept TCP connections."""
    inodes = {inode for pid in pids for inode in _socket_inodes(pid)}
    return {address for inode, address in _listening_sockets().items() if inode in inodes}


def _socket_inodes(pid: int) -> list[str]:
    links: list[str] = []
    # The process, or one of its files, may be gone meanwhile.
    with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
        links.extend(os.readlink(entry) for entry in entries)
    return [link[len("socket:[") : -1] for link in links if link.startswith("socket:[")]


def _listening_sockets() -> dict[str, tuple[str, int]]:
    rows = [line.split() for table in ("tcp", "tcp6") for line in _table(table)]
    return {row[9]: _address(row[1]) for row in rows if row[3] == LISTEN}


def _table(name: str) -> list[str]:
    path = Path(f"/proc/net/{name}")
    return path.read_text().splitlines()[1:] if path.exists() else []


def _address(text: str) -> tuple[str, int]:
    """``0100007F:1F90`` as ("127.0.0.1", 8080); the kernel prints each 32-bit word in its own byte order."""
    packed, port = text.split(":")
    numbers = [int(packed[at : at + 8], 16) for at in range(0, len(packed), 8)]
    words = [number.to_bytes(4, sys.byteorder) for number in numbers]
    host = ".".join(map(str, words[0])) if len(words) == 1 else b"".join(words).hex(":", 2)
    return host, int(port, 16)
