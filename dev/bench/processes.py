"""What the processes of a lab have used up to now, as the kernel counts it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dev.lab import processes
from dev.lab.faults import processes_of
from dev.lab.session import Lab
from kube.client import Client
from kube.resources import PODS

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
MIB = 1024 * 1024


@dataclass(frozen=True)
class Usage:
    """CPU *seconds* since the start, resident memory in *bytes*, and the most that it ever was."""

    seconds: float
    bytes: int
    peak: int = 0


def of_pods(client: Client, namespace: str) -> dict[str, Usage]:
    """By name, each pod of *namespace* that runs as processes of this machine."""
    uids = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in client.list(PODS, namespace).items}
    pids: dict[str, list[int]] = {name: [] for name in uids.values()}
    for pid in processes.running():
        if name := uids.get(processes.variable(pid, "POD_UID")):
            pids[name].append(pid)
    return {name: of(found) for name, found in pids.items()}


def below(root: int) -> list[int]:
    """*root* and all its descendants, orphans that it has adopted included."""
    children: dict[int, list[int]] = {}
    for pid in processes.running():
        children.setdefault(_parent(pid), []).append(pid)
    found = [root]
    for pid in found:  # grows meanwhile
        found += children.get(pid, ())
    return found


def seconds_of_tree(root: int) -> float:
    """CPU of *root* and of all its descendants, those that have ended and were waited for included."""
    return sum(_seconds(pid) for pid in below(root))


def started_at(pid: int) -> float:
    """Seconds since this machine has booted, as CLOCK_BOOTTIME has them."""
    return int(_stat(pid)[19]) / TICKS


def of_component(lab: Lab, name: str) -> Usage:
    """One of the control plane's programs, by its name."""
    return of(processes_of(lab, name))


def private(pid: int) -> float:
    """Bytes that no process of another program shares; those that its own family shares are divided among them."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    found = dict(re.findall(r"^(\w+):\s*(\d+) kB$", rollup, re.MULTILINE))
    return 1024.0 * (int(found["Pss_Anon"]) + int(found["Private_Clean"]))


def of(pids: Iterable[int]) -> Usage:
    """All of them together; one that is gone counts nothing."""
    each = [_usage(pid) for pid in pids]
    return Usage(
        sum(one.seconds for one in each), sum(one.bytes for one in each), sum(one.peak for one in each)
    )


def _stat(pid: int) -> list[str]:
    """From the third field on: the second one may have blanks in it."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _usage(pid: int) -> Usage:
    try:
        fields = _stat(pid)
        peak = re.search(r"^VmHWM:\s*(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except OSError:
        return Usage(0.0, 0)
    seconds = (int(fields[11]) + int(fields[12])) / TICKS
    return Usage(seconds, int(fields[21]) * PAGE, int(peak[1]) * 1024 if peak else 0)


def _seconds(pid: int) -> float:
    """CPU of the process, and of its children that have ended."""
    try:
        return sum(int(each) / TICKS for each in _stat(pid)[11:15])
    except OSError:
        return 0.0


def _parent(pid: int) -> int:
    try:
        return int(_stat(pid)[1])
    except OSError:
        return 0
