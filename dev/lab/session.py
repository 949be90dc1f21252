"""A lab to work with: its cluster, kubectl and helm."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from dev.lab import binaries, cluster, workdir
from dev.lab.cloud import fixture
from dev.lab.cloud.remote import Remote
from dev.lab.errors import LabError
from dev.lab.kubeconfig import client_of
from dev.lab.slots import Slot
from dev.lab.waiting import until
from kube.client import Client

T = TypeVar("T")
CALL_SECONDS = 60.0
"""A busy machine is slow, and no reason for a test to fail."""


@dataclass(frozen=True)
class Lab:
    """A lab that is up."""

    name: str

    @property
    def directory(self) -> Path:
        return workdir.directory(self.name)

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "kubeconfig"

    @property
    def environment(self) -> dict[str, str]:
        """By which kubectl and Helm find the cluster, and remember which kinds it serves.

        Else they would take those of a lab that was at the same port before.
        """
        return {"KUBECONFIG": str(self.kubeconfig), "KUBECACHEDIR": str(self.directory / "kube-cache")}

    @property
    def logs(self) -> Path:
        return self.directory / "logs"

    @property
    def slot(self) -> Slot:
        """Its share of this machine's loopback; LabError when the lab is gone."""
        state = workdir.read_state(self.name)
        if state is None:
            raise LabError(f"there is no lab '{self.name}'")
        return Slot(state.slot)

    @cached_property
    def client(self) -> Client:
        """The cluster's administrator."""
        return client_of(self.kubeconfig, timeout=CALL_SECONDS)

    @cached_property
    def cloud(self) -> Remote:
        """The emulated cloud that came up with it; LabError when none did."""
        found = fixture.find(self.logs)
        if found is None:
            raise LabError(f"lab '{self.name}' has no cloud: bring it up with running(cloud={{}})")
        return found

    def close(self) -> None:
        """Give up the connections of its client, if it was used."""
        if "client" in self.__dict__:
            self.client.close()

    def kubectl(
        self, *arguments: str, check: bool = True, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        return self._run("kubectl", arguments, check, stdin)

    def helm(
        self, *arguments: str, check: bool = True, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        return self._run("helm", arguments, check, stdin)

    def kwokctl(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """For what kwokctl knows of the cluster, such as ``kwokctl("get", "components")``."""
        return self._run("kwokctl", ("--name", "lab", *arguments), check, None)

    def wait(self, condition: Callable[[], T | None], seconds: float, what: str) -> T:
        """The first truthy answer of *condition*; LabError names *what* when *seconds* are over."""
        return until(condition, seconds, what)

    def _run(
        self, program: str, arguments: tuple[str, ...], check: bool, stdin: str | None
    ) -> subprocess.CompletedProcess[str]:
        command = [str(binaries.ensure(program)[program]), *arguments]
        environment = {**cluster.kwokctl_environment(self.directory), **self.environment}
        done = subprocess.run(
            command, env=environment, input=stdin, text=True, capture_output=True, check=False
        )
        if check and done.returncode != 0:
            said = done.stderr.strip() or done.stdout.strip()
            raise LabError(f"`{program} {' '.join(arguments)}` failed (exit {done.returncode}): {said}")
        return done
