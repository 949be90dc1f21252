"""Tests of one group are run by one process, in their order, while others run elsewhere."""

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parent.parent
TESTS = """
import os
import pathlib
import pytest

@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("lab", [pytest.param(name, marks=pytest.mark.group(name)) for name in ("one", "two")])
def test_of_a_lab(lab, number):
    with pathlib.Path(os.environ["SEEN"]).open("a") as seen:
        print(lab, number, os.getpid(), file=seen)

@pytest.mark.parametrize("number", range(8))
def test_of_its_own(number):
    with pathlib.Path(os.environ["SEEN"]).open("a") as seen:
        print("single", number, os.getpid(), file=seen)
"""


def run(folder: Path) -> subprocess.CompletedProcess:
    (folder / "test_it.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = group: name\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.groups", "-n", "3", "--dist", "loadscope"]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "SEEN": str(folder / "seen")}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_each_group_has_a_process_and_other_tests_have_all(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr

    seen = defaultdict(list)
    for line in (tmp_path / "seen").read_text().splitlines():
        group, number, process = line.split()
        seen[group].append((number, process))
    for group in ("one", "two"):
        assert [number for number, _ in seen[group]] == ["0", "1", "2", "3"]
        assert len({process for _, process in seen[group]}) == 1
    assert seen["one"][0][1] != seen["two"][0][1]
    assert len(seen["single"]) == 8
