"""Programs are built from the versions and checksums that the lab's Go modules pin."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from dev.lab.binaries import progress
from dev.lab.binaries.errors import Unavailable
from dev.lab.binaries.go import go_for
from dev.lab.binaries.table import Program

ENVIRONMENT = {
    "CGO_ENABLED": "0",
    "GOFLAGS": "-mod=readonly -buildvcs=false",
    "GOTOOLCHAIN": "local",
    "GOWORK": "off",
}
LEAST_MEMORY = 512
"""MiB for a process of the compiler below which it must collect garbage all the time."""


def build(programs: Sequence[Program], directory: Path) -> None:
    """Put *programs*, all of one module, and what stands beside them, into *directory*; raises Unavailable."""
    module = programs[0].module
    go = go_for(module)
    packages = [each.package for each in programs]
    names = ", ".join(f"{each.name} {each.version}" for each in programs)
    with progress.step(f"fetching the Go modules of {names}"):
        count = len(run_go(go, module, "list", "-deps", *_tags(programs), *packages).splitlines())
    with progress.step(f"building {names}"):
        _compile(go, module, [*_flags(programs), "-o", _target(programs, directory), *packages], count)
    for program in programs:
        if len(programs) > 1:
            (directory / _file_name(program.package)).rename(directory / program.name)
        for name, (dependency, path) in program.module_directories.items():
            keep(_module_directory(go, program, dependency) / path, directory / name)


def _target(programs: Sequence[Program], directory: Path) -> str:
    return str(directory / programs[0].name) if len(programs) == 1 else f"{directory}/"


def _flags(programs: Sequence[Program]) -> list[str]:
    """The linker passes over the variables that a program does not have."""
    stamps = " ".join(dict.fromkeys(each.ldflags for each in programs))
    stripped = ["-gcflags", "all=-dwarf=false", "-ldflags", f"-s -w {stamps}".strip()]
    return ["-v", "-trimpath", *stripped, *_tags(programs)]


def _tags(programs: Sequence[Program]) -> list[str]:
    return ["-tags", ",".join(dict.fromkeys(each.tags for each in programs if each.tags))]


def _file_name(package: str) -> str:
    """What `go build` calls the program of *package*: after the last part of its path that is no major version."""
    *_, before, last = package.split("/")
    return before if re.fullmatch(r"v\d+", last) else last


def _compile(go: Path, module: Path, arguments: Sequence[str], count: int) -> None:
    """`go build -v` names each package that it has compiled on stderr, which shows its progress."""
    tail: list[str] = []
    packages = progress.Countdown("packages", count)
    with subprocess.Popen(
        [go, "build", *arguments], cwd=module, env=_environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        for line in process.stderr or ():
            tail = [*tail[-7:], line.rstrip()]
            packages.one_more()
    if process.returncode:
        raise _failure(go, "build", module, tail)


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
    done = subprocess.run([go, *arguments], cwd=module, env=_environment(), capture_output=True, text=True)
    if done.returncode:
        raise _failure(go, arguments[0], module, done.stderr.strip().splitlines()[-8:])
    return done.stdout


def _environment() -> dict[str, str]:
    """The compiler's processes are short: they collect garbage only where memory is scarce."""
    limit = max(LEAST_MEMORY, _available_memory() // (2 * (os.cpu_count() or 1)))
    return os.environ | ENVIRONMENT | {"GOGC": "off", "GOMEMLIMIT": f"{limit}MiB"}


def _available_memory() -> int:
    """MiB, with what the kernel would give up of its caches."""
    found = re.search(r"^MemAvailable: +(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    return int(found[1]) >> 10 if found else 0


def _failure(go: Path, verb: str, module: Path, last: Sequence[str]) -> Unavailable:
    said = "\n      ".join(last)
    return Unavailable(f"build: '{go} {verb}' in {module} failed:\n      {said}")
