"""A program is built from the versions and checksums that the lab's Go modules pin."""

import json
import os
import shutil
import subprocess
from pathlib import Path

from lab.binaries import progress
from lab.binaries.errors import Unavailable
from lab.binaries.go import go_for
from lab.binaries.table import Program

ENVIRONMENT = {
    "CGO_ENABLED": "0",
    "GOFLAGS": "-mod=readonly -buildvcs=false",
    "GOTOOLCHAIN": "local",
    "GOWORK": "off",
}


def build(program: Program, directory: Path) -> None:
    """Put the program, and what stands beside it, into *directory*; raises Unavailable."""
    go = go_for(program.module)
    with progress.step(f"building {program.name} {program.version}"):
        flags = ["-trimpath", "-tags", program.tags, "-ldflags", f"-s -w {program.ldflags}".strip()]
        run_go(go, program.module, "build", *flags, "-o", str(directory / program.name), program.package)
    for name, (module, path) in program.module_directories.items():
        keep(_module_directory(go, program, module) / path, directory / name)


def _module_directory(go: Path, program: Program, module: str) -> Path:
    found = json.loads(run_go(go, program.module, "list", "-m", "-json", module))
    return Path(found["Dir"])


def keep(source: Path, target: Path) -> None:
    """Copy the files alone: the module cache is read-only, and its permissions would stay with the copy."""
    target.mkdir()
    for file in filter(Path.is_file, source.iterdir()):
        shutil.copyfile(file, target / file.name)


def run_go(go: Path, module: Path, *arguments: str) -> str:
    """What `go` says in the directory of our *module*, by the versions and checksums there; raises Unavailable."""
    done = subprocess.run(
        [go, *arguments], cwd=module, env=os.environ | ENVIRONMENT, capture_output=True, text=True
    )
    if done.returncode:
        last = "\n      ".join(done.stderr.strip().splitlines()[-8:])
        raise Unavailable(f"build: '{go} {arguments[0]}' in {module} failed:\n      {last}")
    return done.stdout
