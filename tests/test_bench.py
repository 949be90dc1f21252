"""Benchmarks say what was counted: quantiles, ratios and verdicts, and the table and file that show them."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dev.bench import __main__ as command
from dev.bench import replicas, report
from dev.bench.report import Figure, figure
from dev.lab.errors import LabError


@pytest.mark.parametrize(
    ("given", "ratio", "target", "met"),
    [
        pytest.param({}, None, None, None, id="nothing to compare with"),
        pytest.param({"baseline": 4.0}, 0.5, None, None, id="a ratio without a target"),
        pytest.param({"baseline": 4.0, "at_most": 0.5}, 0.5, "<= 0.5", True, id="a ratio just low enough"),
        pytest.param({"baseline": 4.0, "at_most": 0.4}, 0.5, "<= 0.4", False, id="a ratio too high"),
        pytest.param({"baseline": 4.0, "at_least": 0.8}, 0.5, ">= 0.8", False, id="a ratio too low"),
        pytest.param({"at_most": 2.0}, None, "<= 2", True, id="a value without a baseline"),
        pytest.param({"at_most": 0}, None, "<= 0", False, id="a value that must be nothing"),
        pytest.param({"baseline": 0.0, "at_most": 1.0}, math.inf, "<= 1", False, id="against nothing"),
    ],
)
def test_a_figure_is_judged_by_its_ratio_where_there_is_one(
    given: dict[str, float], ratio: float | None, target: str | None, met: bool | None
) -> None:
    made = figure("it", 2.0, "s", **given)

    assert (made.ratio, made.target, made.met) == (ratio, target, met)


@pytest.fixture
def suites(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str, Any], None]:
    """Takes the place of the suites, one by one, and of the directory they are written to."""
    monkeypatch.setattr(command, "SUITES", {})
    monkeypatch.setattr(report.write, "__defaults__", (tmp_path,))

    def add(name: str, run: Any) -> None:
        suite = ModuleType(name)
        suite.run = run  # type: ignore[attr-defined]
        command.SUITES[name] = suite

    return add


def test_the_programs_of_a_replica_start_with_the_account_of_the_bench() -> None:
    code = f"{replicas.BEGIN} print(connection.MOUNTED)"

    printed = subprocess.run(
        [sys.executable, "-c", code, "/an/account"], cwd=replicas.ROOT, capture_output=True, check=True
    )

    assert printed.stdout == b"/an/account\n"


def missing(progress: Callable[[str], None], *, quick: bool) -> list[Figure]:
    progress("at work")
    return [figure("it", 1.0, "s", at_least=2.0)]


def failing(progress: Callable[[str], None], *, quick: bool) -> list[Figure]:
    raise LabError("no such machine")


def test_a_missed_target_is_no_failure_and_a_suite_that_cannot_run_is_one(
    suites: Callable[[str, Any], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suites("one", missing)

    assert command.main([]) == 0
    out = capsys.readouterr().out
    assert "1 of 1 targets missed" in out
    assert "not held  it: 1 (>= 2)" in out
    assert json.loads((tmp_path / "one.json").read_text())[0]["met"] is False
    suites("one", failing)
    assert command.main(["one"]) == 1
    assert capsys.readouterr().err.endswith("bench: no such machine\n")
