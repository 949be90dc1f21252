"""Namespaces around everything that real nodes need: when the first process in them ends, the kernel removes it all.

``python -m dev.lab.node.world COMMAND...`` runs a command there, with the packages of Debian on its PATH. No
address, mount, rule of iptables or process is seen outside; no traffic leaves. Cgroups and files outlive
a world that was killed: the next one removes them, and only one at a time runs on a machine.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dev.lab import processes, workdir
from dev.lab.errors import LabError
from dev.lab.node.packages import over_usr
from dev.lab.node.requirements import NAMESPACES, missing
from dev.lab.repository import ROOT

NAME = "drawbridge-nodes"
"""Of the cgroup above all of ours, and of the directory of a world's files."""
CGROUPS = Path("/sys/fs/cgroup")
INSIDE = "--inside"


def directory() -> Path:
    """Where the world keeps its files; they are gone after it."""
    return workdir.home().parent / NAME


def run(command: Sequence[str]) -> int:
    """Run *command* in a new world; its exit code."""
    if why := missing():
        raise LabError(why)
    packages = over_usr()
    with _only_one():
        remove_leftovers()
        try:
            return _enter([*packages, "--", *command])
        finally:
            remove_leftovers()


def remove_leftovers() -> None:
    """Files and cgroups: what the kernel keeps of a world that has ended."""
    shutil.rmtree(directory(), ignore_errors=True)
    for hierarchy in hierarchies():
        for path, _, _ in os.walk(hierarchy / NAME, topdown=False):
            os.rmdir(path)


def hierarchies() -> list[Path]:
    """The roots of cgroups: one in version 2, one for each controller in version 1."""
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    return [path for path in CGROUPS.iterdir() if path.is_dir()]


@contextmanager
def _only_one() -> Iterator[None]:
    lock = workdir.acquire(NAME)
    if lock is None:
        raise LabError("real nodes run on this machine already; wait for the end of that run")
    try:
        yield
    finally:
        os.close(lock)


def _enter(arguments: Sequence[str]) -> int:
    inside = [sys.executable, "-m", "dev.lab.node.world", INSIDE, *arguments]
    process = subprocess.Popen(
        [*NAMESPACES, "--kill-child=SIGKILL", *inside],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=processes.die_with_parent,
    )
    try:
        return process.wait()
    finally:
        process.kill()
        process.wait()


def _inside(arguments: Sequence[str]) -> int:
    """As the first process of the world: prepare it, run the command, and reap what others leave."""
    split = arguments.index("--")
    mount, command = arguments[:split], arguments[split + 1 :]
    subprocess.run(mount, check=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    directory().mkdir(parents=True)
    child = subprocess.Popen(command)
    while True:
        pid, status = os.wait()
        if pid == child.pid:
            return os.waitstatus_to_exitcode(status)


def main() -> int:
    arguments = sys.argv[1:]
    if arguments[:1] == [INSIDE]:
        return _inside(arguments[1:])
    try:
        return run(arguments)
    except LabError as error:
        print(error, file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main())
