"""What was made once is kept, whole or not at all, also when two runs make it at the same time."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dev.lab.binaries import progress
from dev.lab.binaries.table import PLATFORM


def root() -> Path:
    """$XDG_CACHE_HOME/drawbridge/lab/bin, by default below ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "drawbridge" / "lab" / "bin"


def place(name: str, version: str) -> Path:
    return root() / "{name}-{version}-{os}-{arch}".format(name=name, version=version, **PLATFORM)


def ensure(directory: Path, proof: str, fill: Callable[[Path], None], beside: Iterable[str] = ()) -> Path:
    """The file *proof* in *directory*, which *fill* makes again when it, or what is *beside* it, is missing."""
    names = (proof, *beside)
    if not has(directory, names):
        directory.parent.mkdir(parents=True, exist_ok=True)
        with locked(directory):
            if not has(directory, names):
                _make(directory, fill)
    return directory / proof


def has(directory: Path, names: Iterable[str]) -> bool:
    return all((directory / name).exists() for name in names)


def _make(directory: Path, fill: Callable[[Path], None]) -> None:
    prefix = f"{directory.name}.making-"
    for abandoned in directory.parent.glob(f"{prefix}*"):
        shutil.rmtree(abandoned)
    making = Path(tempfile.mkdtemp(prefix=prefix, dir=directory.parent))
    try:
        fill(making)
        shutil.rmtree(directory, ignore_errors=True)
        making.chmod(0o755)
        making.rename(directory)
    finally:
        shutil.rmtree(making, ignore_errors=True)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the lock beside *directory*; the kernel frees it when its holder ends, however it ends."""
    import fcntl  # Windows, where the command is frozen, has none

    with directory.with_name(f"{directory.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with progress.step(f"waiting for another run that makes {directory.name}"):
                fcntl.flock(lock, fcntl.LOCK_EX)
        yield
