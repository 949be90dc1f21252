"""Every program of the lab: its version, from versions.toml, and where it can come from, from build/programs.toml."""

import hashlib
import os
import platform
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LAB = Path(__file__).resolve().parents[1]
COLUMN = "DRAWBRIDGE_LAB_VERSIONS"
"""The environment variable that names a column of versions.toml."""
PLATFORM = {
    "os": platform.system().lower(),
    "arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine().lower()),
}


@dataclass(frozen=True)
class Release:
    """An official download; `member` is the program's place in a .tar.gz, None when the file is the program."""

    url: str
    checksums: str
    member: str | None = None


@dataclass(frozen=True)
class Program:
    """One program; `version_question` is what makes it say its version, None when only our own build will do."""

    name: str
    version: str
    module: Path
    package: str
    ldflags: str = ""
    tags: str = ""
    """Build tags, with commas between them."""
    version_question: tuple[str, ...] | None = ("--version",)
    release: Release | None = None
    module_directories: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Directories of Go modules kept beside the program: name there -> (module, path in it)."""


def versions(column: str = "versions") -> dict[str, str]:
    """What is wanted, or the oldest that is supported."""
    table: dict[str, str] = tomllib.loads((LAB / "versions.toml").read_text())[column]
    return table


def programs() -> dict[str, Program]:
    """All programs of the lab by name, in the order in which they are made; raises KeyError for other columns.

    With ``DRAWBRIDGE_LAB_VERSIONS=oldest`` some are those that the oldest supported cluster and operator have.
    """
    wanted = versions()
    oldest = versions(column) if (column := os.environ.get(COLUMN)) else {}
    groups = tomllib.loads((LAB / "build" / "programs.toml").read_text())["group"]
    found = (each for group in groups for each in _programs(group, wanted, oldest))
    # Those of one module stand together: they are compiled together.
    return {each.name: each for each in sorted(found, key=lambda each: each.module.name == "oldest")}


def _programs(group: dict[str, Any], wanted: dict[str, str], oldest: dict[str, str]) -> Iterator[Program]:
    is_old = bool(oldest) and "oldest" in group
    module = LAB / group["oldest" if is_old else "module"]
    version = (oldest if is_old else wanted).get(group.get("of", ""), "")
    number = version.removeprefix("v")
    major, minor, *_ = [*number.split("."), ""]
    words = {"version": version, "number": number, "major": major, "minor": minor, **PLATFORM}
    if sources := group.get("sources"):
        content = b"".join((module / each).read_bytes() for each in sources)
        version = "-".join(filter(None, (version, hashlib.sha256(content).hexdigest()[:8])))
    question = group.get("question", ["--version"])
    for name in group["names"]:
        text = {**words, "name": name}
        release = {key: value.format(**text) for key, value in group.get("release", {}).items()}
        yield Program(
            name,
            version,
            module,
            group["package"].format(**text),
            ldflags=group.get("ldflags", "").format(**text),
            tags=group.get("tags", ""),
            version_question=tuple(question) if question else None,
            release=Release(**release) if release else None,
            module_directories={key: (found, path) for key, (found, path) in group.get("beside", {}).items()},
        )
