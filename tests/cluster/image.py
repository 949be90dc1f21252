"""A process of the image as a kubelet starts it: unprivileged, on a read-only root, with the mounts of a pod."""

from __future__ import annotations

import http.client
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from lab.image.process import Mount, Process, started
from lab.image.stage import Stage
from lab.waiting import until
from tests.server import leaf, write_pair

SECONDS = 60.0
WEBHOOK, HEALTH = 9443, 8081
"""The ports of the programs."""
NAME = "drawbridge-webhook.drawbridge.svc"
CONFIG = "/etc/drawbridge/config.yaml"
NOWHERE = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"cluster": {"server": "http://127.0.0.1:1"}, "name": "down"}],
    "contexts": [{"context": {"cluster": "down", "user": "none"}, "name": "down"}],
    "users": [{"name": "none", "user": {"token": "none"}}],
    "current-context": "down",
}
"""A kubeconfig that leads to an API server which is down."""


@dataclass(frozen=True)
class World:
    """What a pod of ours is given beside its image, and its address, which no other pod has."""

    image: Stage
    directory: Path
    address: str

    @property
    def tmp(self) -> Path:
        return self.directory / "tmp"

    def process(self, *argv: str, **env: str) -> Process:
        return Process(
            argv or self.image.command,
            self.image.layers,
            {**self.image.env, "DRAWBRIDGE_BIND_HOST": self.address, **env},
            directory=self.image.directory,
            user=self.image.ids,
            mounts={
                "/etc/drawbridge": Mount(self.directory / "given"),
                "/tmp": Mount(self.tmp, read_only=False),  # noqa: S108 - in the image
            },
            read_only=True,
        )

    def configured(self, *argv: str, **env: str) -> Process:
        """With an API server that is down."""
        return self.process(*argv, DRAWBRIDGE_CONFIG=CONFIG, KUBECONFIG="/etc/drawbridge/kubeconfig", **env)


def world(image: Stage, directory: Path, address: str, **settings: object) -> World:
    """In the empty *directory*; *settings* are those of the configuration."""
    given = directory / "given"
    (given / "tls").mkdir(parents=True)
    write_pair(given / "tls", leaf(NAME))
    (given / "kubeconfig").write_text(yaml.safe_dump(NOWHERE))
    (given / "config.yaml").write_text(yaml.safe_dump(configuration(**settings)))
    (directory / "tmp").mkdir()
    (directory / "tmp").chmod(0o1777)
    return World(image, directory, address)


def configuration(**settings: object) -> Mapping[str, object]:
    webhook = {"port": WEBHOOK, "certDir": "/etc/drawbridge/tls"}
    health = {"healthProbeBindAddress": f":{HEALTH}"}
    head = {"apiVersion": "drawbridge.io/v1", "kind": "DrawbridgeConfig"}
    return {**head, "webhook": webhook, "health": health, **settings}


@contextmanager
def served(world: World, process: Process, port: int = HEALTH) -> Iterator[None]:
    """While it listens to *port*; then the program is asked to end, and must have written nothing but to /tmp."""
    log = world.directory / f"log-{port}"
    with log.open("wb") as output, started(process, output=output) as running:

        def alive() -> None:
            assert running.poll() is None, log.read_text()

        until(
            lambda: get(world, port) is not None, SECONDS, f"{process.argv} to answer on {port}", check=alive
        )
        yield
        running.send_signal(signal.SIGTERM)
        assert running.wait(SECONDS) == 0, log.read_text()
    assert "Read-only file system" not in log.read_text()
    assert "Permission denied" not in log.read_text()


def await_ready(world: World) -> None:
    ready = (200, "ok\n")
    until(lambda: get(world, path="/readyz") == ready, SECONDS, "the webhook server to be ready")


def get(world: World, port: int = HEALTH, path: str = "/") -> tuple[int, str] | None:
    """The answer, or None when no server listens."""
    connection = http.client.HTTPConnection(world.address, port, timeout=SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except OSError:
        return None
    finally:
        connection.close()
