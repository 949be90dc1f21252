"""What of the lab needs no cluster: who owns it, what is started, and that nothing is left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.lab import (
    processes,
    slots,
    teardown,
    workdir,
)
from dev.lab.node import images

SLEEP = "import time; time.sleep(60)"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return workdir.home()


@pytest.fixture
def slot_holders() -> Iterator[list[socket.socket]]:
    holders: list[socket.socket] = []
    yield holders
    for holder in holders:
        holder.close()


def marked_process(directory: Path, code: str = SLEEP) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code], env=processes.marked_environment(directory))


def test_two_labs_never_hold_the_same_slot(slot_holders: list[socket.socket]) -> None:
    prefix = f"test-{os.getpid()}"
    first, holder = slots.claim(prefix)
    second, other = slots.claim(prefix)
    slot_holders += [holder, other]
    assert first != second
    holder.close()
    third, again = slots.claim(prefix)
    slot_holders.append(again)
    assert third == first


def test_no_two_slots_share_an_address_or_a_port() -> None:
    every = [slots.Slot(number) for number in range(slots.COUNT)]
    ranges = [r for slot in every for r in (slot.service_range, slot.pod_range)]
    assert len(set(ranges)) == 2 * slots.COUNT
    assert len({port for slot in every for port in slot.ports}) == slots.COUNT * slots.PORTS_EACH
    assert max(slot.ports[-1] for slot in every) < 32768


def test_a_marked_process_is_found_without_its_parent(tmp_path: Path) -> None:
    start_and_leave = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', '{SLEEP}'])"
    marked_process(tmp_path, start_and_leave).wait()
    other = marked_process(tmp_path / "other")
    try:
        assert len(processes.marked(tmp_path)) == 1
        processes.kill_marked(tmp_path)
        assert processes.marked(tmp_path) == []
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_what_a_killed_owner_left_behind_is_swept() -> None:
    directory = workdir.directory("lost")
    directory.mkdir(parents=True)
    orphan = marked_process(directory)
    assert teardown.sweep() == ["lost"]
    assert orphan.wait(timeout=5) == -signal.SIGKILL
    assert workdir.names() == []


def test_a_lab_with_a_living_owner_is_not_swept() -> None:
    workdir.directory("alive").mkdir(parents=True)
    lock = workdir.acquire("alive")
    assert lock is not None
    assert teardown.sweep() == []
    assert workdir.directory("alive").exists()
    os.close(lock)


def test_the_archive_of_an_image_comes_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is renamed in its file system, and not copied: the next build takes what is there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    written: list[Path] = []

    def push(_verb: str, *words: str) -> None:
        written.append(Path(words[-1].split(":")[1]))
        written[0].write_text("whole")

    images.home().mkdir(parents=True)
    (tmp_path / "settings").mkdir()
    archive = images._archive(push, tmp_path / "settings", "localhost/a:1", "0" * 64)
    assert (archive.read_text(), written) == ("whole", [archive.with_name("making")])
