"""A separate control plane for each lab, started by kwokctl and listening on loopback only."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import astuple
from pathlib import Path

from dev.lab import audit, kwokctl, processes, webhook_client
from dev.lab.errors import LabError
from dev.lab.kwokctl import LOOPBACK, Network, Ports, of_slot
from dev.lab.slots import Slot, free_ports
from dev.lab.waiting import until
from kube.client import Client, Resource
from kube.errors import KubeError

CONTROLLER_MANAGER = "kube-controller-manager"
COMPONENTS = ("etcd", "kube-apiserver", CONTROLLER_MANAGER, "kube-scheduler")
BINARIES = (*COMPONENTS, "kwok", "kwokctl", "kubectl", "helm")
LOGS = ("kwokctl", *COMPONENTS, "kwok-controller")
START_SECONDS = 120


def create(
    directory: Path,
    slot: Slot,
    binaries: Mapping[str, Path],
    check: Callable[[], None],
    network: Network | None = None,
) -> Path:
    """Start the control plane in *directory* and give the path of its administrator's kubeconfig.

    Its ports are those of *slot*, and so are its addresses unless it has a *network*.
    LabError shows the end of every component's log.
    """
    ports = Ports(*free_ports(slot.ports, len(Ports.__annotations__)))
    configuration = directory / "kwokctl.yaml"
    arguments = {**audit.prepare(directory), **webhook_client.prepare(directory)}
    network = network or of_slot(slot)
    settings = kwokctl.configuration(binaries, network, ports, arguments)
    configuration.write_text(json.dumps(settings, indent=1))
    kubeconfig = directory / "kubeconfig"
    _gather_logs(directory)
    try:
        _kwokctl_create(directory, binaries, configuration, kubeconfig, check)
        _verify(directory, network, ports, reviving(directory, binaries, check))
    except LabError as error:
        tails = [component_log(directory, each, 5) for each in LOGS]
        raise LabError("\n".join([str(error), *tails])) from error
    return kubeconfig


def await_serving(client: Client, check: Callable[[], None]) -> None:
    """Wait until pods can be created: the API server is ready, and the first ServiceAccount is made."""

    def serving() -> bool:
        try:
            client.get(Resource("", "v1", "serviceaccounts"), "default", "default")
            return client.request("GET", "/readyz", type=bytes) == b"ok"
        except KubeError:
            return False

    until(serving, START_SECONDS, "the API server to get ready", check=check)


def reviving(directory: Path, binaries: Mapping[str, Path], check: Callable[[], None]) -> Callable[[], None]:
    """*check*, which also starts a controller manager again that has ended.

    That one gives its API server ten seconds, which on a busy machine are not enough, and then gives up for good.
    """
    # Of the whole cluster: what runs is left alone.
    command = [str(binaries["kwokctl"]), "--name", "lab", "start", "cluster"]
    pid = _home(directory) / "pids" / f"{CONTROLLER_MANAGER}.pid"

    def checked() -> None:
        check()
        if processes.has_ended(int(pid.read_text())):
            with (directory / "logs" / "kwokctl.log").open("ab") as log:
                subprocess.run(
                    command, env=kwokctl_environment(directory), stdout=log, stderr=log, check=False
                )

    return checked


def kwokctl_environment(directory: Path) -> dict[str, str]:
    return {**processes.marked_environment(directory), "KWOK_WORKDIR": str(directory / "kwok")}


def component_log(directory: Path, component: str, lines: int = 15) -> str:
    """The end of what *component* wrote, for an error message."""
    path = directory / "logs" / f"{component}.log"
    if not path.exists():
        return f"({component} wrote no log)"
    tail = path.read_text(errors="replace").splitlines()[-lines:]
    return "\n".join([f"--- the end of {path.name}:", *tail])


def _gather_logs(directory: Path) -> None:
    """Let the components write beside the lab's other logs."""
    _home(directory).mkdir(parents=True, exist_ok=True)
    (_home(directory) / "logs").symlink_to(directory / "logs")


def _home(directory: Path) -> Path:
    """Where kwokctl keeps what it knows of the cluster."""
    return directory / "kwok" / "clusters" / "lab"


def _kwokctl_create(
    directory: Path,
    binaries: Mapping[str, Path],
    configuration: Path,
    kubeconfig: Path,
    check: Callable[[], None],
) -> None:
    command = [str(binaries["kwokctl"]), "create", "cluster", "--name", "lab"]
    command += ["--config", str(configuration), "--kubeconfig", str(kubeconfig)]
    with (directory / "logs" / "kwokctl.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            env=kwokctl_environment(directory),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=processes.die_with_parent,
        )
        until(
            lambda: process.poll() is not None, START_SECONDS, "kwokctl to bring the cluster up", check=check
        )
    if process.returncode != 0:
        raise LabError(f"kwokctl could not bring the cluster up (exit {process.returncode})")


def _verify(directory: Path, network: Network, ports: Ports, check: Callable[[], None]) -> None:
    """Each port is our own process's: another program's etcd would be used without an error."""
    expected = {(LOOPBACK, port) for port in astuple(ports) if port != ports.api_server}
    expected.add((network.listening, ports.api_server))
    missing = expected

    def all_ours() -> bool:
        nonlocal missing
        missing = expected - processes.listeners(processes.marked(directory))
        return not missing

    try:
        until(all_ours, START_SECONDS, "all components to listen", check=check)
    except LabError as error:
        listed = ", ".join(str(port) for _, port in sorted(missing))
        raise LabError(f"no component of this lab listens on port {listed}") from error
