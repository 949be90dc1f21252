"""The image, built without an engine, runs our programs on a read-only root as an unprivileged user."""

from __future__ import annotations

import base64
import os
import stat
from pathlib import Path

import pytest

import healthchecker
from lab.image.process import run
from lab.image.stage import Stage
from tests.cluster.image import HEALTH, NAME, SECONDS, WEBHOOK, World, await_ready, get, served, world
from tests.server import CA
from tests.test_layers import FLOORS
from webhook import anycast_ip, ingress_daemonset, ip_reservation
from webhook.elasticity import PATH as ELASTICITY

BUDGET = 150e6
USER = 65532


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


def test_it_has_no_programs_but_its_own(image: Stage) -> None:
    programs = {
        Path(path).name
        for path, found in contents(image).items()
        if Path(path).parent.name in ("bin", "sbin") and not stat.S_ISDIR(found.st_mode)
    }

    assert programs == {"gunicorn", "python", "python3", "python3.11"}


def test_its_user_could_write_nothing_on_a_root_that_is_not_read_only(image: Stage) -> None:
    writable = {
        path
        for path, found in contents(image).items()
        if found.st_uid == USER
        or found.st_gid == USER
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


@pytest.fixture(name="world")
def _world(image: Stage, tmp_path: Path, address: str) -> World:
    return world(image, tmp_path, address)


def test_every_module_of_the_product_can_be_imported(world: World) -> None:
    code = "; ".join(
        [
            "import importlib, pkgutil",
            f"packages = [importlib.import_module(name) for name in {sorted(FLOORS)}]",
            "names = [found.name for package in packages"
            " for found in pkgutil.walk_packages(package.__path__, f'{package.__name__}.')]",
            "[importlib.import_module(name) for name in names]",
            "print(len(names))",
        ]
    )
    exit_code, printed = run(world.configured("python", "-W", "error", "-c", code), SECONDS)

    assert exit_code == 0, printed
    assert int(printed) > 100


def test_the_webhook_server_is_ready_and_answers_every_feature(world: World) -> None:
    paths = [ip_reservation.PATH, anycast_ip.PATH, ELASTICITY, *ingress_daemonset.PATHS]
    trust = base64.b64encode(CA.certificate).decode()
    service = {
        "DRAWBRIDGE_WEBHOOK_SERVICE_HOST": world.address,
        "DRAWBRIDGE_WEBHOOK_SERVICE_PORT": str(WEBHOOK),
    }
    probe = world.process(
        "python", "-m", "webhook.smoke_check", "--server", NAME, "--ca-base64", trust, *paths, **service
    )

    with served(world, world.configured()):
        await_ready(world)
        assert run(probe, SECONDS) == (0, "".join(f"ok {NAME}{path}\n" for path in paths))
    assert list(world.tmp.iterdir()) == []


def test_the_controllers_run_and_report_what_they_lack(world: World) -> None:
    in_a_pod = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
    exit_code, printed = run(world.process("python", "-m", "controllers", **in_a_pod), SECONDS)

    assert exit_code == 2
    assert (
        "the controllers cannot start:\ncannot connect to the API server by the pod's ServiceAccount"
        in printed
    )

    with served(world, world.configured("python", "-m", "controllers", POD_NAMESPACE="drawbridge")):
        assert get(world, path="/healthz") == (200, "ok\n")
    assert list(world.tmp.iterdir()) == []


def test_the_health_checker_answers_for_its_node(world: World) -> None:
    task = {
        healthchecker.NAMESPACE: "web",
        healthchecker.NODE: "node-1",
        healthchecker.INGRESS_DAEMONSET: "ingress",
        healthchecker.PORT: str(HEALTH),
    }
    with served(world, world.configured("python", "-m", "healthchecker", **task)):
        answer = get(world)
        assert answer is not None
        assert answer[0] == 503, "the API server is down"
    assert list(world.tmp.iterdir()) == []
