"""Where the addresses of pods come from: the hook for an allocator, and a plain one."""

from __future__ import annotations

from typing import Any, Protocol

Raw = dict[str, Any]


class Addresses(Protocol):
    """What a CNI plugin does: `assign` at the start of a pod's sandbox, `release` at its end."""

    def assign(self, pod: Raw) -> str | None:
        """None when there is none at present: the kubelet asks again."""

    def release(self, pod: Raw) -> None:
        """Of a pod that may be gone from the API; also of one that has none."""


class PlainAddresses:
    """The lowest that is free, of a /16."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._of: dict[str, int] = {}

    def assign(self, pod: Raw) -> str | None:
        taken = set(self._of.values())
        number = self._of.setdefault(
            pod["metadata"]["uid"], next(each for each in range(1, 1 << 16) if each not in taken)
        )
        return f"{self._prefix}.{number >> 8}.{number & 255}"

    def release(self, pod: Raw) -> None:
        self._of.pop(pod["metadata"]["uid"], None)
