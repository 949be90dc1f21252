"""A program imports what it uses: each library is memory of every replica, and time before it is ready."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests import cli, kubeconfigs
from tests.misbehaving_server import serving
from tests.server import ROOT

IN_A_POD = """
import gc, pathlib, runpy, sys
from kube import connection

connection.MOUNTED = pathlib.Path(sys.argv[1])
"""
CONTROLLERS = """
import features
from controllers.__main__ import Client, SettingsFile, config_path

Client.from_environment()
features.controllers(lambda file=SettingsFile(config_path()): file.current)
print(*sys.modules)
"""
ARBITER_AND_WORKER = """
configuration = runpy.run_path("gunicorn.conf.py")
configuration["pre_fork"](None, None)
arbiter, frozen = {*sys.modules}, gc.get_freeze_count()
import wsgi

print(*arbiter)
print(*{*sys.modules} - arbiter)
print(frozen)
"""
COMMAND = """
import atexit, sys
from cli.app import main

atexit.register(lambda: print(*sys.modules, file=sys.stderr))
main()
"""
NEEDLESS = {
    "asyncio",
    "cel_expr_python",
    "cloud",
    "dashboard",
    "flask",
    "jsonpatch",
    "prometheus_client",
    "structlog",
    "webhook",
    "werkzeug",
}
FEATURES: dict[str, dict[str, Any]] = {
    "ip_reservation": {"ipReservation": {"enabled": True}},
    "anycast_ip": {"anycastIP": {"enabled": True, "clusterID": "cls-1"}},
    "elasticity": {"elasticity": {"enabled": True}},
    "ingress_daemonset": {"ingressDaemonSet": {"enabled": True}},
    "certificates": {"certs": {"mode": "self-managed"}},
}


def lines(directory: Path, code: str, **config: Any) -> list[list[str]]:
    """What *code* prints in a pod with this configuration, as words."""
    (directory / "token").write_text("t")
    (directory / "config.yaml").write_text(
        json.dumps({"apiVersion": "drawbridge.io/v1", "kind": "DrawbridgeConfig", **config})
    )
    given = {"DRAWBRIDGE_CONFIG": str(directory / "config.yaml"), "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-c", IN_A_POD + code, str(directory)],
        cwd=ROOT,
        env={**os.environ, **given},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.splitlines()]


def packages(modules: Iterable[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


@pytest.mark.parametrize("feature", FEATURES)
def test_the_controllers_import_no_feature_that_is_off(tmp_path: Path, feature: str) -> None:
    [modules] = lines(tmp_path, CONTROLLERS, **{"ipReservation": {"enabled": False}, **FEATURES[feature]})

    imported = {
        name.split(".")[1] for name in modules if name.startswith("controllers.") and name.count(".") > 1
    }
    assert imported == {feature}
    assert packages(modules) >= {"pydantic", "urllib3"}
    assert packages(modules).isdisjoint({"kubernetes", "flask", "gunicorn"})
    assert ("tencentcloud" in packages(modules)) == (feature == "anycast_ip")


def test_the_webhook_server_shares_all_modules_with_the_process_that_forks_it(tmp_path: Path) -> None:
    """A module that only the worker imports is private memory; so is a page that the garbage collector writes to."""
    arbiter, worker, frozen = lines(tmp_path, ARBITER_AND_WORKER, webhook={"certDir": str(tmp_path)})

    assert worker == ["wsgi"]
    assert int(frozen[0]) > 10_000
    assert {"flask", "urllib3"} <= packages(arbiter)
    assert packages(arbiter).isdisjoint({"kubernetes", "controllers", "cloud", "tencentcloud"})


@pytest.mark.parametrize("command", ["status", "elasticity list"])
def test_a_command_imports_nothing_that_only_servers_need(tmp_path: Path, command: str) -> None:
    """Some of these take a tenth of a second of every call; `status` reads all features."""
    api = cli.installed("anycastIP", "elasticity", "ingressDaemonSet")
    with serving(lambda asked: cli.answered(asked) or api.handle(asked)) as server:
        kubeconfigs.written(tmp_path / "config", server.url, user={"token": "x"})
        called = subprocess.run(
            [sys.executable, "-c", COMMAND, *command.split(), f"--kubeconfig={tmp_path / 'config'}"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )

    assert called.returncode in (0, 1), called.stderr
    modules = called.stderr.split()
    assert f"cli.{command.partition(' ')[0]}" in modules
    assert packages(modules) >= {"click", "urllib3", "rich", "pydantic"}
    assert packages(modules) & NEEDLESS == set()
