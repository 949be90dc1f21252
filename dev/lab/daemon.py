"""The owner of one lab: the lab's processes end with it, and it ends with its caller unless the caller keeps the lab.

It holds the lab's lock and slot, and reads its standard input: the line ``keep`` leaves the lab running for
good, an end of file before that, or SIGTERM at any time, takes it down. On standard output it reports
progress, one JSON object a line: ``{"progress": text}``, then ``{"ready": true}`` or ``{"failed": text}``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType

from dev.lab import binaries, cluster, processes, slots, workdir
from dev.lab.errors import LabError
from dev.lab.kubeconfig import client_of
from dev.lab.nodes import create_kwok_nodes
from dev.lab.owner import KEEP
from dev.lab.policy.mutations import SIDECAR_IMAGE
from dev.lab.repository import ROOT
from dev.lab.slots import Slot, free_ports
from dev.lab.waiting import until


class EndOfLab(Exception):
    """The caller has ended, or the lab's end was requested."""


class Caller:
    """The process that started this one, at the other end of standard input."""

    def __init__(self, descriptor: int, on_keep: Callable[[], None]) -> None:
        self._descriptor, self._on_keep, self._kept = descriptor, on_keep, False

    def check(self, seconds: float = 0) -> None:
        """Wait up to *seconds* for input from the caller; EndOfLab when it has ended."""
        watched = [] if self._kept else [self._descriptor]
        if not select.select(watched, [], [], seconds)[0]:
            return
        if KEEP not in os.read(self._descriptor, 1024):
            raise EndOfLab("the caller has ended")
        self._kept = True
        self._on_keep()


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    directory = workdir.directory(options.name)
    _end_on_sigterm()
    processes.adopt_orphans()
    children: list[subprocess.Popen[bytes]] = []
    try:
        slot, _holder = slots.claim()
        caller = _announce(options.name, slot)
        _bring_up(directory, slot, options, children, caller.check)
        _report({"ready": True})
        _run_until_ended(caller)
    except EndOfLab as end:
        _report({"progress": f"taking the lab down: {end}"})
    except Exception as error:  # whatever it was, its text is the answer that the caller waits for
        _report({"failed": str(error) if isinstance(error, LabError) else f"{type(error).__name__}: {error}"})
        return 1
    finally:
        _take_down(options.name, directory, children)
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m dev.lab.daemon", description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--kwok-nodes", type=int, default=3)
    parser.add_argument("--knobs", type=Path, help="of the lab's cloud; none when not given")
    parser.add_argument("--policy", action="store_true", help="with a policy engine, before anything else")
    return parser.parse_args(arguments)


def _end_on_sigterm() -> None:
    def end(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the end is not to be interrupted by a second one
        raise EndOfLab("asked to")

    signal.signal(signal.SIGTERM, end)


def _announce(name: str, slot: Slot) -> Caller:
    state = workdir.State(pid=os.getpid(), slot=slot.number)
    workdir.write_state(name, state)
    kept = workdir.State(pid=state.pid, slot=state.slot, kept=True)
    return Caller(sys.stdin.fileno(), lambda: workdir.write_state(name, kept))


def _bring_up(
    directory: Path,
    slot: Slot,
    options: argparse.Namespace,
    children: list[subprocess.Popen[bytes]],
    check: Callable[[], None],
) -> None:
    programs = binaries.ensure(*cluster.BINARIES)
    check()
    _report({"progress": f"starting the control plane in slot {slot.number}"})
    kubeconfig = cluster.create(directory, slot, programs, check)
    client = client_of(kubeconfig)
    cluster.await_serving(client, cluster.reviving(directory, programs, check))
    if options.policy:
        _report({"progress": "starting the policy engine"})
        _start_programs(directory, _policy(directory, kubeconfig, slot), children, check)
    create_kwok_nodes(client, options.kwok_nodes)
    _report({"progress": f"starting {options.nodes} nodes and the Service balancer"})
    companions = {**_cloud(slot, options.knobs), **_companions(directory, kubeconfig, slot, options.nodes)}
    _start_programs(directory, companions, children, check)


def _start_programs(
    directory: Path,
    companions: Mapping[str, list[str]],
    children: list[subprocess.Popen[bytes]],
    check: Callable[[], None],
) -> None:
    """Start programs of the lab's own, and wait until all are ready."""
    started = {name: _start(directory, name, command) for name, command in companions.items()}
    children.extend(started.values())
    for name, child in started.items():
        _await_ready(directory, name, child, check)


def _policy(directory: Path, kubeconfig: Path, slot: Slot) -> Mapping[str, list[str]]:
    (port,) = free_ports(slot.ports, 1)
    place = ["--directory", str(directory), "--port", str(port)]
    return {"policy": ["dev.lab.policy", "--kubeconfig", str(kubeconfig), *place]}


def _cloud(slot: Slot, knobs: Path | None) -> Mapping[str, list[str]]:
    if knobs is None:
        return {}
    (port,) = free_ports(slot.ports, 1)
    return {"cloud": ["dev.lab.cloud", "--port", str(port), "--knobs", str(knobs)]}


def _companions(directory: Path, kubeconfig: Path, slot: Slot, nodes: int) -> Mapping[str, list[str]]:
    shared = ["--kubeconfig", str(kubeconfig)]
    kubelet = ["--directory", str(directory), "--pod-cidr", slot.pod_range]
    kubelet += ["--nodes", ",".join(f"lab-{number}" for number in range(nodes))]
    kubelet += ["--image", f"drawbridge={ROOT}:{Path(sys.executable).parent}"]
    kubelet += ["--image", f"{SIDECAR_IMAGE}=/"]
    return {"services": ["dev.lab.services", *shared], "kubelet": ["dev.lab.kubelet", *shared, *kubelet]}


def _start(directory: Path, name: str, command: list[str]) -> subprocess.Popen[bytes]:
    with (directory / "logs" / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=ROOT,
            env=processes.marked_environment(directory),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=processes.die_with_parent,
        )


def _await_ready(
    directory: Path, name: str, child: subprocess.Popen[bytes], check: Callable[[], None]
) -> None:
    log = directory / "logs" / f"{name}.log"

    def ready_or_gone() -> bool:
        return child.poll() is not None or b"ready" in log.read_bytes().splitlines()

    try:
        until(ready_or_gone, 90, f"the lab's {name} to get ready", check=check)
    except LabError as error:
        raise LabError(f"{error}\n{cluster.component_log(directory, name)}") from error
    if child.returncode is not None:
        ended = f"the lab's {name} ended at once (exit {child.returncode})"
        raise LabError(f"{ended}\n{cluster.component_log(directory, name)}")


def _run_until_ended(caller: Caller) -> None:
    """Run until the end is requested; log each process that ends before that."""
    while True:
        caller.check(seconds=0.5)
        for pid, code in processes.reap().items():
            print(f"process {pid} of the lab ended with exit code {code}", file=sys.stderr, flush=True)


def _take_down(name: str, directory: Path, children: Sequence[subprocess.Popen[bytes]]) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for child in reversed(children):  # the kubelet first: it ends its containers, which use the Services
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=5)
    processes.kill_marked(directory)
    workdir.forget(name)


def _report(word: Mapping[str, object]) -> None:
    with contextlib.suppress(BrokenPipeError):  # the caller stops reading once the lab is ready
        os.write(sys.stdout.fileno(), json.dumps(word).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())
