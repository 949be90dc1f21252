"""A test that fails has one chance more, alone; no other failure is ever overlooked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import flaky

ROOT = Path(__file__).parent.parent
TESTS = """
import os
import pathlib
import pytest

def fails(name, times):
    seen = pathlib.Path(os.environ["SEEN"] + name)
    before = len(seen.read_text()) if seen.exists() else 0
    seen.write_text("x" * (before + 1))
    return before < times

@pytest.fixture(scope="session")
def lab():
    assert not fails("lab", 1)

@pytest.fixture(scope="session")
def left_behind():
    yield
    assert not fails("left", 1)

def test_passes():
    pass

def test_once():
    assert not fails("once", 1)

def test_setup(lab):
    pass

def test_twice():
    assert not fails("twice", 2)

def test_teardown(left_behind):
    pass

def test_crash():
    if fails("crash", 1):
        os._exit(1)
"""
FILE = "tests/cluster/test_it.py"
XDIST = ("-p", "xdist", "-n", "2", "--dist", "loadscope")


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / FILE).parent.mkdir(parents=True)
    (folder / FILE).write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    command = [sys.executable, "-m", "tests.flaky", "-q", *options]
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(ROOT),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "SEEN": str(folder / "seen-"),
    }
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("options", [(), XDIST], ids=["one process", "xdist"])
def test_tests_that_pass_alone_are_named_and_the_run_passes(tmp_path: Path, options: tuple[str, ...]) -> None:
    done = run(tmp_path, *options, "-k", "passes or once or setup")

    assert done.returncode == 0, done.stdout + done.stderr
    flaky_ones = {f"{FILE}::test_once", f"{FILE}::test_setup"}
    assert {*(tmp_path / flaky.REPORT).read_text().splitlines()} == flaky_ones
    loud = done.stdout.partition(" FLAKY ")[2]
    assert flaky_ones <= {*loud.splitlines()}
    assert flaky.ADVICE in loud


def test_one_that_fails_twice_is_a_failure_beside_one_that_does_not(tmp_path: Path) -> None:
    done = run(tmp_path, "-k", "once or twice")

    assert done.returncode == 1
    assert (tmp_path / flaky.REPORT).read_text() == f"{FILE}::test_once\n"


@pytest.mark.parametrize(
    "options", [("-k", "teardown"), (*XDIST, "-k", "teardown"), (*XDIST, "-k", "crash")], ids=" ".join
)
def test_what_no_run_of_one_test_repeats_is_final(tmp_path: Path, options: tuple[str, ...]) -> None:
    done = run(tmp_path, *options)

    assert done.returncode == 1
    assert not (tmp_path / flaky.REPORT).exists()


@pytest.mark.parametrize(
    ("tests", "repeated"),
    [
        ([f"{FILE}::test_it"], True),
        (["tests/chaos/test_storm.py::test_it[v1]"], True),
        ([f"{FILE}::test_it[{number}]" for number in range(flaky.MOST)], True),
        ([f"{FILE}::test_it[{number}]" for number in range(flaky.MOST + 1)], False),
        ([f"{FILE}::test_it", "tests/test_units.py::test_it"], True),
        ([f"{FILE}::test_it", f"{FILE}::test_that_was_flaky[a[b]]"], False),
        ([], False),
    ],
)
def test_a_few_failures_are_repeated(tests: list[str], repeated: bool) -> None:
    listed = {f"{FILE}::test_that_was_flaky"}

    assert flaky.Failures(tests).may_be_repeated(listed) is repeated


def test_a_file_that_cannot_be_imported_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "tests" / "chaos").mkdir(parents=True)
    (tmp_path / "tests" / "chaos" / "test_broken.py").write_text("import no_such_module\n")

    assert run(tmp_path, "--continue-on-collection-errors").returncode == 1
    assert not (tmp_path / flaky.REPORT).exists()


def test_the_listed_tests_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)

    for name in flaky.listed():
        path, _, test = name.partition("::")
        assert f"def {test}(" in (ROOT / path).read_text(), name


def test_pytest_can_set_the_plugin_aside_for_a_folder() -> None:
    """It does so by a set of plugins, for the conftest.py of a folder that is named."""
    assert len({flaky.Failures(), flaky.Failures()}) == 2
