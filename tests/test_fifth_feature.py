"""A fifth feature touches at most 15 files: the commit of a small one applies, and both programs have it."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.test_independence import START, repository, run_in

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
PATCH = ROOT / "docs" / "contributing" / "fifth-feature.patch"
CONFIG = "apiVersion: drawbridge.io/v1\nkind: DrawbridgeConfig\nspot: {enabled: true}\n"


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository with the feature, switched on."""
    directory = repository(tmp_path_factory.mktemp("fifth"))
    subprocess.run(["git", "apply", "-C1", str(PATCH)], cwd=directory, check=True)
    (directory / "config.yaml").write_text(CONFIG)
    return directory


def test_it_touches_few_files() -> None:
    """Beside what `make manifests` writes."""
    assert len(re.findall(r"^diff --git", PATCH.read_text(), re.MULTILINE)) <= 15


def test_both_programs_have_it(extended: Path) -> None:
    started = run_in(extended, "-c", START, "api", "settings", "webhook", "controllers", "cli")
    assert started.returncode == 0, started.stderr
    found = json.loads(started.stdout)

    assert found["failed"] == {}
    assert "/mutate/nodes/spot" in found["paths"]
    assert "spot" in found["controllers"]


def test_its_tests_and_those_of_the_layers_pass(extended: Path) -> None:
    files = ("tests/test_spot.py", "tests/test_layers.py")
    ran = run_in(extended, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *files)

    assert ran.returncode == 0, ran.stdout[-4000:]


@pytest.mark.programs
def test_the_chart_installs_it(extended: Path) -> None:
    code = (
        "from dev.lab import chart, values_schema\n"
        "values_schema.SCHEMA.write_text(values_schema.schema())\n"
        "print(chart.manifests('{spot: {enabled: true}}'))"
    )
    rendered = run_in(extended, "-c", code)

    assert rendered.returncode == 0, rendered.stderr
    assert "name: spot.drawbridge.io" in rendered.stdout
    assert "spot:\n      enabled: true" in rendered.stdout
