"""A program that is already on the machine serves when it says a fitting version."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from dev.lab.binaries.errors import Unavailable
from dev.lab.binaries.table import Program

ASSETS = "KUBEBUILDER_ASSETS"
ANSWER_SECONDS = 10.0


def in_assets(program: Program) -> Path:
    """From the directory that envtest names in the environment."""
    directory = os.environ.get(ASSETS)
    if not directory:
        raise Unavailable(f"{ASSETS}: not set")
    return _fitting(program, ASSETS, Path(directory) / program.name)


def on_path(program: Program) -> Path:
    where = shutil.which(program.name)
    if where is None:
        raise Unavailable(f"PATH: has no {program.name}")
    return _fitting(program, "PATH", Path(where).absolute())


def fits(said: str, wanted: str) -> bool:
    """Major and minor version are the same; patch releases of these programs do not change what the lab uses."""
    version = _major_minor(said)
    return version is not None and version == _major_minor(wanted)


def _major_minor(text: str) -> tuple[str, str] | None:
    """Of the first version in texts like 'Kubernetes v1.36.3', 'etcd Version: 3.7.3' and 'v4.3.1+g1a2b'."""
    match = re.search(r"\bv?(\d+)\.(\d+)\.\d+", text)
    return (match[1], match[2]) if match else None


def _fitting(program: Program, source: str, path: Path) -> Path:
    if program.version_question is None:
        raise Unavailable(f"{source}: not asked, {program.name} is the lab's own program")
    if not os.access(path, os.X_OK) or path.is_dir():
        raise Unavailable(f"{source}: no program {path}")
    said = _answer(path, program.version_question, source)
    if not fits(said, program.version):
        raise Unavailable(f"{source}: {path} says {said.strip()[:80]!r}, wanted is {program.version}")
    return path


def _answer(path: Path, question: tuple[str, ...], source: str) -> str:
    try:
        done = subprocess.run([path, *question], capture_output=True, text=True, timeout=ANSWER_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{source}: {path} does not say its version: {error}") from error
    return done.stdout
