"""Current and past values, so that an index can lag behind."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

KEPT = 600.0
"""Seconds by which an index can lag behind at most."""

V = TypeVar("V")


class History(Generic[V]):
    """Times never go backwards for a key."""

    def __init__(self) -> None:
        self._versions: dict[str, list[tuple[float, V | None]]] = {}

    def put(self, key: str, value: V, at: float) -> None:
        versions = self._versions.setdefault(key, [])
        versions.append((at, value))
        while len(versions) > 1 and versions[1][0] < at - KEPT:
            del versions[0]

    def end(self, key: str, at: float) -> None:
        self._versions[key].append((at, None))
        ended = [key for key, versions in self._versions.items() if _is_over(versions, at - KEPT)]
        for each in ended:
            del self._versions[each]

    def get(self, key: str, when: float = math.inf) -> V | None:
        for since, value in reversed(self._versions.get(key, [])):
            if since <= when:
                return value
        return None

    def names(self) -> list[str]:
        """The keys of all values, those that have ended lately, too."""
        return list(self._versions)

    def all(self, when: float = math.inf) -> Iterator[V]:
        for key in self.names():
            if (value := self.get(key, when)) is not None:
                yield value


def _is_over(versions: Sequence[tuple[float, object]], before: float) -> bool:
    return versions[-1][1] is None and versions[-1][0] < before
