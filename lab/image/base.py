"""Debian's base image, made by debootstrap from Debian's packages, once."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from lab.binaries import cache, progress
from lab.errors import LabError

SUITES = {"12": "bookworm"}
SECONDS = 600
DONE = "done"


def missing() -> str:
    """What this machine lacks to make images, or nothing."""
    if os.geteuid() != 0:
        return "images are made by root only"
    return "" if shutil.which("debootstrap") else "there is no debootstrap on this machine"


def home() -> Path:
    """Where all layers are kept."""
    return cache.root().parent / "image"


def suite_of(image: str) -> str:
    """Which of Debian's releases *image* is; raises LabError for others."""
    found = re.fullmatch(r"(?:.+/)?debian:(\d+)(?:[.-].+)?", image)
    if found and found[1] in SUITES:
        return SUITES[found[1]]
    raise LabError(
        f"FROM {image}: only Debian {', '.join(SUITES)} can be made here, as in FROM debian:12.11-slim"
    )


def layer(image: str) -> Path:
    """The files of *image*, as near as Debian's packages come to it."""
    suite = suite_of(image)
    return cache.ensure(home() / f"debian-{suite}", DONE, lambda making: _make(suite, making)).parent / "diff"


def _make(suite: str, making: Path) -> None:
    command = ["debootstrap", "--variant=minbase", suite, str(making / "diff")]
    with progress.step(f"making Debian {suite} of its packages"):
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    if done.returncode != 0:
        raise LabError(f"debootstrap failed: {(done.stdout + done.stderr)[-2000:]}")
    (making / DONE).touch()
