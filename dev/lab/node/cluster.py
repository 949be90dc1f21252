"""A cluster of real nodes: the lab's control plane, Calico's allocator, and the kubelets in their namespaces."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dev.lab import binaries, cluster, processes
from dev.lab.errors import LabError
from dev.lab.kubeconfig import client_of
from dev.lab.node import machine, network, settings, world
from dev.lab.nodes import kwok_node
from dev.lab.session import Lab
from dev.lab.slots import Slot
from dev.lab.waiting import until
from kube.client import Resource
from kube.errors import KubeError
from kube.resources import NODES

ROLE = "node-role.kubernetes.io/control-plane"
CALICO = "crd.projectcalico.org"
POOLS = Resource(CALICO, "v1", "ippools", namespaced=False)
INFORMATION = Resource(CALICO, "v1", "clusterinformations", namespaced=False)
READY_SECONDS = 180


@dataclass(frozen=True)
class Image:
    """An archive with one image, and more names for it."""

    archive: Path
    name: str
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class RealNodes(Lab):
    """A lab with real nodes, in the world of this process."""

    home: Path
    workers: tuple[str, ...]

    @property
    def directory(self) -> Path:
        return self.home

    def address(self, node: str) -> str:
        return network.address_of(self.workers.index(node))


@contextmanager
def running(
    images: Sequence[Image], count: int = 2, progress: Callable[[str], None] = lambda _text: None
) -> Iterator[RealNodes]:
    """*count* nodes with these *images*, for a process in a world; the end of that world is theirs."""
    home = world.directory()
    (home / "logs").mkdir(parents=True)
    network.create_bridge()
    names = tuple(f"node-{letter}" for letter in "abcdefgh"[:count])
    progress("starting the control plane")
    kubeconfig = _start_control_plane(home)
    lab = RealNodes("nodes", home, names)
    _install_calico(lab)
    lab.client.create(NODES, _control_plane_node())
    started = [_start_proxy(home, kubeconfig)]
    progress(f"starting {', '.join(names)}")
    started += [_start_node(home, kubeconfig, number, name, images) for number, name in enumerate(names)]
    network.route_pods(count)
    try:
        until(
            lambda: _are_ready(lab),
            READY_SECONDS,
            f"{', '.join(names)} to be ready",
            every=0.5,
            check=lambda: _check(home, started),
        )
        yield lab
    finally:
        lab.close()
        for process in started:
            process.kill()
            process.wait()


def _start_control_plane(home: Path) -> Path:
    """A kubeconfig by which nodes reach it."""
    programs = binaries.ensure(*cluster.BINARIES)
    kubeconfig = cluster.create(home, Slot(0), programs, lambda: None, network.NETWORK)
    with_client = client_of(kubeconfig)
    cluster.await_serving(with_client, lambda: None)
    with_client.close()
    for_nodes = yaml.safe_load(kubeconfig.read_text())
    for each in for_nodes["clusters"]:
        port = each["cluster"]["server"].rpartition(":")[2]
        each["cluster"]["server"] = f"https://{network.CONTROL_PLANE}:{port}"
    path = home / "nodes.kubeconfig"
    path.write_text(yaml.safe_dump(for_nodes))
    return path


def _install_calico(lab: RealNodes) -> None:
    lab.kubectl("apply", "--server-side", "--filename", str(binaries.calico_crds()))
    until(
        lambda: lab.client.serves(POOLS) and lab.client.serves(INFORMATION), 60, "Calico's kinds to be served"
    )
    ready = {"datastoreReady": True, "clusterType": "k8s,kdd"}
    lab.client.create(INFORMATION, _calico("ClusterInformation", "default", ready))
    for number, name in enumerate(lab.workers):
        lab.client.create(POOLS, pool(name, network.pods_of(number), 26, name))


def pool(name: str, cidr: str, block_size: int, node: str) -> dict[str, Any]:
    """Addresses for the pods of one *node*."""
    spec = {
        "cidr": cidr,
        "blockSize": block_size,
        "ipipMode": "Never",
        "vxlanMode": "Never",
        "nodeSelector": f"kubernetes.io/hostname == '{node}'",
    }
    return _calico("IPPool", name, spec)


def _calico(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": f"{CALICO}/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def _control_plane_node() -> dict[str, Any]:
    """No pod runs on it; kube-proxy wants to know its address."""
    node = kwok_node(0)
    node["metadata"]["name"] = "control-plane"
    node["metadata"]["labels"] |= {"kubernetes.io/hostname": "control-plane", ROLE: ""}
    node["spec"] = {"taints": [{"key": ROLE, "effect": "NoSchedule"}]}
    node["status"]["addresses"] = [{"type": "InternalIP", "address": network.CONTROL_PLANE}]
    return node


def _start_proxy(home: Path, kubeconfig: Path) -> subprocess.Popen[bytes]:
    """For the API server, which calls webhooks by their Services."""
    program = binaries.ensure("kube-proxy")["kube-proxy"]
    return _start(home, "kube-proxy", [str(program), *settings.kube_proxy("control-plane", kubeconfig)])


def _start_node(
    home: Path, kubeconfig: Path, number: int, name: str, images: Sequence[Image]
) -> subprocess.Popen[bytes]:
    namespace = network.create_node_namespace(name, number)
    cgroup = f"/{world.NAME}/{name}"
    for hierarchy in world.hierarchies():
        (hierarchy / cgroup[1:]).mkdir(parents=True, exist_ok=True)
    given = {
        "name": name,
        "number": number,
        "cgroup": cgroup,
        "kubeconfig": str(kubeconfig),
        "images": [(each.name.rpartition(":")[0], str(each.archive)) for each in images],
        "tags": [(each.name, other) for each in images for other in each.others],
    }
    machine.write(home / name, given)
    enter = ["nsenter", f"--net={namespace}", "unshare", "--mount", "--pid", "--fork", "--mount-proc"]
    command = [*enter, "--kill-child=SIGKILL", sys.executable, "-m", "dev.lab.node.machine", str(home / name)]
    return _start(home, name, command)


def _start(home: Path, name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
    with (home / "logs" / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            command,
            env=processes.marked_environment(home),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=processes.die_with_parent,
        )


def _check(home: Path, started: Sequence[subprocess.Popen[bytes]]) -> None:
    ended = [process for process in started if process.poll() is not None]
    if ended:
        logs = [cluster.component_log(home, path.stem) for path in (home / "logs").glob("node-*.log")]
        raise LabError("\n".join(["a node ended while it started", *logs]))


def _are_ready(lab: RealNodes) -> bool:
    try:
        return all(_is_ready(lab.client.get(NODES, name)) for name in lab.workers)
    except KubeError:
        return False


def _is_ready(node: dict[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
