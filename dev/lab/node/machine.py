"""The first process of one real node: containerd, the kubelet and kube-proxy live and die with it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dev.lab import binaries
from dev.lab.node import settings
from dev.lab.node.network import address_of
from dev.lab.waiting import until

TUNABLES = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""What the kubelet sets for the whole machine: it finds them set so, and the machine keeps what it has."""
SECONDS = 60
EMPTY = ("/run", "/opt")
OWN = ("/var/lib", "/var/log")
"""Directories that programs of a node write to, each with one of the node's behind it."""


def main() -> int:
    home = Path(sys.argv[1])
    given = json.loads((home / "node.json").read_text())
    programs = {name: Path(path) for name, path in given["programs"].items()}
    _mount(home)
    _configure(given, programs)
    essential = _start(given, programs)
    print("started", flush=True)
    _await_end(essential, lambda: _start_kubelet(given, programs))
    return 1


def _mount(home: Path) -> None:
    for path in EMPTY:
        _run("mount", "-t", "tmpfs", "tmpfs", path)
    for path in OWN:
        source = home / path[1:]
        source.mkdir(parents=True)
        _run("mount", "--bind", str(source), path)
    for name, value in TUNABLES.items():
        source = Path("/run/tunables") / name
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(f"{value}\n")
        _run("mount", "--bind", str(source), f"/proc/sys/{name}")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def _configure(given: Mapping[str, Any], programs: Mapping[str, Path]) -> None:
    kubeconfig = Path(given["kubeconfig"])
    for path in (settings.CNI_PROGRAMS, settings.CNI_NETWORKS):
        Path(path).mkdir(parents=True)
    for name in ("calico", "calico-ipam"):
        shutil.copy(programs["calico"], Path(settings.CNI_PROGRAMS) / name)
    Path(settings.CNI_NETWORKS, "10-calico.conflist").write_text(settings.cni(given["name"], kubeconfig))
    Path("/run/containerd.toml").write_text(settings.CONTAINERD)
    configuration = settings.kubelet(int(given["number"]), given["cgroup"])
    Path("/run/kubelet.json").write_text(json.dumps(configuration))


def _start(given: Mapping[str, Any], programs: Mapping[str, Path]) -> list[subprocess.Popen[bytes]]:
    os.environ["PATH"] = f"{programs['containerd-shim-runc-v2'].parent}:{os.environ['PATH']}"
    containerd = _background(programs, "containerd", "--config", "/run/containerd.toml")
    until(lambda: Path(settings.SOCKET).exists(), SECONDS, "containerd to listen")
    ctr = (str(programs["ctr"]), "--namespace", "k8s.io", "images")
    for image, archive in given["images"]:
        # An archive in the OCI's layout has the tag alone.
        _run(*ctr, "import", "--local", "--base-name", image, archive)
    for image, other in given["tags"]:
        _run(*ctr, "tag", image, other)
    arguments = settings.kube_proxy(given["name"], Path(given["kubeconfig"]))
    return [containerd, _background(programs, "kube-proxy", *arguments)]


def _start_kubelet(given: Mapping[str, Any], programs: Mapping[str, Path]) -> subprocess.Popen[bytes]:
    return _background(
        programs,
        "kubelet",
        *("--config", "/run/kubelet.json", "--kubeconfig", given["kubeconfig"]),
        *("--hostname-override", given["name"], "--node-ip", address_of(int(given["number"]))),
    )


def _background(programs: Mapping[str, Path], name: str, *arguments: str) -> subprocess.Popen[bytes]:
    with Path(f"/var/log/{name}.log").open("ab") as log:
        return subprocess.Popen(
            [programs[name], *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )


def _await_end(
    essential: Sequence[subprocess.Popen[bytes]], start_kubelet: Callable[[], subprocess.Popen[bytes]]
) -> None:
    """Of any of them, or of the kubelet, which is started again when it was killed, as systemd does.

    Shims and what they leave behind are reaped meanwhile.
    """
    kubelet = start_kubelet()
    while True:
        pid, status = os.wait()
        code = os.waitstatus_to_exitcode(status)
        if pid == kubelet.pid and code < 0:
            kubelet = start_kubelet()
        elif ended := [str(each.args) for each in (*essential, kubelet) if each.pid == pid]:
            print(f"{ended[0]} ended with {code}", flush=True)
            return


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)


def write(home: Path, given: Mapping[str, object]) -> None:
    """What the node in *home* starts with."""
    home.mkdir(parents=True)
    programs = {name: str(path) for name, path in binaries.ensure(*binaries.NODE).items()}
    (home / "node.json").write_text(json.dumps({**given, "programs": programs}))


if __name__ == "__main__":
    sys.exit(main())
