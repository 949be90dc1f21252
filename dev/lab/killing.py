"""The end of a program comes when a test wants it: a signal for the first process of a pod's containers."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from dev.lab.errors import LabError
from dev.lab.processes import running, send
from dev.lab.session import Lab


def kill_pod(lab: Lab, namespace: str, pod: str, signal_number: int) -> None:
    """Send the signal to the main process of each running container of *pod*, on one of the lab's own nodes.

    SIGKILL and SIGSTOP always work, the others only when the program handles them: its pid is 1. Asks no API
    server. LabError when nothing of the pod runs.
    """
    pids = main_processes(lab, namespace, pod)
    if not pids:
        raise LabError(f"no container of pod {namespace}/{pod} runs on a node of lab '{lab.name}'")
    for pid in pids:
        send(pid, signal.Signals(signal_number))


def main_processes(lab: Lab, namespace: str, pod: str) -> list[int]:
    """The pids, as this machine counts them, of the containers of *pod* that run now."""
    logs = f"{lab.directory}/pods/{namespace}_{pod}_"
    return [pid for pid in running() if _output(pid).startswith(logs) and _is_first(pid)]


def _output(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/fd/1")
    except OSError:  # gone meanwhile, or another user's
        return ""


def _is_first(pid: int) -> bool:
    """Whether it is the first process of a pid namespace, as each container's is."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    [numbers] = (line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:"))
    return numbers[-1] == "1"
