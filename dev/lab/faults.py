"""Parts of a lab's control plane stand still, or are gone, for a while, and then go on as they were."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from dev.lab import processes
from dev.lab.errors import LabError
from dev.lab.kubeconfig import client_of
from dev.lab.session import Lab
from dev.lab.slots import free_ports
from dev.lab.waiting import until
from kube.client import Client
from kube.errors import KubeError

START = '"$@" >>"$0" 2>&1 </dev/null &'
"""For sh: a process without a parent, with its log as $0."""
SERVER = re.compile(r"(server: https://[^:]+:)\d+")


@contextmanager
def frozen(lab: Lab, component: str) -> Iterator[None]:
    """While the block runs, the process of *component* ("etcd", "kube-apiserver", ...) is stopped."""
    pid = process_of(lab, component)
    processes.send(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        processes.send(pid, signal.SIGCONT)


@contextmanager
def killed(lab: Lab, component: str) -> Iterator[None]:
    """*component* is killed, and started after the block by the command that started it before."""
    pid = process_of(lab, component)
    command, environment = (processes.words(pid, what) for what in ("cmdline", "environ"))
    directory = os.readlink(f"/proc/{pid}/cwd")
    processes.send(pid, signal.SIGKILL)
    until(lambda: _has_ended(pid), 10, f"{component} to be gone")
    try:
        yield
    finally:
        subprocess.run(
            ["sh", "-c", START, str(lab.logs / f"{component}.log"), *command],
            env=dict(each.split("=", 1) for each in environment),
            cwd=directory,
            start_new_session=True,
            check=True,
        )


@contextmanager
def second_api_server(lab: Lab) -> Iterator[Client]:
    """Another API server on the same etcd: its watches go on while the first one is away."""
    command = processes.words(process_of(lab, "kube-apiserver"), "cmdline")
    [port] = free_ports(lab.slot.ports, 1)
    command = [f"--secure-port={port}" if each.startswith("--secure-port=") else each for each in command]
    kubeconfig = lab.directory / "second-kubeconfig"
    kubeconfig.write_text(SERVER.sub(rf"\g<1>{port}", lab.kubeconfig.read_text()))
    with (lab.logs / "second-kube-apiserver.log").open("wb") as log:
        # Without the lab's mark, so that the first one is still the one that is found.
        process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=processes.die_with_parent)
    client = client_of(kubeconfig)
    try:
        until(partial(is_ready, client), 60, "a second API server to be ready")
        yield client
    finally:
        client.close()
        process.kill()
        process.wait()


def is_ready(api_server: Client) -> bool:
    try:
        return api_server.request("GET", "/readyz", type=bytes) == b"ok"
    except KubeError:
        return False


def process_of(lab: Lab, component: str) -> int:
    found = processes_of(lab, component)
    if len(found) != 1:
        raise LabError(f"lab '{lab.name}' has {len(found)} processes of {component}, not one")
    return found[0]


def processes_of(lab: Lab, component: str) -> list[int]:
    return [pid for pid in processes.marked(lab.directory) if processes.name_of(pid) == component]


def _has_ended(pid: int) -> bool:
    """Whether nothing of it is left but its exit code: before, it may still hold its port."""
    try:
        return "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return True
