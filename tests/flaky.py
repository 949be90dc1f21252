"""`python -m tests.flaky [PYTEST ARGUMENT...]` runs pytest, then each failed test once more, alone.

A test with processes, sockets or a control plane can lose a race on a busy machine. One that passes alone is
reported as flaky, and the run counts as passed: once. Of those that `tests/flaky.txt` lists, failures count.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

MOST = 5
"""With more failures than that something is broken."""
LISTED = Path("tests/flaky.txt")
REPORT = Path("build/flaky.txt")
"""The tests that were flaky, for the end of a run of several parts."""
ADVICE = f"""\
Each passed when it was run again, alone, so the run counts as passed. Find the race, and add the name of the test,
without parameters, to {LISTED}: a test that is listed there has no second chance."""


@dataclass(eq=False)
class Failures:
    """A plugin that records the tests that failed, as xdist's controller or pytest alone sees them."""

    tests: list[str] = field(default_factory=list)
    final: list[str] = field(default_factory=list)
    """What no run of one test repeats: files that cannot be imported, and what all tests of a lab left behind."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.failed or report.nodeid in self.tests:
            return
        (self.tests if report.when in ("setup", "call") else self.final).append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.final.append(report.nodeid)

    def may_be_repeated(self, listed: set[str]) -> bool:
        return (
            not self.final
            and 0 < len(self.tests) <= MOST
            and not any(function(test) in listed for test in self.tests)
        )


def function(test: str) -> str:
    """The name of a test without its parameters."""
    return test.partition("[")[0]


def listed() -> set[str]:
    lines = LISTED.read_text().splitlines() if LISTED.exists() else []
    return {line for line in lines if line and not line.startswith("#")}


def passes_alone(test: str) -> bool:
    print(f"\nonce more, alone: {test}", flush=True)
    return subprocess.run([sys.executable, "-m", "pytest", "-q", test], check=False).returncode == 0


def report(flaky: list[str]) -> None:
    REPORT.parent.mkdir(exist_ok=True)
    with REPORT.open("a") as file:
        print(*flaky, sep="\n", file=file)
    print(f"\n{' FLAKY '.center(80, '=')}", *flaky, ADVICE, "=" * 80, sep="\n", flush=True)


def main(arguments: list[str]) -> int:
    failures = Failures()
    code = pytest.main(arguments, plugins=[failures])
    if code != pytest.ExitCode.TESTS_FAILED or not failures.may_be_repeated(listed()):
        return int(code)
    flaky = [test for test in failures.tests if passes_alone(test)]
    if flaky:
        report(flaky)
    return int(pytest.ExitCode.OK if flaky == failures.tests else code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
