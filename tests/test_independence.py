"""Each feature can be deleted: both programs start with the other features, and their tests pass."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

import features
from tests import kubeconfigs

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
PRODUCT = (
    "calico",
    "certs",
    "cloud",
    "controllers",
    "api",
    "healthchecker",
    "kube",
    "runtime",
    "settings",
    "telemetry",
    "webhook",
)
PAGES = ("docs", "README.md", "CONTRIBUTING.md")
PROGRAMS = ("wsgi.py", "features.py", "pyproject.toml")
COPIED = (*PRODUCT, "cli", "charts", "deploy", "tests", "dev", *PROGRAMS, *PAGES)


@dataclass(frozen=True)
class Feature:
    """*own* folders are deleted with what has its name in the programs; *fast* are some of its *tests*."""

    tests: tuple[str, ...]
    fast: tuple[str, ...]
    own: tuple[str, ...] = ()


FEATURES = {
    "ip_reservation": Feature(
        tests=("ip_reservation*", "cluster_reads"), fast=("ip_reservation", "ip_reservation_*planner")
    ),
    "anycast_ip": Feature(tests=("anycast_*",), fast=("anycast_plan*", "anycast_webhook")),
    "elasticity": Feature(
        tests=("elasticity_*",),
        fast=("elasticity_gate", "elasticity_placement", "elasticity_rules", "elasticity_switches"),
    ),
    "ingress_daemonset": Feature(
        tests=("ingress_daemonset_*", "healthchecker*"),
        fast=("ingress_daemonset_crd", "ingress_daemonset_desired", "healthchecker"),
        own=("healthchecker",),
    ),
}

SHARED = ("cloud_caller",)
"""Tests of what several features use."""
START = """
import importlib, json, pathlib, sys

failed = {}
for path in sorted(each for package in sys.argv[1:] for each in pathlib.Path(package).rglob("*.py")):
    try:
        importlib.import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
    except ImportError as error:
        failed[str(path)] = str(error)

import wsgi
import features

paths = [rule.rule for rule in wsgi.app.url_map.iter_rules()]
names = sorted(features.controllers(lambda: wsgi.settings.current))
print(json.dumps({"failed": failed, "paths": sorted(paths), "controllers": names}))
"""
COMMAND = """
import json
from pathlib import Path
from cli.app import COMMANDS
from features import FEATURES
from tests import cli

api = cli.installed("anycastIP", "elasticity", "ingressDaemonSet")
api.put(cli.resource("Node"), {"metadata": {"name": "node-1"}})
Path("values.yaml").write_text("elasticity: {localReplicas: 2}")
asked = [["--help"], ["status"], ["explain", "--help"], ["simulate", "--help"], ["doctor", "--help"]]
asked += [["simulate", "values", "values.yaml"]]
kinds = {name for row in FEATURES for name in row.explains}
asked += [["explain", "node", "node-1"]] if "node" in kinds else [["explain", "ip", "10.0.0.1"]]
asked += [[name, "--help"] for row in FEATURES for name in row.commands]
asked += [["explain", name, "--help"] for name in sorted(kinds)]
ran = {" ".join(each): cli.run(api, *each) for each in asked}
names = [*COMMANDS, *(f"{group} {name}" for row in FEATURES for group, names in
         (("explain", row.explains), ("simulate", row.simulates)) for name in names)]
print(json.dumps({"codes": {name: result.exit_code for name, result in ran.items()},
                  "status": ran["status"].output, "names": names}))
"""
CONFIG = """
apiVersion: drawbridge.io/v1
kind: DrawbridgeConfig
certs: {mode: self-managed}
anycastIP: {enabled: true, clusterID: cls-1}
elasticity: {enabled: true}
ingressDaemonSet: {enabled: true}
"""


def repository(directory: Path) -> Path:
    """A copy of it, in which `run_in` runs Python."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, directory)
    (directory / "config.yaml").write_text(CONFIG)
    kubeconfigs.written(directory / "kubeconfig", "http://127.0.0.1:1")
    return directory


def run_in(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {
        "DRAWBRIDGE_CONFIG": "config.yaml",
        "KUBECONFIG": "kubeconfig",
        "KUBERNETES_SERVICE_HOST": "",
        "PYTHONPATH": ".",
    }
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=directory,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


class Copy:
    """The repository without one feature, configured with all features enabled."""

    def __init__(self, directory: Path, missing: str) -> None:
        self.directory, self.missing = directory, missing
        self.others = {name: feature for name, feature in FEATURES.items() if name != missing}
        self.rows = [row for row in features.FEATURES if row.name in self.others]
        repository(directory)
        deleted = FEATURES[missing]
        rows = directory / "features.py"
        rows.write_text(
            re.sub(
                rf'    Feature\(\n        "{missing}".*?\n    \),\n',
                "",
                rows.read_text(),
                flags=re.DOTALL,
            )
        )
        for package in ("webhook", "controllers", "cli"):
            shutil.rmtree(directory / package / missing)
        for name in deleted.own:
            shutil.rmtree(directory / name)
        for pattern in deleted.tests:
            for path in directory.glob(f"tests/test_{pattern}.py"):
                path.unlink()

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run_in(self.directory, *arguments)


@pytest.fixture(scope="module", params=FEATURES)
def copy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Copy:
    return Copy(tmp_path_factory.mktemp(request.param), request.param)


def test_both_programs_start_with_the_other_features(copy: Copy) -> None:
    started = copy.run("-c", START, *(name for name in PRODUCT if (copy.directory / name).exists()))
    assert started.returncode == 0, started.stderr
    found: dict[str, Any] = json.loads(started.stdout)

    assert found["failed"] == {}
    assert found["paths"] == sorted(resolve_name(path) for row in copy.rows for path in row.paths)
    assert found["controllers"] == sorted(["certificates", *copy.others])


def test_the_command_has_those_of_the_other_features(copy: Copy) -> None:
    ran = copy.run("-c", COMMAND)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)

    others = {name for row in copy.rows for name in row.commands}
    others |= {f"explain {kind}" for row in copy.rows for kind in row.explains}
    others |= {f"simulate {name}" for row in copy.rows for name in row.simulates}
    general = {"status", "explain", "simulate", "doctor", "dashboard", "convert-values", "completion"}
    assert {*found["names"]} == general | others
    assert {name for name, code in found["codes"].items() if code} == set()
    assert "nothing is wrong" in found["status"]


@pytest.mark.nightly
def test_the_tests_of_the_layers_and_of_the_other_features_pass(copy: Copy) -> None:
    patterns = ("layers", *SHARED, *(name for feature in copy.others.values() for name in feature.fast))
    files = [str(path) for name in patterns for path in copy.directory.glob(f"tests/test_{name}.py")]
    assert len(files) >= len(patterns), "a pattern finds no file"
    ran = copy.run("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *files)

    assert ran.returncode == 0, ran.stdout[-4000:]
