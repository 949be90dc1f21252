"""The image, made of its Dockerfile without an engine, runs our three programs on a read-only root as nobody."""

from __future__ import annotations

import base64
import contextlib
import http.client
import os
import signal
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

import healthchecker
from lab.image import base
from lab.image.build import build
from lab.image.process import ROOT, Mount, Process, run, started
from lab.image.stage import Stage
from lab.waiting import until
from tests.server import CA, leaf, write_pair
from tests.test_beside import free_ports
from tests.test_layers import FLOORS
from webhook import anycast_ip, ip_reservation
from webhook.elasticity import PATH as ELASTICITY

BUDGET = 150e6
NOBODY = 65532
SECONDS = 60.0
NAME = "drawbridge-webhook.drawbridge.svc"


@pytest.fixture(scope="module")
def image() -> Stage:
    if missing := base.missing():
        pytest.skip(f"the image cannot be made: {missing}")
    return build(ROOT)


def contents(image: Stage) -> dict[str, os.stat_result]:
    """Everything in it, by its path."""
    return {
        f"/{path.relative_to(layer)}": path.lstat() for layer in image.layers for path in layer.rglob("*")
    }


def test_it_is_within_its_budget(image: Stage) -> None:
    """As engines count: the files of all layers."""
    size = sum(
        path.lstat().st_size for layer in image.layers for path in layer.rglob("*") if not path.is_dir()
    )

    print(f"{size / 1e6:.0f} MB")
    assert size < BUDGET


def test_it_has_nothing_to_build_or_to_break_in_with(image: Stage) -> None:
    programs = {
        Path(path).name
        for path, found in contents(image).items()
        if Path(path).parent.name in ("bin", "sbin") and not stat.S_ISDIR(found.st_mode)
    }

    assert programs == {"gunicorn", "python", "python3", "python3.11"}


def test_nobody_could_write_to_it_if_its_root_were_not_read_only(image: Stage) -> None:
    writable = {
        path
        for path, found in contents(image).items()
        if found.st_uid == NOBODY
        or found.st_gid == NOBODY
        or (found.st_mode & 0o002 and not stat.S_ISLNK(found.st_mode))
    }

    assert writable == {"/tmp", "/var/tmp", "/var/lock"}  # noqa: S108 - as Debian has it


def test_every_module_has_its_bytecode(image: Stage) -> None:
    paths = contents(image).keys()
    modules = [Path(path) for path in paths if path.endswith(".py") and not path.startswith("/etc/")]

    assert len(modules) > 500
    assert {
        str(path)
        for path in modules
        if not {str(path.parent / "__pycache__" / f"{path.stem}.cpython-311.pyc")} & paths
    } == set()


@dataclass(frozen=True)
class World:
    """What a pod of ours is given beside its image, and where it listens."""

    image: Stage
    directory: Path
    webhook: int
    health: int
    metrics: int

    @property
    def tmp(self) -> Path:
        return self.directory / "tmp"

    def process(self, *argv: str, **env: str) -> Process:
        user, group = self.image.ids
        return Process(
            argv or self.image.command,
            self.image.layers,
            {**self.image.env, "DRAWBRIDGE_BIND_HOST": "127.0.0.1", **env},
            directory=self.image.directory,
            user=(user, group),
            mounts={
                "/etc/drawbridge": Mount(self.directory / "given"),
                "/tmp": Mount(self.tmp, read_only=False),  # noqa: S108 - in the image
            },
            read_only=True,
        )

    def configured(self, *argv: str, **env: str) -> Process:
        files = {
            "DRAWBRIDGE_CONFIG": "/etc/drawbridge/config.yaml",
            "KUBECONFIG": "/etc/drawbridge/kubeconfig",
        }
        return self.process(*argv, **files, **env)


@pytest.fixture
def world(image: Stage, tmp_path: Path) -> World:
    given, ports = tmp_path / "given", free_ports(4)
    (given / "tls").mkdir(parents=True)
    write_pair(given / "tls", leaf(NAME))
    (given / "kubeconfig").write_text(yaml.safe_dump(kubeconfig(ports[3])))
    (given / "config.yaml").write_text(yaml.safe_dump(configuration(*ports[:3])))
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o1777)
    return World(image, tmp_path, *ports[:3])


def kubeconfig(port: int) -> Mapping[str, object]:
    """To an API server that is down."""
    named = {"cluster": {"server": f"http://127.0.0.1:{port}"}, "name": "down"}
    context = {"context": {"cluster": "down", "user": "nobody"}, "name": "down"}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [named],
        "contexts": [context],
        "users": [{"name": "nobody", "user": {"token": "none"}}],
        "current-context": "down",
    }


def configuration(webhook: int, health: int, metrics: int) -> Mapping[str, object]:
    return {
        "apiVersion": "drawbridge.io/v1",
        "kind": "DrawbridgeConfig",
        "webhook": {"port": webhook, "certDir": "/etc/drawbridge/tls"},
        "health": {"healthProbeBindAddress": f":{health}"},
        "metrics": {"bindAddress": f":{metrics}"},
    }


@contextmanager
def served(world: World, process: Process, port: int) -> Iterator[None]:
    """While *port* is listened to; then the program is asked to end, and must have written nothing but to /tmp."""
    log = world.directory / "log"
    with log.open("wb") as output, started(process, output=output) as running:

        def alive() -> None:
            assert running.poll() is None, log.read_text()

        until(lambda: get(port, "/") is not None, SECONDS, f"{process.argv} to answer on {port}", check=alive)
        yield
        running.send_signal(signal.SIGTERM)
        assert running.wait(SECONDS) == 0, log.read_text()
    assert "Read-only file system" not in log.read_text()
    assert "Permission denied" not in log.read_text()


def get(port: int, path: str) -> tuple[int, str] | None:
    """The answer, or None when nobody is there."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except OSError:
        return None
    finally:
        connection.close()


def test_no_part_of_python_lacks_a_library_of_the_system(world: World) -> None:
    told = (
        "import importlib, pathlib; names = [path.name.partition('.')[0]"
        " for path in pathlib.Path('/usr/lib/python3.11/lib-dynload').iterdir()];"
        " [importlib.import_module(name) for name in names]; print(len(names))"
    )
    code, printed = run(world.process("python", "-c", told), SECONDS)

    assert code == 0, printed
    assert int(printed) > 20


def test_every_module_of_the_product_can_be_imported(world: World) -> None:
    told = "; ".join(
        [
            "import importlib, pkgutil",
            f"packages = [importlib.import_module(name) for name in {sorted(FLOORS)}]",
            "names = [found.name for package in packages"
            " for found in pkgutil.walk_packages(package.__path__, f'{package.__name__}.')]",
            "[importlib.import_module(name) for name in names]",
            "print(len(names))",
        ]
    )
    code, printed = run(world.configured("python", "-W", "error", "-c", told), SECONDS)

    assert code == 0, printed
    assert int(printed) > 100


def test_a_process_in_it_does_not_outlive_the_one_that_started_it(world: World) -> None:
    mark = f"drawbridge-{world.health}"
    sleeper = world.process("python", "-c", "import signal; print('up', flush=True); signal.pause()", mark)
    with started(sleeper) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"up\n"
        assert commands(mark)
    until(lambda: not commands(mark), SECONDS, "the process to end")


def commands(mark: str) -> list[str]:
    """Of all living processes that were started with *mark* as their last argument."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(entry.read_text())
    return [each for each in found if each.endswith(f"{mark}\0")]


def test_the_webhook_server_is_ready_and_answers_every_feature(world: World) -> None:
    paths = [ip_reservation.PATH, anycast_ip.PATH, ELASTICITY]
    trust = base64.b64encode(CA.certificate).decode()
    told = {
        "DRAWBRIDGE_WEBHOOK_SERVICE_HOST": "127.0.0.1",
        "DRAWBRIDGE_WEBHOOK_SERVICE_PORT": str(world.webhook),
    }
    probe = world.process(
        "python", "-m", "webhook.probe", "--server", NAME, "--ca-base64", trust, *paths, **told
    )

    with served(world, world.configured(), world.health):
        until(
            lambda: get(world.health, "/readyz") == (200, "ok\n"), SECONDS, "the webhook server to be ready"
        )
        assert run(probe, SECONDS) == (0, "".join(f"ok {NAME}{path}\n" for path in paths))
    assert list(world.tmp.iterdir()) == []


def test_the_controllers_run_and_say_what_they_lack(world: World) -> None:
    in_a_pod = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
    code, printed = run(world.process("python", "-m", "controllers", **in_a_pod), SECONDS)

    assert code == 2
    assert "the controllers cannot start:\nno way to the API server by the pod's service account" in printed

    with served(
        world, world.configured("python", "-m", "controllers", POD_NAMESPACE="drawbridge"), world.health
    ):
        assert get(world.health, "/healthz") == (200, "ok\n")
    assert list(world.tmp.iterdir()) == []


def test_the_health_checker_answers_for_its_node(world: World) -> None:
    task = {
        healthchecker.NAMESPACE: "web",
        healthchecker.NODE: "node-1",
        healthchecker.INGRESS_DAEMONSET: "ingress",
        healthchecker.PORT: str(world.health),
    }
    with served(world, world.configured("python", "-m", "healthchecker", **task), world.health):
        answer = get(world.health, "/")
        assert answer is not None
        assert answer[0] == 503, "nobody has looked at the Deployment: the API server is down"
    assert list(world.tmp.iterdir()) == []
