"""One call of the command as users make it, or of the bare client: seconds by the clock, and of a processor."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import yaml
from click.testing import CliRunner

from cli.app import drawbridge
from cli.cluster import Cluster
from dev.bench.report import Figure, figure
from dev.lab.errors import LabError
from dev.lab.repository import ROOT
from dev.lab.session import Lab
from kube.client import Client
from kube.connection import Connection, connect

BARE = Path(__file__).with_name("bare.py")
ANSWERED = (0, 1)
"""1 is what a command says of a cluster in which something is wrong, as in one whose controllers stand still."""
PROMISED = 1.0
"""Seconds."""

Read = tuple[str, str]
"""A path with its query, and the form of the answer."""


@dataclass(frozen=True)
class Took:
    """Seconds by the clock, and of a processor."""

    wall: float
    cpu: float


class Recording(Connection):
    """As *connection*, and keeps what is read."""

    def __init__(self, connection: Connection) -> None:
        self.host, self.pool, self.reads = connection.host, self, list[Read]()  # type: ignore[assignment]
        self._connection = connection

    def authorization(self) -> Mapping[str, str]:
        return self._connection.authorization()

    def request(self, method: str, url: str, *, headers: Mapping[str, str], **others: Any) -> Any:
        if method == "GET":
            self.reads.append((url.removeprefix(self.host), headers.get("Accept", "*/*")))
        return self._connection.pool.request(method, url, headers=headers, **others)


def reads_of(lab: Lab, arguments: Sequence[str]) -> list[Read]:
    """What the command reads with these *arguments*; LabError when it fails."""
    recording = Recording(connect(str(lab.kubeconfig)))
    cluster = Cluster(Client(recording, timeout=60), "default", recording)
    result = CliRunner().invoke(drawbridge, arguments, obj=lambda _options: cluster)
    if result.exit_code not in ANSWERED:
        raise LabError(f"drawbridge {' '.join(arguments)} failed: {result.output}")
    return recording.reads


def bare(lab: Lab, reads: Sequence[Read]) -> Took:
    """The same reads without the command."""
    found = yaml.safe_load(lab.kubeconfig.read_text())
    cluster, user = found["clusters"][0]["cluster"], found["users"][0]["user"]
    host, port = cluster["server"].removeprefix("https://").split(":")
    files = [cluster["certificate-authority"], user["client-certificate"], user["client-key"]]
    command = [sys.executable, "-I", str(BARE), host, port, *files]
    return timed(command, {}, (0,), msgspec.json.encode(reads))


def timed(
    command: Sequence[str],
    environment: Mapping[str, str],
    accepted: Sequence[int] = ANSWERED,
    given: bytes = b"",
) -> Took:
    """LabError when it ends otherwise than *accepted*."""
    begin = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**_without_caches_off(), **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with process.stdin or BytesIO() as stdin:
        stdin.write(given)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in accepted:
        raise LabError(f"{' '.join(command)} ended with {process.returncode}")
    return Took(time.monotonic() - begin, used.ru_utime + used.ru_stime)


def _without_caches_off() -> dict[str, str]:
    """Users' modules are compiled once."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def figures(
    verb: str, calls: Sequence[Took], reads: Sequence[Took], *, at_most: float | None
) -> list[Figure]:
    """*reads* are those of the bare client, in the same rounds."""
    walls = [each.wall for each in calls]
    found = [
        figure(f"{verb}: median of {len(calls)}", median(walls), "s", at_most=at_most),
        figure(f"{verb}: longest", max(walls), "s"),
        figure(f"{verb}: CPU", median(each.cpu for each in calls), "s"),
    ]
    if reads:
        baseline = median(each.wall for each in reads)
        found.append(figure(f"{verb}: against its reads alone", median(walls), "s", baseline=baseline))
    return found
