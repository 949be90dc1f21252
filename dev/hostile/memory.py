"""The chart's memory limit, enforced on the processes of one pod by a cgroup, where this user may make one."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
NAME = "drawbridge-hostile"


class Limited:
    """*enforced* is false where no cgroup can be made: then the peak is only watched."""

    def __init__(self, pids: Iterable[int], group: Path | None) -> None:
        self.pids, self._group = tuple(pids), group

    @property
    def enforced(self) -> bool:
        return self._group is not None

    def resident(self) -> int:
        """Bytes of all processes that still run."""
        return sum(map(_resident, self.pids))

    def killed(self) -> bool:
        return any(not Path(f"/proc/{pid}").exists() for pid in self.pids)


@contextmanager
def limited(pids: Iterable[int], size: int) -> Iterator[Limited]:
    """Let *pids* have *size* bytes together; the kernel kills one of them for more."""
    pids = tuple(pids)
    group = _group()
    try:
        if group:
            # Pages from before stay with the old group.
            limit = size - sum(map(_resident, pids))
            (group / _file(group)).write_text(str(limit))
            for pid in pids:
                (group / "cgroup.procs").write_text(str(pid))
        yield Limited(pids, group)
    finally:
        if group:
            _remove(group, pids)


def _group() -> Path | None:
    base = ROOT / "memory" if (ROOT / "memory").is_dir() else ROOT
    try:
        (base / NAME).mkdir(exist_ok=True)
        return base / NAME if (base / NAME / _file(base / NAME)).exists() else None
    except OSError:
        return None


def _file(group: Path) -> str:
    return "memory.limit_in_bytes" if group.parent.name == "memory" else "memory.max"


def _remove(group: Path, pids: Iterable[int]) -> None:
    for pid in pids:
        try:
            (group.parent / "cgroup.procs").write_text(str(pid))
        except OSError:
            continue
    try:
        group.rmdir()
    except OSError:
        for pid in map(int, (group / "cgroup.procs").read_text().split()):
            os.kill(pid, signal.SIGKILL)


def _resident(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
