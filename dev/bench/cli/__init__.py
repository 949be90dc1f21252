"""How long the command takes on a cluster of 1,000 nodes and 20,000 pods, and how long its reads alone."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dev.bench.cli import calls
from dev.bench.cli.calls import PROMISED, Took
from dev.bench.cli.fill import filled
from dev.bench.cli.objects import QUICK as SMALL
from dev.bench.cli.objects import Size, node_name
from dev.bench.report import Figure
from dev.lab.bootstrap import running
from dev.lab.release import frozen
from dev.lab.session import Lab

VALUES: dict[str, Any] = {
    "replicaCount": 1,
    "controllers": {"replicaCount": 1},
    "elasticity": {"enabled": True},
    "ingressDaemonSet": {"enabled": True},
}
"""The lab's cloud turns anycastIP on."""
CHANGE = "elasticity: {localReplicas: 3}\n"
VERBS: Mapping[str, Sequence[str]] = {
    "status": ("status",),
    "elasticity list -A": ("elasticity", "list", "-A"),
    "addresses list": ("addresses", "list"),
    "reservations list": ("reservations", "list"),
    "explain pod": ("explain", "pod", "service-0-1", "-n", "team-0"),
    "simulate drain": ("simulate", "drain", node_name(0)),
    "simulate values": ("simulate", "values", "{change}"),
}
FAST = ("status",)
"""Promised to be. All pods, which `elasticity list -A` reads, take the API server three seconds."""


FULL = Size()


@dataclass(frozen=True)
class Extent:
    size: Size = FULL
    rounds: int = 7


QUICK = Extent(SMALL, 2)


def run(progress: Callable[[str], None], *, quick: bool = False) -> list[Figure]:
    """Five to ten minutes, most of them to create the pods; *quick* is for trying it out."""
    extent = QUICK if quick else Extent()
    with (
        tempfile.TemporaryDirectory() as directory,
        running(values=VALUES, nodes=1, kwok_nodes=0, cloud={}, progress=progress) as lab,
        filled(lab, extent.size, progress),
    ):
        return list(_figures(lab, Path(directory), extent.rounds, progress))


def _figures(lab: Lab, directory: Path, rounds: int, progress: Callable[[str], None]) -> Iterator[Figure]:
    change, program = directory / "values.yaml", str(frozen.freeze(directory))
    change.write_text(CHANGE)
    module = (sys.executable, "-m", "cli")
    environment = {"KUBECONFIG": str(lab.kubeconfig)}
    for verb, pattern in VERBS.items():
        progress(f"drawbridge {verb}")
        arguments = [each.format(change=change) for each in pattern]
        reads = calls.reads_of(lab, arguments)
        pairs = [
            (calls.timed([*module, *arguments], environment), calls.bare(lab, reads)) for _ in range(rounds)
        ]
        yield from calls.figures(
            verb,
            [ours for ours, _ in pairs],
            [bare for _, bare in pairs],
            at_most=PROMISED if verb in FAST else None,
        )
    progress("the frozen command")
    started: dict[str, list[Took]] = {
        "python": [calls.timed([sys.executable, "-c", ""], {}) for _ in range(rounds)],
        "--version": [calls.timed([*module, "--version"], environment) for _ in range(rounds)],
        "frozen, --version": [calls.timed([program, "--version"], environment) for _ in range(rounds)],
        "frozen, status": [calls.timed([program, "status"], environment) for _ in range(rounds)],
    }
    for name, took in started.items():
        yield from calls.figures(name, took, [], at_most=PROMISED if name.endswith("status") else None)
