"""Each lab has one directory and one lock: its holder owns the lab, and the kernel frees it on death."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from pathlib import Path

import msgspec

from dev.lab.errors import LabError

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


class State(msgspec.Struct, frozen=True):
    """What the owner of a lab publishes about it."""

    pid: int
    slot: int
    kept: bool = False  # complete, and left running until someone takes it down


def home() -> Path:
    """Where all labs of this user live."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "drawbridge" / "lab"


def directory(name: str) -> Path:
    if not NAME.fullmatch(name):
        raise LabError(
            f"'{name}' cannot name a lab: use up to 40 lower-case letters, digits and inner hyphens"
        )
    return home() / name


def names() -> list[str]:
    """Every lab that has left a trace, running or not."""
    found = home().glob("*") if home().is_dir() else ()
    return sorted({path.name.removesuffix(".lock") for path in found})


def acquire(name: str) -> int | None:
    """The descriptor that holds the lock of *name* as long as it is open, or None while someone else does."""
    path = _lock_file(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        if _is_still_at(path, descriptor):
            return descriptor
        os.close(descriptor)  # its last holder unlinked the file between our open and our lock


def forget(name: str) -> None:
    """Remove all that is left of a lab; only for the holder of its lock."""
    shutil.rmtree(directory(name), ignore_errors=True)
    _lock_file(name).unlink(missing_ok=True)


def read_state(name: str) -> State | None:
    try:
        return msgspec.json.decode((directory(name) / "state.json").read_bytes(), type=State)
    except FileNotFoundError:
        return None


def write_state(name: str, state: State) -> None:
    path = directory(name) / "state.json"
    fresh = path.with_suffix(".new")
    fresh.write_bytes(msgspec.json.encode(state))
    fresh.replace(path)


def _lock_file(name: str) -> Path:
    place = directory(name)
    return place.with_name(f"{place.name}.lock")


def _is_still_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
