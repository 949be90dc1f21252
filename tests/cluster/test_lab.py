"""A lab is a real and closed cluster, ready when it is said to be, and gone when it is no longer wanted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dev.lab import processes, teardown, workdir
from dev.lab.cloud import fixture
from dev.lab.cloud.remote import Remote
from dev.lab.errors import LabError
from dev.lab.owner import START_SECONDS
from dev.lab.session import Lab
from dev.lab.waiting import stretch, until

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parent.parent.parent
SECONDS = 60
"""For what is awaited: most of it takes one."""


@contextmanager
def started(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Python with these arguments, killed at the end if it still runs.

    It receives SIGINT also where these tests run in the background of a shell, which has it ignored.
    """
    command = [sys.executable, *arguments]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_accept_interrupts,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _accept_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def finish(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=2 * START_SECONDS * stretch())
    assert process.returncode == 0, err
    return out


def run(*arguments: str) -> str:
    with started(*arguments) as process:
        return finish(process)


def assert_gone(name: str) -> None:
    directory = workdir.directory(name)
    until(lambda: not processes.marked(directory), SECONDS, f"the processes of {name} to end")
    until(lambda: name not in workdir.names(), SECONDS, f"the directory of {name} to go")


def companions(name: str) -> set[str]:
    """Of a lab's kubelet and balancer, those that run."""
    pids = processes.marked(workdir.directory(name))
    return {"dev.lab.kubelet", "dev.lab.services"} & {*map(processes.name_of, pids)}


@pytest.fixture
def names() -> Iterator[list[str]]:
    """Names of labs that are to be gone after the test, however it ends."""
    used: list[str] = []
    yield used
    for name in used:
        teardown.down(name)


def test_all_listens_on_loopback_only(lab_v3: Lab) -> None:
    listing = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True, check=True).stdout.splitlines()
    ours = [f"pid={pid}," for pid in processes.marked(lab_v3.directory)]
    addresses = [line.split()[3] for line in listing if any(pid in line for pid in ours)]
    assert len(addresses) >= 6
    assert [address for address in addresses if not address.startswith("127.")] == []


def reservation(version: str, *cidrs: str) -> str:
    head = {"apiVersion": version, "kind": "IPReservation", "metadata": {"generateName": "r-"}}
    return json.dumps({**head, "spec": {"reservedCIDRs": cidrs}})


@pytest.mark.parametrize(
    ("cidrs", "in_v3"),
    [
        pytest.param(("10.0.0.1/32", "fd00::1/128"), True, id="canonical"),
        pytest.param(("10.0.0.1",), False, id="a bare address"),
        pytest.param(("10.0.0.1/32", "10.0.0.1/32"), False, id="twice the same"),
        pytest.param(("10.0.0.1/33",), False, id="no CIDR at all"),
    ],
)
def test_ip_reservations_are_served_as_calico_serves_them(
    bare_lab: Lab, cidrs: tuple[str, ...], in_v3: bool
) -> None:
    create = ("create", "--filename", "-")
    native = bare_lab.kubectl(*create, stdin=reservation("projectcalico.org/v3", *cidrs), check=False)
    assert (native.returncode == 0) is in_v3, native.stderr
    stored = bare_lab.kubectl(*create, stdin=reservation("crd.projectcalico.org/v1", *cidrs), check=False)
    assert stored.returncode == 0, stored.stderr


HOLD_A_LAB = """
import sys, time
from dev.lab.bootstrap import running
with running(sys.argv[1], chart=False, calico=None, nodes=1, kwok_nodes=0, cloud={"quota_total": 7}) as lab:
    print("up, with a cloud at", lab.cloud.endpoint, flush=True)
    time.sleep(600)
"""


def test_a_lab_and_its_cloud_go_with_their_caller(names: list[str]) -> None:
    names.append("caller")
    with started("-c", HOLD_A_LAB, names[0]) as caller:
        assert caller.stdout is not None
        said, cloud = caller.stdout.readline().rsplit(maxsplit=1)
        assert said == "up, with a cloud at"
        assert Lab(names[0]).cloud == Remote(cloud)
        assert Remote(cloud).knobs()["quota_total"] == 7
        assert len(processes.marked(workdir.directory(names[0]))) > 6
        caller.kill()
        caller.communicate()
    assert_gone(names[0])
    with pytest.raises(LabError, match="does not answer"):
        Remote(cloud).state()


def test_labs_left_running_stay_apart_and_go_when_told_or_swept(names: list[str]) -> None:
    names += ["both-a", "both-b"]
    up = ("-m", "dev.lab", "up", "--bare", "--nodes", "1", "--name")
    with started(*up, names[0]) as one, started(*up, names[1]) as other:
        lasts = [finish(each).splitlines()[-1] for each in (one, other)]
    assert lasts == [f"export KUBECONFIG={workdir.directory(name)}/kubeconfig" for name in names]
    first, second = map(Lab, names)
    assert first.slot != second.slot
    assert fixture.find(first.logs) is None
    first.kubectl("create", "namespace", "only-here")
    assert second.kubectl("get", "namespace", "only-here", check=False).returncode == 1
    listed = run("-m", "dev.lab", "list")
    assert all(f"{name}\tup\t" in listed for name in names)

    run("-m", "dev.lab", "down", "--name", names[0])
    assert_gone(names[0])
    assert second.kubectl("get", "namespaces").returncode == 0

    state = workdir.read_state(names[1])
    assert state is not None
    processes.send(state.pid, signal.SIGKILL)
    until(lambda: not companions(names[1]), SECONDS, "the kubelet and the balancer to end with their owner")
    until(lambda: names[1] not in run("-m", "dev.lab", "list"), SECONDS, "the killed lab to be swept")
    assert_gone(names[1])


def test_up_that_is_interrupted_on_its_way_leaves_nothing(names: list[str]) -> None:
    names.append("halfway")
    with started("-m", "dev.lab", "up", "--bare", "--name", "halfway") as start:
        directory = workdir.directory("halfway")
        until(lambda: len(processes.marked(directory)) > 4, SECONDS, "the control plane to be on its way")
        start.send_signal(signal.SIGINT)
        out, err = start.communicate(timeout=SECONDS * stretch())
    assert start.returncode == 130, err
    assert out == ""
    assert_gone("halfway")
