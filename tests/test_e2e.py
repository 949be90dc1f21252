"""The end-to-end tests make and remove their cluster; here without Docker."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from lab.errors import LabError
from tests.charts import helm_needed, manifests
from tests.e2e import kind
from tests.e2e.cluster import FIRST

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
        self.ran: list[Sequence[str]] = []

    def run(self, *command: str, stdin: str | None = None) -> str:
        if self.broken and command[: len(self.broken)] == self.broken:
            raise LabError(f"`{' '.join(command)}` failed: no daemon")
        self.ran.append(command)
        return json.dumps([INSPECTED]) if command[:2] == ("docker", "inspect") else ""

    def commands(self) -> list[str]:
        return [" ".join(each) for each in self.ran]


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


@helm_needed
def test_the_chart_takes_its_values() -> None:
    text = manifests(json.dumps(kind.with_cert_manager("172.18.0.5:8300")))

    for part in (f'image: "{FIRST}"', "imagePullPolicy: Never", "kind: Certificate", "172.18.0.5:8300"):
        assert part in text, part
