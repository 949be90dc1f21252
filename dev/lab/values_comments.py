"""The comments of values.yaml by the paths of the values and sections below them, for readers of the schema."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

KEY = re.compile(r"( *)([A-Za-z]\w*):")
SECTION, VALUE = "+docs:section=", "-- "
"""What begins the comment of a section of the README, and that of a value."""


def read(text: str) -> Mapping[str, str]:
    return {path: comment.removeprefix(VALUE) for path, comment in marked(text)}


def marked(text: str) -> Iterator[tuple[str, str]]:
    """Comments as they are written; those of values begin with a mark, those of maps that hold values do not."""
    parents: list[tuple[int, str]] = []
    comment: list[str] = []
    for line in text.splitlines():
        if line.strip().startswith("#"):
            comment.append(line.strip().removeprefix("#").strip())
            continue
        if key := KEY.match(line):
            parents = [(depth, name) for depth, name in parents if depth < len(key[1])] + [
                (len(key[1]), key[2])
            ]
            if kept := [each for each in comment if not each.startswith(SECTION)]:
                yield ".".join(name for _, name in parents), " ".join(kept)
        comment = []
