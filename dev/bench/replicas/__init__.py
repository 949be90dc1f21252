"""What a replica costs before it works: CPU until it is ready, and memory at rest. No control plane is needed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from certs.issue import new_ca, new_leaf
from dev.bench import processes
from dev.bench.processes import MIB
from dev.bench.report import Figure, figure
from dev.lab.direct import urlopen
from dev.lab.repository import ROOT
from dev.lab.slots import free_ports
from dev.lab.waiting import until

PATIENCE = 60.0
PORTS = range(32_500, 32_700)
SETTLED = 0.05
"""Seconds of CPU in the last seconds, below which a process is at rest."""
BEGIN = "import sys; sys.path.insert(0, ''); import pathlib, runpy; from kube import connection;"
BEGIN += "connection.MOUNTED = pathlib.Path(sys.argv.pop(1));"
PROGRAMS = {
    "webhook server": (
        f"{BEGIN} from gunicorn.app.wsgiapp import run; run()",
        "-c",
        "gunicorn.conf.py",
        "wsgi:app",
    ),
    "controllers": (f"{BEGIN} runpy.run_module('controllers', run_name='__main__')",),
}
DEFAULT: dict[str, Any] = {}
ALL: dict[str, Any] = {"elasticity": {"enabled": True}, "ingressDaemonSet": {"enabled": True}}
FOLLOWED = {"elasticity": "statefulsets", "ingressDaemonSet": "ingressdaemonsets"}
"""A kind that the feature alone follows."""


@dataclass(frozen=True)
class Extent:
    """*starts* of each program; *nodes* and *pods* that the leader follows."""

    starts: int = 5
    nodes: int = 1_000
    pods: int = 20_000


QUICK = Extent(1, 10, 200)


def run(progress: Callable[[str], None], *, quick: bool = False) -> list[Figure]:
    """About two minutes; *quick* is for trying it out."""
    with tempfile.TemporaryDirectory() as directory:
        return list(_figures(Path(directory), QUICK if quick else Extent(), progress))


def _figures(directory: Path, extent: Extent, progress: Callable[[str], None]) -> Iterator[Figure]:
    _write_account(directory)
    with _api(directory, 0, 0) as port:
        for name in PROGRAMS:
            progress(f"starting the {name}")
            starts = [_started(directory, name, port) for _ in range(extent.starts)]
            yield figure(
                f"{name}: CPU until it is ready", median(each[0] for each in starts), "s", at_most=1.5
            )
            yield figure(f"{name}: memory at rest", median(each[1] for each in starts), "MiB", at_most=60)
    with _api(directory, extent.nodes, extent.pods) as port:
        for title, config in (("the default features", DEFAULT), ("all but anycastIP", ALL)):
            progress(f"leading {extent.pods:,} pods with {title}")
            leader = _started(directory, "controllers", port, **config)[1]
            name = f"leader of {extent.nodes:,} nodes and {extent.pods:,} pods, {title}: memory"
            yield figure(name, leader, "MiB", at_most=150)


def _started(directory: Path, program: str, port: int, **config: Any) -> tuple[float, float]:
    """Seconds of CPU until it is ready, and MiB at rest."""
    kinds = {"pods", *map(FOLLOWED.__getitem__, config)} if program == "controllers" else set()
    with _running(directory, program, port, config) as (pid, health, metrics):
        until(lambda: _get(health, "/readyz") is not None, PATIENCE, f"the {program} to be ready", every=0.01)
        seconds = processes.of(processes.below(pid)).seconds
        until(lambda: _has_synced(metrics, kinds) and _rests(pid), PATIENCE, f"the {program} to come to rest")
        return seconds, sum(map(processes.private, processes.below(pid))) / MIB


@contextmanager
def _running(
    directory: Path, program: str, port: int, config: Mapping[str, Any]
) -> Iterator[tuple[int, int, int]]:
    """The pid, and the ports of its health checks and metrics."""
    ports = free_ports(PORTS, 3)
    (directory / "config.yaml").write_bytes(
        msgspec.json.encode({**_configuration(directory, ports), **config})
    )
    code, *arguments = PROGRAMS[program]
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(directory), *arguments],
        cwd=ROOT,
        env={
            **os.environ,
            "DRAWBRIDGE_CONFIG": str(directory / "config.yaml"),
            "DRAWBRIDGE_BIND_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(port),
        },
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process.pid, ports[1], ports[2]
    finally:
        process.terminate()
        process.wait(PATIENCE)


def _configuration(directory: Path, ports: list[int]) -> dict[str, Any]:
    webhook, health, metrics = ports
    return {
        "apiVersion": "drawbridge.io/v1",
        "kind": "DrawbridgeConfig",
        "webhook": {"port": webhook, "certDir": str(directory), "drainPeriod": "0s"},
        "health": {"healthProbeBindAddress": f":{health}"},
        "metrics": {"bindAddress": f":{metrics}"},
        "leaderElection": {"leaderElect": False},
    }


def _write_account(directory: Path) -> None:
    """A ServiceAccount as in a pod, and the API server's certificate, which the webhook server uses, too."""
    now = datetime.now(UTC)
    begin, end = now - timedelta(hours=1), now + timedelta(days=2)
    ca = new_ca("bench", begin, end)
    pair = new_leaf(ca, ["localhost"], ["127.0.0.1"], begin, end)
    files = {"ca.crt": ca.certificate, "token": b"bench", "tls.crt": pair.certificate, "tls.key": pair.key}
    for name, content in files.items():
        (directory / name).write_bytes(content)


@contextmanager
def _api(directory: Path, nodes: int, pods: int) -> Iterator[int]:
    command = [sys.executable, "-m", "dev.bench.replicas.api", str(directory), str(nodes), str(pods)]
    with ExitStack() as closing:
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        closing.callback(process.wait)
        closing.callback(process.kill)
        port = closing.enter_context(process.stdout or nullcontext(StringIO())).readline()
        yield int(port)


def _rests(pid: int) -> bool:
    before = processes.of(processes.below(pid)).seconds
    time.sleep(3)  # the length of the measurement
    return processes.of(processes.below(pid)).seconds - before < SETTLED


def _has_synced(port: int, kinds: Iterable[str]) -> bool:
    found = _get(port, "/metrics") or ""
    return all(f'drawbridge_informer_synced{{kind="{kind}"}} 1.0' in found for kind in kinds)


def _get(port: int, path: str) -> str | None:
    """The text of an answer with status 200."""
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as response:
            return str(response.read().decode())
    except OSError:
        return None
