"""What is known of an image while it is made: its layers, and with what its programs start."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Stage:
    """*key* identifies what the layers were made of; *arguments* are seen while it is made only."""

    key: str
    layers: tuple[Path, ...] = ()
    env: Mapping[str, str] = field(default_factory=lambda: {"PATH": PATH})
    arguments: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    directory: str = "/"
    user: str = ""
    command: tuple[str, ...] = ()

    @property
    def variables(self) -> Mapping[str, str]:
        return {**self.arguments, **self.env}

    @property
    def ids(self) -> tuple[int, int]:
        """User and group, in numbers."""
        user, _, group = (self.user or "0:0").partition(":")
        return int(user), int(group or user)

    def path(self, word: str) -> str:
        """Where *word* is, seen from the working directory."""
        return str(PurePosixPath(self.directory) / word)

    def key_after(self, *parts: object) -> str:
        return hashlib.sha256("\0".join([self.key, *map(str, parts)]).encode()).hexdigest()[:20]
