"""A whole cluster ends and starts again: its control plane, and the machines of the nodes that run Drawbridge."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from dev.lab import faults, processes
from dev.lab.cluster import COMPONENTS
from dev.lab.owner import ROOT
from dev.lab.session import Lab
from kube.resources import LEASES

PROGRAM = "dev.lab.kubelet"
KWOK = "kwok-controller"
PARTS = {*COMPONENTS, KWOK}
SECONDS = 90


class Machines:
    """All nodes of the lab's own at once: their kubelet, with everything that it runs."""

    def __init__(self, lab: Lab) -> None:
        self._lab, self._again = lab, list[subprocess.Popen[bytes]]()
        self._command = processes.words(faults.process_of(lab, PROGRAM), "cmdline")

    def stop(self) -> None:
        for pid in faults.processes_of(self._lab, PROGRAM):
            processes.send(pid, signal.SIGKILL)
        for each in self._again:
            each.wait()
        self._lab.wait(lambda: not faults.processes_of(self._lab, PROGRAM), SECONDS, "the nodes to be off")

    def start(self) -> None:
        with (self._lab.logs / "kubelet.log").open("ab") as log:
            self._again.append(
                subprocess.Popen(
                    self._command,
                    cwd=ROOT,
                    env=processes.marked_environment(self._lab.directory),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    preexec_fn=processes.die_with_parent,
                )
            )


@contextmanager
def machines(lab: Lab) -> Iterator[Machines]:
    """They are as the lab has them; those that were started again end with the block."""
    found = Machines(lab)
    try:
        yield found
    finally:
        found.stop()


def restart(lab: Lab) -> None:
    """The control plane ends, and starts: what gave up because the others were slow is started again."""
    _end_leases(lab)
    lab.kwokctl("stop", "cluster")
    lab.wait(lambda: not _components(lab), SECONDS, "the control plane to be off")

    def up() -> bool:
        lab.kwokctl("start", "cluster")
        return faults.is_ready(lab.client) and _components(lab) == PARTS

    lab.wait(up, SECONDS, "the control plane to be up")


def _end_leases(lab: Lab) -> None:
    """As when all was off for long: kwok would wait for the leases that it held itself."""
    processes.send(faults.process_of(lab, KWOK), signal.SIGKILL)
    lab.wait(lambda: KWOK not in _components(lab), SECONDS, "kwok to be off")
    lab.client.request("DELETE", LEASES.path("kube-node-lease"), type=bytes)


def _components(lab: Lab) -> set[str]:
    return {processes.name_of(pid) for pid in processes.marked(lab.directory)} & PARTS
