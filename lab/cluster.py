"""A control plane of its own for each lab, started by kwokctl and listening on loopback only."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from kube.client import Client, Resource
from kube.errors import KubeError
from lab import processes
from lab.errors import LabError
from lab.slots import Slot, free_ports
from lab.waiting import until

LOOPBACK = "127.0.0.1"
COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
BINARIES = (*COMPONENTS, "kwok", "kwokctl", "kubectl", "helm")
LOGS = ("kwokctl", *COMPONENTS, "kwok-controller")
# Wide enough for any storm: beyond its range kwok would hand out addresses that it does not take back.
KWOK_POD_RANGE = "10.64.0.0/12"
# Published as the address of the Service default/kubernetes, which must not be a loopback address, and where
# the API server would otherwise want a default route. Nobody calls it (RFC 5737: for documentation).
ADVERTISED = "198.51.100.1"
START_SECONDS = 60


@dataclass(frozen=True)
class Ports:
    etcd: int
    etcd_peer: int
    api_server: int
    controller_manager: int
    scheduler: int
    kwok: int


def create(directory: Path, slot: Slot, binaries: Mapping[str, Path], check: Callable[[], None]) -> Path:
    """Start the control plane in *directory* and give the path of its administrator's kubeconfig."""
    ports = Ports(*free_ports(slot.ports, len(Ports.__annotations__)))
    configuration = directory / "kwokctl.yaml"
    configuration.write_text(json.dumps(kwokctl_configuration(binaries, slot, ports), indent=1))
    kubeconfig = directory / "kubeconfig"
    _gather_logs(directory)
    _kwokctl_create(directory, binaries, configuration, kubeconfig, check)
    _verify(directory, ports, check)
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


def kwokctl_environment(directory: Path) -> dict[str, str]:
    return {**processes.marked_environment(directory), "KWOK_WORKDIR": str(directory / "kwok")}


def kwokctl_configuration(binaries: Mapping[str, Path], slot: Slot, ports: Ports) -> dict[str, Any]:
    """What ``kwokctl create cluster --config`` reads.

    A file, because its ``--extra-args`` mixes up the components when it is given more than once for several.
    """
    return {
        "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
        "kind": "KwokctlConfiguration",
        "options": {
            "runtime": "binary",
            "bindAddress": LOOPBACK,
            "kubeAuthorization": True,
            "kubeApiserverCertSANs": [slot.kubernetes_address],
            **_binary_options(binaries),
            **_port_options(ports),
        },
        "componentsPatches": [
            {"name": name, "extraArgs": [_argument(*each) for each in arguments]}
            for name, arguments in _extra_arguments(slot).items()
        ],
    }


def component_log(directory: Path, component: str, lines: int = 15) -> str:
    """The end of what *component* wrote, for an error message."""
    path = directory / "logs" / f"{component}.log"
    if not path.exists():
        return f"({component} wrote no log)"
    tail = path.read_text(errors="replace").splitlines()[-lines:]
    return "\n".join([f"--- the end of {path.name}:", *tail])


def _binary_options(binaries: Mapping[str, Path]) -> dict[str, str]:
    return {
        "etcdBinary": str(binaries["etcd"]),
        "kubeApiserverBinary": str(binaries["kube-apiserver"]),
        "kubeControllerManagerBinary": str(binaries["kube-controller-manager"]),
        "kubeSchedulerBinary": str(binaries["kube-scheduler"]),
        "kwokControllerBinary": str(binaries["kwok"]),
        "kubectlBinary": str(binaries["kubectl"]),
    }


def _port_options(ports: Ports) -> dict[str, int]:
    return {
        "etcdPort": ports.etcd,
        "etcdPeerPort": ports.etcd_peer,
        "kubeApiserverPort": ports.api_server,
        "kubeControllerManagerPort": ports.controller_manager,
        "kubeSchedulerPort": ports.scheduler,
        "kwokControllerPort": ports.kwok,
    }


def _extra_arguments(slot: Slot) -> dict[str, list[tuple[str, str, bool]]]:
    """Arguments of the components as (key, value, whether it replaces kwokctl's own)."""
    unthrottled = [("kube-api-qps", "1000", False), ("kube-api-burst", "2000", False)]
    return {
        "kube-apiserver": [
            ("service-cluster-ip-range", slot.service_range, False),
            ("advertise-address", ADVERTISED, False),
        ],
        "kube-controller-manager": unthrottled,
        "kube-scheduler": unthrottled,
        "kwok-controller": [
            ("manage-all-nodes", "false", True),
            ("manage-nodes-with-annotation-selector", "kwok.x-k8s.io/node=fake", False),
            ("cidr", KWOK_POD_RANGE, False),
        ],
    }


def _argument(key: str, value: str, replaces: bool) -> dict[str, Any]:
    return {"key": key, "value": value, "override": replaces}


def _gather_logs(directory: Path) -> None:
    """Let the components write beside the lab's other logs."""
    cluster = directory / "kwok" / "clusters" / "lab"
    cluster.mkdir(parents=True, exist_ok=True)
    (cluster / "logs").symlink_to(directory / "logs")


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
        raise LabError(
            _explain(directory, f"kwokctl could not bring the cluster up (exit {process.returncode})")
        )


def _verify(directory: Path, ports: Ports, check: Callable[[], None]) -> None:
    """Each port is our own process's: a stranger's etcd would be taken into use without a word."""
    expected = {(LOOPBACK, port) for port in astuple(ports)}
    missing = expected

    def all_ours() -> bool:
        nonlocal missing
        missing = expected - processes.listeners(processes.marked(directory))
        return not missing

    try:
        until(all_ours, 10, "all components to listen", check=check)
    except LabError as error:
        listed = ", ".join(str(port) for _, port in sorted(missing))
        raise LabError(_explain(directory, f"no component of this lab listens on port {listed}")) from error


def _explain(directory: Path, what: str) -> str:
    return "\n".join([what, *(component_log(directory, each, 5) for each in LOGS)])
