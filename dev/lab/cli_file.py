"""`python -m dev.lab.cli_file [path]`: pack the command and all that it needs into one executable file.

From the packages that are installed, so of this platform and this Python: msgspec, pydantic and cryptography are
compiled, and Drawbridge's own values are made with them.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import sys
import zipfile
from collections.abc import Iterator, Sequence
from importlib.metadata import files
from pathlib import Path

from dev.lab.cli_bootstrap import CONTENT, platform
from telemetry.build import REVISION, VERSION

ROOT = Path(__file__).parents[2]
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
DEFAULT = ROOT / "build" / "kubectl-drawbridge"
OURS = (
    "calico",
    "certs",
    "cli",
    "cloud",
    "controllers",
    "dashboard",
    "api",
    "healthchecker",
    "kube",
    "runtime",
    "settings",
    "telemetry",
    "webhook",
)
NEEDLESS = {
    "aiohappyeyeballs",
    "aiohttp",
    "aiohttp-retry",
    "aiosignal",
    "attrs",
    "frozenlist",
    "gunicorn",
    "markdown-it-py",
    "mdurl",
    "multidict",
    "propcache",
    "pycparser",
    "pygments",
    "tencentcloud-sdk-python-common",
    "yarl",
}
"""Packages of the runtime that only servers in the cluster use, or only parts of others that the command does not."""
SOURCES = {".py", ".html", ".css", ".js", ".svg"}
UNUSED = re.compile(
    r"kubernetes/(aio/|client/api/|client/models/v[0-9])|cel_expr_python/ext/ext_(bindings|encoders|math|proto)"
    r"|(^|/)(tests?|__pycache__)/|\.(pyc|pyi)$"
)
FIXED_TIME = (2020, 1, 1, 0, 0, 0)


def main(arguments: Sequence[str]) -> int:
    target = Path(arguments[0]) if arguments else DEFAULT
    build(target)
    print(target)
    return 0


def build(target: Path, version: str = VERSION, revision: str = REVISION) -> None:
    content = dict(sorted([*_packages(), *_ours()]))
    digest = hashlib.sha256()
    for name, source in content.items():
        digest.update(name.encode() + b"\0" + source.read_bytes())
    built = {
        "for": {"python": PYTHON, "platform": platform()},
        "digest": digest.hexdigest()[:16],
        "DRAWBRIDGE_VERSION": version,
        "DRAWBRIDGE_REVISION": revision,
    }
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        for name, source in content.items():
            _add(archive, name, source.read_bytes())
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        file.write(f"#!/usr/bin/env python{PYTHON}\n".encode())
        with zipfile.ZipFile(file, "w") as archive:
            _add(archive, "__main__.py", (ROOT / "dev" / "lab" / "cli_bootstrap.py").read_bytes())
            _add(archive, "built.json", json.dumps(built).encode())
            _add(archive, CONTENT, inner.getvalue(), zipfile.ZIP_STORED)
    target.chmod(0o755)


def names() -> list[str]:
    """The packages that go into it."""
    given = [(ROOT / f"requirements{part}.txt").read_text() for part in ("", "-cli")]
    lines = "".join(given).splitlines()
    return [name for line in lines if (name := line.partition("==")[0]) != line and name not in NEEDLESS]


def _packages() -> Iterator[tuple[str, Path]]:
    for name in names():
        for each in files(name) or ():
            path = each.as_posix()
            if not path.startswith("..") and not UNUSED.search(path):
                yield path, Path(str(each.locate()))


def _ours() -> Iterator[tuple[str, Path]]:
    for package in OURS:
        for path in (ROOT / package).rglob("*"):
            if path.suffix in SOURCES:
                yield path.relative_to(ROOT).as_posix(), path
    yield from ((name, ROOT / name) for name in ("LICENSE", "features.py"))


def _add(
    archive: zipfile.ZipFile, name: str, content: bytes, compression: int = zipfile.ZIP_DEFLATED
) -> None:
    """The same bytes each time."""
    entry = zipfile.ZipInfo(name, FIXED_TIME)
    entry.compress_type = compression
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, content)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
