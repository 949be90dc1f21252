"""A process in an image: which one, as which user, and what of this machine it sees."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parent.parent.parent


@dataclass(frozen=True)
class Mount:
    source: Path
    read_only: bool = True


@dataclass(frozen=True)
class Process:
    """*layers* lie one on the other, the last one on top; what it writes goes *over* them, or is forgotten."""

    argv: Sequence[str]
    layers: Sequence[Path]
    env: Mapping[str, str]
    directory: str = "/"
    user: tuple[int, int] = (0, 0)
    mounts: Mapping[str, Mount] = field(default_factory=dict)
    over: Path | None = None
    read_only: bool = False


@contextmanager
def started(
    process: Process, *, output: int | IO[bytes] = subprocess.PIPE
) -> Iterator[subprocess.Popen[bytes]]:
    """While it runs; all that it writes to its outputs goes to *output*. It is killed at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="drawbridge-image-") as base:
        command = [sys.executable, "-m", "lab.image.inside", _wire(process, base)]
        with subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        ) as running:
            try:
                yield running
            finally:
                running.kill()


def run(process: Process, seconds: float) -> tuple[int, str]:
    """Its exit code and all that it printed; raises subprocess.TimeoutExpired."""
    with started(process) as running:
        printed, _ = running.communicate(timeout=seconds)
        return running.returncode, printed.decode()


def _wire(process: Process, base: str) -> str:
    uid, gid = process.user
    return json.dumps(
        {
            "argv": list(process.argv),
            "layers": [str(layer) for layer in process.layers],
            "env": dict(process.env),
            "directory": process.directory,
            "uid": uid,
            "gid": gid,
            "mounts": {
                target: (str(mount.source), mount.read_only)
                for target, mount in sorted(process.mounts.items())
            },
            "over": str(process.over) if process.over else "",
            "readOnly": process.read_only,
            "base": base,
        }
    )
