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

from lab import (
    install,
    owner,
    processes,
    slots,
    teardown,
    workdir,
)
from lab.errors import LabError
from lab.session import Lab
from lab.waiting import MOST, at_most, stretch, until

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


def test_a_deadline_is_later_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    stretched = []
    for load in (0.1, 6.0, 1000.0):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        stretched.append(stretch())
    assert stretched == [1.0, 3.0, MOST]


def test_a_lab_has_one_owner_at_a_time() -> None:
    first = workdir.acquire("one")
    assert first is not None
    assert workdir.acquire("one") is None
    os.close(first)
    second = workdir.acquire("one")
    assert second is not None
    os.close(second)


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


def test_a_child_dies_with_its_parent(tmp_path: Path) -> None:
    parent = marked_process(
        tmp_path,
        "import subprocess, sys, time\n"
        "from lab import processes\n"
        f"subprocess.Popen([sys.executable, '-c', '{SLEEP}'], preexec_fn=processes.die_with_parent)\n"
        "time.sleep(60)\n",
    )
    try:
        until(lambda: len(processes.marked(tmp_path)) == 2, 5, "both to run")
        parent.kill()
        parent.wait()
        until(lambda: not processes.marked(tmp_path), 5, "the child to die")
    finally:
        processes.kill_marked(tmp_path)


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


def test_a_name_in_use_is_refused_with_the_way_out() -> None:
    lock = workdir.acquire("one")
    assert lock is not None
    with pytest.raises(
        LabError, match="lab 'one' is in use; choose another name, or: python -m lab down --name one"
    ):
        owner.start("one", nodes=1, kwok_nodes=1)
    os.close(lock)


def test_values_merge_as_helm_merges_them() -> None:
    base = {"a": {"b": 1, "c": [1, 2]}, "d": 3}

    assert install.merged(base, {"a": {"c": [3]}, "d": None}) == {"a": {"b": 1, "c": [3]}, "d": None}
    assert base == {"a": {"b": 1, "c": [1, 2]}, "d": 3}


def test_looking_at_a_process_that_ends_leaves_no_directory_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it is a warning, which is an error, in a test that has nothing to do with it."""

    def gone(_path: object) -> str:
        raise FileNotFoundError

    monkeypatch.setattr("os.readlink", gone)
    opened: list[Iterator[os.DirEntry[str]]] = []
    scan = os.scandir
    monkeypatch.setattr("os.scandir", lambda path: opened.append(scan(path)) or opened[-1])

    assert processes.listeners([os.getpid()]) == set()
    assert [next(each, None) for each in opened] == [None]


def test_kubectl_remembers_the_kinds_of_each_lab_apart() -> None:
    one, other = (Path(Lab(name).environment["KUBECACHEDIR"]) for name in ("one", "other"))

    assert one != other
    assert one.is_relative_to(Lab("one").directory)


def test_kubectl_has_more_time_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (6.0, 0.0, 0.0))

    assert at_most(20) == "--timeout=60s"
