"""What of a directory an image may be made from: all files that its .dockerignore lets through."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path


def files(root: Path) -> list[Path]:
    """Relative to *root*, in order."""
    rules = patterns((root / ".dockerignore").read_text())
    return sorted(path for path in _walk(root, rules) if not ignored(path, rules))


def patterns(text: str) -> list[str]:
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def ignored(path: Path, rules: Sequence[str]) -> bool:
    """The last rule that is about *path*, or about a directory that it is in, has its way."""
    named = [path, *path.parents][:-1]
    about = [rule for rule in rules if any(_matches(rule.removeprefix("!"), each) for each in named)]
    return bool(about) and not about[-1].startswith("!")


def within(paths: Sequence[Path], source: str) -> list[Path]:
    """Those that `COPY source` copies: the file, or all that is in the directory."""
    wanted = Path(source)
    return [path for path in paths if path == wanted or wanted in path.parents]


def _walk(root: Path, rules: Sequence[str]) -> Iterator[Path]:
    """All files but those of directories in which no rule lets anything through."""
    for name, directories, names in os.walk(root):
        here = Path(name).relative_to(root)
        directories[:] = [each for each in directories if _may_hold_some(here / each, rules)]
        yield from (here / each for each in names)


def _may_hold_some(directory: Path, rules: Sequence[str]) -> bool:
    return not ignored(directory, rules) or any(rule.startswith(f"!{directory}/") for rule in rules)


def _matches(rule: str, path: Path) -> bool:
    """As Docker's rules read: * stays within one name, ** does not."""
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", rule.strip("/"))
    meaning = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    pattern = "".join(meaning.get(part) or re.escape(part) for part in parts)
    return re.fullmatch(pattern, str(path)) is not None
