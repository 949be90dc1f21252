"""The comments of values.yaml by the paths of the values and sections below them, for readers of the schema."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

KEY = re.compile(r"( *)([A-Za-z]\w*):")


def read(text: str) -> Mapping[str, str]:
    return dict(_read(text))


def _read(text: str) -> Iterator[tuple[str, str]]:
    parents: list[tuple[int, str]] = []
    comment: list[str] = []
    for line in text.splitlines():
        if line.strip().startswith("#"):
            comment.append(line.strip().removeprefix("#").strip().removeprefix("-- "))
            continue
        if key := KEY.match(line):
            parents = [(depth, name) for depth, name in parents if depth < len(key[1])] + [
                (len(key[1]), key[2])
            ]
            if comment:
                yield ".".join(name for _, name in parents), " ".join(comment)
        comment = []
