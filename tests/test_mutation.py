"""The mutation run finds decisions, changes each one, and tells mutants that tests detect from those that survive."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.mutation import TARGETS
from tests.planted import SWAPS, swapped
from tests.test_layers import ROOT


def test_a_mutant_that_no_test_detects_is_listed(tmp_path: Path) -> None:
    (tmp_path / "grading.py").write_text("def passed(points):\n    return points >= 10\n")
    tests = tmp_path / "test_grading.py"
    tests.write_text(
        "from grading import passed\n\ndef test_it():\n    assert passed(11) and not passed(9)\n"
    )
    command = [sys.executable, str(ROOT / "tests" / "mutation.py"), "--root", str(tmp_path)]
    done = subprocess.run(
        [*command, "grading.py=test_grading.py"], capture_output=True, text=True, timeout=120
    )

    assert "survived: grading.py:2: points >= 10  ->  points > 10" in done.stdout
    assert "grading.py: 1 of 3 detected, of 3 mutants" in done.stdout


def test_all_modules_and_tests_of_the_run_exist() -> None:
    assert [
        path for module, tests in TARGETS.items() for path in (module, *tests) if not (ROOT / path).exists()
    ] == []


def test_each_order_of_writes_that_is_swapped_exists() -> None:
    assert all(swapped(*each).tree for each in SWAPS)
