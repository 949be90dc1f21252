"""What of the lab needs no cluster: who owns it, what is started, and that nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kube.super_nodes import INSTANCE_TYPE
from lab import __main__ as cli
from lab import (
    cluster,
    daemon,
    diagnostics,
    install,
    kwokctl,
    nodes,
    owner,
    processes,
    slots,
    teardown,
    workdir,
)
from lab.cloud import SECRET_ID, SECRET_KEY, fixture
from lab.errors import LabError
from lab.session import Lab
from lab.waiting import MOST, stretch, until
from settings.anycast_ip import NEED_LABEL

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


# Waiting


def test_until_gives_the_first_truthy_answer() -> None:
    answers = iter([None, 0, "yes"])
    assert until(lambda: next(answers), 5, "an answer", every=0) == "yes"


def test_until_names_what_it_waited_for_in_vain() -> None:
    with pytest.raises(LabError, match="waited 0 s without success: pigs to fly"):
        until(lambda: False, 0.01, "pigs to fly", every=0.001)


def test_a_deadline_is_later_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    stretched = []
    for load in (0.1, 6.0, 1000.0):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        stretched.append(stretch())
    assert stretched == [1.0, 3.0, MOST]


def test_a_check_may_end_a_wait() -> None:
    def give_up() -> None:
        raise LabError("no longer wanted")

    with pytest.raises(LabError, match="no longer wanted"):
        until(lambda: True, 5, "nothing", check=give_up)


# Places


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("", id="empty"),
        pytest.param("../up", id="a path"),
        pytest.param("Lab", id="a capital"),
        pytest.param("lab-", id="a hyphen at its end"),
        pytest.param("a" * 41, id="too long"),
        pytest.param("a.lock", id="a dot"),
    ],
)
def test_what_cannot_name_a_lab_is_refused(name: str) -> None:
    with pytest.raises(LabError, match="cannot name a lab"):
        workdir.directory(name)


def test_a_lab_has_one_owner_at_a_time() -> None:
    first = workdir.acquire("one")
    assert first is not None
    assert workdir.acquire("one") is None
    os.close(first)
    second = workdir.acquire("one")
    assert second is not None
    os.close(second)


def test_a_lock_whose_file_was_removed_protects_no_one() -> None:
    stale = workdir.acquire("one")
    assert stale is not None
    workdir.forget("one")
    fresh = workdir.acquire("one")
    assert fresh is not None
    assert workdir.acquire("one") is None
    os.close(stale)
    os.close(fresh)


# Slots


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


def test_a_port_in_use_is_passed_over() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        assert taken not in slots.free_ports(range(taken, taken + 20), 3)
        with pytest.raises(LabError, match=rf"only 0 of ports {taken} to {taken} are free, 1 are needed"):
            slots.free_ports(range(taken, taken + 1), 1)


# Processes


def test_a_process_is_found_by_its_mark_whoever_started_it(tmp_path: Path) -> None:
    start_and_leave = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', '{SLEEP}'])"
    marked_process(tmp_path, start_and_leave).wait()
    stranger = marked_process(tmp_path / "other")
    try:
        assert len(processes.marked(tmp_path)) == 1
        processes.kill_marked(tmp_path)
        assert processes.marked(tmp_path) == []
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_listeners_are_told_apart_by_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as ours, socket.create_server(("127.0.0.2", 0)) as other:
        found = processes.listeners([os.getpid()])
        assert {ours.getsockname(), other.getsockname()} <= found
        assert processes.listeners([os.getppid()]).isdisjoint({ours.getsockname(), other.getsockname()})


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


# Ownership


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


def test_down_asks_the_owner_to_end_its_lab() -> None:
    directory = workdir.directory("one")
    directory.mkdir(parents=True)
    lock = workdir.acquire("one")
    assert lock is not None
    holder = subprocess.Popen(
        [sys.executable, "-c", SLEEP], env=processes.marked_environment(directory), pass_fds=[lock]
    )
    os.close(lock)
    until(lambda: processes.has_mark(holder.pid, directory), 5, "the owner to start")
    workdir.write_state("one", workdir.State(pid=holder.pid, slot=0))
    assert teardown.down("one") is True
    assert holder.wait(timeout=5) == -signal.SIGTERM
    assert workdir.names() == []


def test_a_name_in_use_is_refused_with_the_way_out() -> None:
    lock = workdir.acquire("one")
    assert lock is not None
    with pytest.raises(
        LabError, match="lab 'one' is in use; choose another name, or: python -m lab down --name one"
    ):
        owner.start("one", nodes=1, kwok_nodes=1)
    os.close(lock)


class Bond:
    """A pipe to a Tie, and whether the Tie was told to keep its lab."""

    def __init__(self) -> None:
        hears, self.speak = os.pipe()
        self.kept = False
        self.tie = daemon.Caller(hears, self._keep)

    def _keep(self) -> None:
        self.kept = True


def test_a_lab_ends_when_its_caller_is_gone() -> None:
    bond = Bond()
    bond.tie.check()
    os.close(bond.speak)
    with pytest.raises(daemon.EndOfLab, match="the caller has ended"):
        bond.tie.check()
    assert not bond.kept


def test_a_lab_that_is_told_to_stay_outlives_its_caller() -> None:
    bond = Bond()
    os.write(bond.speak, owner.KEEP)
    os.close(bond.speak)
    bond.tie.check()
    bond.tie.check()
    assert bond.kept


def said_by(code: str) -> owner.Owner:
    listen, says = os.pipe()
    process = subprocess.Popen([sys.executable, "-c", code], stdout=says)
    os.close(says)
    process.wait()
    return owner.Owner(process, os.open(os.devnull, os.O_WRONLY), listen)


def test_the_caller_is_told_progress_until_the_lab_is_ready() -> None:
    told: list[str] = []
    words = [{"progress": "one"}, {"progress": "two"}, {"ready": True}]
    said_by(f"print({chr(10).join(map(json.dumps, words))!r})").await_ready(told.append)
    assert told == ["one", "two"]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        pytest.param(
            """print('{"failed": "etcd: disk full"}')""", "etcd: disk full", id="a failure in its own words"
        ),
        pytest.param("pass", "ended without a message", id="a crash"),
    ],
)
def test_a_lab_that_does_not_come_up_says_why(code: str, message: str) -> None:
    with pytest.raises(LabError, match=message):
        said_by(code).await_ready(lambda _text: None)


# The control plane


BINARIES = {name: Path("/bin") / name for name in cluster.BINARIES}
PORTS = kwokctl.Ports(1, 2, 3, 4, 5, 6)
AUDIT = {"audit-policy-file": "/policy", "audit-log-path": "/log"}


def test_every_component_gets_its_own_port_and_listens_on_loopback() -> None:
    options = kwokctl.configuration(BINARIES, slots.Slot(2), PORTS, AUDIT)["options"]
    assert options["bindAddress"] == "127.0.0.1"
    assert sorted(value for key, value in options.items() if key.endswith("Port")) == [1, 2, 3, 4, 5, 6]


def test_a_controller_manager_that_gave_up_is_started_again_once(tmp_path: Path) -> None:
    kwokctl_, pids = tmp_path / "kwokctl", tmp_path / "kwok" / "clusters" / "lab" / "pids"
    kwokctl_.write_text('#!/bin/sh\necho "$KWOK_WORKDIR $*"\n')
    kwokctl_.chmod(0o755)
    for directory in (pids, tmp_path / "logs"):
        directory.mkdir(parents=True)
    manager = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    (pids / "kube-controller-manager.pid").write_text(str(manager.pid))
    checks: list[bool] = []
    check = cluster.reviving(tmp_path, {"kwokctl": kwokctl_}, lambda: checks.append(True))
    log = tmp_path / "logs" / "kwokctl.log"

    check()
    assert not log.exists()
    manager.kill()
    until(lambda: check() or log.exists(), 10, "it to be started again")
    check()

    assert log.read_text() == f"{tmp_path}/kwok --name lab start cluster\n"
    assert len(checks) >= 3
    assert manager.stdin
    manager.stdin.close()
    manager.wait()


def test_the_api_server_tells_who_asked_for_what_and_guards_owners() -> None:
    configuration = kwokctl.configuration(BINARIES, slots.Slot(0), PORTS, AUDIT)
    patches = {patch["name"]: patch["extraArgs"] for patch in configuration["componentsPatches"]}
    told = {each["key"]: each["value"] for each in patches["kube-apiserver"]}
    assert AUDIT.items() <= told.items()
    assert told["enable-admission-plugins"] == "OwnerReferencesPermissionEnforcement"


def test_a_node_joins_as_an_instance_of_the_cloud_in_the_care_of_kwok() -> None:
    node = nodes.cloud_node("n1", "ins-1", {NEED_LABEL: "true"})
    assert node["metadata"]["name"] == node["metadata"]["labels"]["kubernetes.io/hostname"] == "n1"
    assert node["metadata"]["labels"][NEED_LABEL] == "true"
    assert node["metadata"]["labels"][INSTANCE_TYPE] == "kwok"
    assert node["spec"]["providerID"] == "qcloud:///100003/ins-1"
    assert "providerID" not in nodes.cloud_node("n1", "", {})["spec"]


def test_an_error_shows_the_end_of_the_log(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "etcd.log").write_text("one\ntwo\nthree\n")
    assert cluster.component_log(tmp_path, "etcd", 2) == "--- the end of etcd.log:\ntwo\nthree"
    assert cluster.component_log(tmp_path, "kwok") == "(kwok wrote no log)"


# The chart


@pytest.mark.parametrize(
    ("over", "both"),
    [
        pytest.param({}, {"a": {"b": 1, "c": [1, 2]}}, id="nothing over it"),
        pytest.param({"a": {"b": 2}}, {"a": {"b": 2, "c": [1, 2]}}, id="mappings merge"),
        pytest.param({"a": {"c": [3]}}, {"a": {"b": 1, "c": [3]}}, id="lists are replaced"),
        pytest.param({"a": None, "d": 4}, {"a": None, "d": 4}, id="null takes a value's place"),
    ],
)
def test_values_merge_as_helm_merges_them(over: dict[str, object], both: dict[str, object]) -> None:
    base = {"a": {"b": 1, "c": [1, 2]}}
    assert install.merged(base, over) == both
    assert base == {"a": {"b": 1, "c": [1, 2]}}


def test_a_container_that_is_not_ready_is_shown_with_its_reason_and_its_last_words(tmp_path: Path) -> None:
    logs = tmp_path / "pods" / "ns_a_u1" / "main"
    logs.mkdir(parents=True)
    for number, text in ((0, "old"), (9, "bad luck\nImportError: x"), (10, "")):
        (logs / f"{number}.log").write_text(text)
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 4s"}}
    statuses = [
        {"name": "main", "ready": False, "restartCount": 10, "state": waiting},
        {"name": "side", "ready": True, "restartCount": 0, "state": {"running": {}}},
    ]
    pod = {
        "metadata": {"namespace": "ns", "name": "a", "uid": "u1"},
        "status": {"containerStatuses": statuses},
    }
    assert diagnostics.describe([pod], tmp_path) == (
        "a/main is not ready: waiting: CrashLoopBackOff: back-off 4s, 10 restarts\n    bad luck\n    ImportError: x"
    )


# Its cloud


def cloudy(name: str) -> Lab:
    """A lab of which no more is there than the log of its cloud."""
    lab = Lab(name)
    lab.logs.mkdir(parents=True)
    (lab.logs / "cloud.log").write_text("the cloud is at http://127.0.0.1:7\nready\n")
    return lab


def test_a_lab_knows_its_cloud_and_says_how_to_have_one() -> None:
    assert cloudy("one").cloud.endpoint == "127.0.0.1:7"
    with pytest.raises(LabError, match=r"lab 'two' has no cloud: bring it up with running\(cloud=\{\}\)"):
        _ = Lab("two").cloud


def test_the_chart_is_told_of_a_labs_cloud_and_of_no_other() -> None:
    values = install.lab_values(cloudy("one"), b"ca")
    assert values["anycastIP"] == {"enabled": True, "clusterID": "cls-lab00000"}
    assert (values["cloud"]["endpoint"], values["cloud"]["scheme"]) == ("127.0.0.1:7", "http")
    assert (values["cloud"]["secretID"], values["cloud"]["secretKey"]) == (SECRET_ID, SECRET_KEY)
    assert {"anycastIP", "cloud"}.isdisjoint(install.lab_values(Lab("two"), b"ca"))


def test_a_knob_that_cannot_be_turned_is_named_before_anything_starts() -> None:
    with pytest.raises(LabError, match="colour"):
        owner.start("one", nodes=1, kwok_nodes=1, cloud={"colour": "red"})
    assert workdir.names() == []


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        pytest.param({}, True, id="nothing said"),
        pytest.param({"cloud": {"region": "ap-tokyo"}}, True, id="only where"),
        pytest.param({"cloud": None}, True, id="null"),
        pytest.param({"cloud": {"endpoint": "cloud.example.com"}}, False, id="another one"),
        pytest.param({"cloud": {"endpoint": ""}}, False, id="the real one"),
    ],
)
def test_a_cloud_comes_up_unless_the_values_name_another(values: dict[str, object], wanted: bool) -> None:
    assert fixture.is_wanted(values) is wanted


# The command line


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("a: [", "cannot be read", id="not YAML"),
        pytest.param("- 1", "holds a list; Helm values are a mapping", id="a list"),
    ],
)
def test_a_bad_values_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "v.yaml"
    path.write_text(text)
    with pytest.raises(LabError, match=message):
        cli.read_values(path)


def test_up_says_where_the_cloud_is(capsys: pytest.CaptureFixture[str]) -> None:
    cloudy("one")
    lock = workdir.acquire("one")
    assert lock is not None
    workdir.write_state("one", workdir.State(pid=1, slot=0, kept=True))
    assert cli.main(["up", "--name", "one"]) == 0
    assert "its cloud is at http://127.0.0.1:7\n" in capsys.readouterr().err
    os.close(lock)


def test_a_bad_name_is_an_error_of_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["down", "--name", "No Name"]) == 1
    assert capsys.readouterr().err.startswith("lab: 'No Name' cannot name a lab")
