"""Decode JSON of any depth: an API server stores pods whose managedFields are 10,000 levels deep.

msgspec gives up after less than 1,000, also in what it passes over: one such pod would hide all others of its list.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeVar

DEEPEST = 200
"""Levels; nothing that is read lies below."""
MOST = 100_000_000
TOKENS = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
"""Strings, and what makes a level."""

T = TypeVar("T")


def at_any_depth(decode: Callable[[bytes], T], data: bytes, *, most: int = MOST) -> T:
    """What *decode* makes of *data*, with null for what lies too deep; RecursionError for more than *most* tokens."""
    try:
        return decode(data)
    except RecursionError:
        return decode(b"".join(_flattened(data, most)))


def _flattened(data: bytes, most: int) -> Iterator[bytes]:
    level = kept = 0
    for number, token in enumerate(TOKENS.finditer(data)):
        if number > most:
            raise RecursionError("it is too deep, and too long to be cut")
        begin = token.start()
        if data[begin] in b"[{":
            level += 1
            if level == DEEPEST + 1:
                yield data[kept:begin]
        elif data[begin] in b"]}":
            if level == DEEPEST + 1:
                yield b"null"
                kept = token.end()
            level -= 1
    if level <= DEEPEST:
        yield data[kept:]
