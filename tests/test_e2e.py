"""How the end-to-end tests make their cluster, as far as that can be seen without Docker."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from lab.errors import LabError
from tests.charts import helm_needed, manifests
from tests.e2e import kind
from tests.pages import ROOT

INSPECTED = {
    "NetworkSettings": {
        "Networks": {"kind": {"IPAddress": "172.18.0.5"}},
        "Ports": {"8300/tcp": [{"HostIp": "127.0.0.1", "HostPort": "49153"}]},
    }
}


class Machine:
    """Takes every command, except those that begin with *broken*."""

    def __init__(self, *broken: str) -> None:
        self.broken = broken
        self.told: list[Sequence[str]] = []

    def run(self, *command: str, stdin: str | None = None) -> str:
        if self.broken and command[: len(self.broken)] == self.broken:
            raise LabError(f"`{' '.join(command)}` failed: no daemon")
        self.told.append(command)
        return json.dumps([INSPECTED]) if command[:2] == ("docker", "inspect") else ""

    def commands(self) -> list[str]:
        return [" ".join(each) for each in self.told]


@pytest.mark.parametrize(
    ("programs", "broken", "why"),
    [
        pytest.param(("docker", "kind"), (), "", id="all is there"),
        pytest.param(("docker",), (), "not on the PATH: kind", id="no kind"),
        pytest.param((), (), "not on the PATH: docker, kind", id="neither"),
        pytest.param(
            ("docker", "kind"), ("docker", "info"), "a Docker daemon", id="a client without a daemon"
        ),
    ],
)
def test_it_is_said_what_is_missing(programs: tuple[str, ...], broken: tuple[str, ...], why: str) -> None:
    found = kind.missing(lambda program: program in programs, Machine(*broken).run)

    assert bool(found) == bool(why)
    assert why in found


def test_the_cluster_has_nodes_to_update_one_after_the_other() -> None:
    configuration = kind.configuration()

    assert configuration.keys() == {"kind", "apiVersion", "nodes"}
    assert (configuration["kind"], configuration["apiVersion"]) == ("Cluster", "kind.x-k8s.io/v1alpha4")
    assert [node["role"] for node in configuration["nodes"]] == ["control-plane", "worker", "worker"]


def test_the_image_is_built_before_the_nodes_are_given_it(tmp_path: Path) -> None:
    machine = Machine()

    kind.create(machine.run, tmp_path / "kubeconfig", {})

    build, create, load = machine.commands()
    assert build == f"docker build --tag {kind.FIRST} --tag {kind.SECOND} {ROOT}"
    assert create.startswith(f"kind create cluster --name {kind.NAME} --kubeconfig {tmp_path}/kubeconfig")
    assert load == f"kind load docker-image {kind.FIRST} {kind.SECOND} --name {kind.NAME}"


def test_another_kubernetes_and_another_base_can_be_asked_for(tmp_path: Path) -> None:
    machine = Machine()

    kind.create(machine.run, tmp_path, {"KIND_NODE_IMAGE": "node:v1", "BASE": "mirror/debian:12"})

    assert "--build-arg BASE=mirror/debian:12" in machine.commands()[0]
    assert "--image node:v1" in machine.commands()[1]


def test_nodes_and_tests_reach_the_same_cloud() -> None:
    machine = Machine()

    assert kind.start_cloud(machine.run) == ("172.18.0.5:8300", "127.0.0.1:49153")
    assert "--network kind" in machine.commands()[0]
    assert machine.commands()[0].endswith(f"{kind.FIRST} python -m lab.cloud --host 0.0.0.0 --port 8300")


@pytest.mark.parametrize(
    "broken",
    [("docker", "build"), ("kind", "create"), ("docker", "run")],
    ids=lambda broken: " ".join(broken),
)
def test_nothing_is_left_when_it_does_not_come_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: tuple[str, ...]
) -> None:
    machine = Machine(*broken)
    monkeypatch.setattr(kind, "run", machine.run)

    with pytest.raises(LabError, match="no daemon"), kind.running(tmp_path):
        pass

    removal = [f"docker rm --force --volumes {kind.NAME}-cloud", f"kind delete cluster --name {kind.NAME}"]
    assert machine.commands()[:2] == removal
    assert machine.commands()[-2:] == removal
    assert len(machine.commands()) >= 4


def test_what_a_command_says_when_it_fails_is_told() -> None:
    with pytest.raises(LabError, match="out of space"):
        kind.run("sh", "-c", "echo out of space >&2; exit 3")


def test_cert_manager_is_the_pinned_one_unless_another_is_named() -> None:
    assert kind.cert_manager({"CERT_MANAGER_MANIFEST": "mine.yaml"}) == "mine.yaml"
    assert "/v1.11.5/cert-manager.yaml" in kind.cert_manager({})


@helm_needed
def test_the_chart_takes_its_values() -> None:
    text = manifests(json.dumps(kind.values("172.18.0.5:8300")))

    for part in (f'image: "{kind.FIRST}"', "imagePullPolicy: Never", "kind: Certificate", "172.18.0.5:8300"):
        assert part in text, part


def test_only_make_e2e_runs_them() -> None:
    makefile = (ROOT / "Makefile").read_text()

    assert "not cluster and not chaos and not e2e" in makefile
    assert "-m pytest -q -m e2e" in makefile
