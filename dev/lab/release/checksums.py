"""SHA256SUMS, as `sha256sum --check` reads it."""

from __future__ import annotations

import hashlib
from pathlib import Path

NAME = "SHA256SUMS"


def write(directory: Path) -> None:
    files = sorted(path for path in directory.iterdir() if path.is_file() and path.name != NAME)
    (directory / NAME).write_text("".join(f"{digest(file)}  {file.name}\n" for file in files))


def digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
