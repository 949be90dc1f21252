"""Real nodes leave nothing on the machine, and say what they lack; here without one."""

from __future__ import annotations

import configparser
import json
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import NamedTuple

import pytest

from lab import workdir
from lab.errors import LabError
from lab.node import images, machine, network, requirements, settings, world
from tests.e2e import __main__ as e2e
from tests.e2e import kind


class Program(NamedTuple):
    """A process that was started, as far as the node asks."""

    pid: int
    args: str


def test_without_kind_and_what_real_nodes_need_it_says_so_and_ends_with_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kind, "here", lambda: "no docker")
    monkeypatch.setattr(requirements, "missing", lambda: "no root")

    assert e2e.main() == 3
    assert capsys.readouterr().err == "no end-to-end tests here: no docker; no root\n"


def test_a_user_who_is_not_root_has_no_real_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)

    assert requirements.missing() == "real nodes need root"


def test_missing_programs_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda program: None if program == "debootstrap" else program)

    assert requirements.missing() == "real nodes need programs that are not on the PATH: debootstrap"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(world, "CGROUPS", tmp_path / "cgroups")
    monkeypatch.setattr(world, "missing", lambda: "")
    monkeypatch.setattr(world, "over_usr", lambda: ["true"])
    return tmp_path


def test_a_world_removes_what_a_killed_one_left(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = home / "cgroups" / "cpu" / world.NAME / "node-a" / "kubepods"
    others = home / "cgroups" / "cpu" / "others"
    for each in (left, others, world.directory() / "logs"):
        each.mkdir(parents=True)
    monkeypatch.setattr(world, "_enter", lambda arguments: len(list(world.directory().parent.glob("*nodes"))))

    assert world.run(["true"]) == 0
    assert [each.name for each in (home / "cgroups" / "cpu").iterdir()] == ["others"]


@pytest.mark.parametrize(("file", "found"), [("cgroup.controllers", [""]), ("cpu/tasks", ["cpu"])])
def test_cgroups_are_found_in_both_versions(home: Path, file: str, found: list[str]) -> None:
    (world.CGROUPS / file).parent.mkdir(parents=True)
    (world.CGROUPS / file).touch()

    assert world.hierarchies() == [world.CGROUPS / each for each in found]


def test_one_world_at_a_time_runs_on_a_machine(home: Path) -> None:
    assert workdir.acquire(world.NAME) is not None

    with pytest.raises(LabError, match="run on this machine already"):
        world.run(["true"])


def test_addresses_of_nodes_pods_and_services_do_not_overlap() -> None:

    services, pods = ip_network(network.NETWORK.service_range), ip_network(network.POD_RANGE)

    assert not services.overlaps(pods)
    assert ip_address(network.NETWORK.kubernetes_address) == services[1]
    assert ip_network(network.pods_of(1)).subnet_of(pods)
    assert len({network.CONTROL_PLANE, network.address_of(0), network.address_of(1)}) == 3


def test_the_kubelet_changes_no_sysctl_that_the_whole_machine_has() -> None:
    arguments = settings.kube_proxy("node-a", Path("kubeconfig"))

    assert arguments[arguments.index("--conntrack-max-per-core") + 1] == "0"
    assert settings.kubelet(0, "/nodes/node-a")["cgroupRoot"] == "/nodes/node-a"
    assert settings.PAUSE in settings.CONTAINERD


def test_calico_is_called_for_networks_and_for_addresses() -> None:
    [plugin] = json.loads(settings.cni("node-a", Path("kubeconfig")))["plugins"]

    assert (plugin["type"], plugin["ipam"]["type"], plugin["nodename"]) == ("calico", "calico-ipam", "node-a")


def test_a_run_of_a_build_reaches_registries_as_the_machine_does(tmp_path: Path) -> None:
    mounts = [each for each in images.mounts(tmp_path) if each != "--volume"]
    pip = configparser.ConfigParser()
    pip.read(tmp_path / "pip.conf")

    assert all(each.endswith(":ro") for each in mounts)
    assert f"{tmp_path / 'pip.conf'}:{images.PIP}:ro" in mounts
    trusted = pip.get("global", "cert", fallback="")
    assert trusted == (images.AUTHORITIES if any(images.AUTHORITIES in each for each in mounts) else trusted)


def test_a_node_starts_its_kubelet_again_when_it_was_killed_and_ends_with_it_otherwise(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    containerd, *kubelets = (
        Program(pid, name) for pid, name in ((1, "containerd"), (2, "kubelet"), (3, "kubelet"))
    )
    orphan, killed, failed = (9, 0), (2, 9), (3, 1 << 8)
    statuses = iter([orphan, killed, failed])
    monkeypatch.setattr("os.wait", lambda: next(statuses))
    starting = iter(kubelets)

    machine._await_end([containerd], lambda: next(starting))

    assert next(starting, None) is None
    assert capsys.readouterr().out == "kubelet ended with 1\n"
