"""Serve the lab's nodes until stopped; the kernel kills this process when that of the lab ends."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
from collections.abc import Sequence
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path

from dev.lab.kubeconfig import api_server, client_of
from dev.lab.kubelet.addresses import Addresses
from dev.lab.kubelet.nodes import keep_beating, register
from dev.lab.kubelet.process import Process, Recipe
from dev.lab.kubelet.recipes import PATH, Image, Machine
from dev.lab.kubelet.server import Kubelet
from dev.lab.kubelet.values import CannotRun
from dev.lab.waiting import until
from kube.client import Client
from kube.errors import KubeError
from kube.event_recorder import EventRecorder

PATIENCE = 30.0
TRIAL = 10.0


def main(words: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(words)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr
    )
    directory: Path = arguments.directory.resolve()
    machine = Machine(directory, dict(arguments.image), api_server(arguments.kubeconfig))
    machine.base.mkdir(parents=True, exist_ok=True)
    directory.chmod(0o700)
    try:
        try_container(machine)
    except CannotRun as error:
        print(_no_containers(error.message), file=sys.stderr)
        return 1
    _serve(machine, arguments)
    return 0


def _serve(machine: Machine, arguments: argparse.Namespace) -> None:
    stop = threading.Event()
    _stop_on_signals(stop)
    client = client_of(arguments.kubeconfig)
    addresses = Addresses(arguments.pod_cidr)
    nodes = {name: addresses.take() for name in arguments.nodes.split(",")}
    for name, address in nodes.items():
        until(
            partial(_registered, client, name, address), PATIENCE, f"node {name} to be registered", every=0.2
        )
    recorder = EventRecorder(client, component="drawbridge-lab-kubelet")
    kubelet = Kubelet(machine, client, nodes, addresses, recorder)
    kubelet.start()
    threading.Thread(
        target=keep_beating,
        args=(client, list(nodes), stop),
        kwargs={"correct_pods": kubelet.correct},
        daemon=True,
    ).start()
    print("ready", flush=True)
    stop.wait()
    kubelet.stop()


def _registered(client: Client, name: str, address: str) -> bool:
    """An API server that has just come up makes its namespaces a moment later."""
    try:
        register(client, name, address)
    except KubeError:
        return False
    return True


def try_container(machine: Machine) -> None:
    """Raises CannotRun when this machine lets us make no container."""
    trial = Recipe(["true"], {"PATH": PATH}, "/", "trial", (), False, str(machine.base))
    process = Process(trial, machine.directory / "trial.log")
    ended = threading.Event()
    process.follow(ended.set)
    if not ended.wait(TRIAL) or process.exit_code != 0:
        raise CannotRun("CreateContainerError", f"a trial ended with {process.exit_code}")


def _no_containers(message: str) -> str:
    return (
        f"kubelet: this machine lets us make no container: {message}\n"
        "Run it as root with CAP_SYS_ADMIN (in Docker: --privileged), or allow user namespaces without\n"
        "root: Linux 5.11 or later, and where they exist sysctl kernel.unprivileged_userns_clone=1 and\n"
        "kernel.apparmor_restrict_unprivileged_userns=0."
    )


def _stop_on_signals(stop: threading.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m dev.lab.kubelet", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True, help="of an administrator")
    parser.add_argument("--directory", type=Path, required=True, help="where logs and volumes go")
    parser.add_argument("--nodes", required=True, help="names of the nodes, separated by commas")
    parser.add_argument("--pod-cidr", type=IPv4Network, required=True, help="on the loopback")
    parser.add_argument(
        "--image",
        type=_image,
        action="append",
        default=[],
        metavar="NAME=DIRECTORY[:PROGRAMS]",
        help="the directory that stands for an image, and that of its programs (a venv's bin); repeatable",
    )
    return parser


def _image(text: str) -> tuple[str, Image]:
    name, _, rest = text.partition("=")
    root, _, programs = rest.partition(":")
    if not name or not Path(root).is_absolute() or not Path(root).is_dir():
        raise argparse.ArgumentTypeError(
            f"{text!r} is not NAME=DIRECTORY[:PROGRAMS] with an existing, absolute path"
        )
    return name, Image(root, programs)


if __name__ == "__main__":
    sys.exit(main())
