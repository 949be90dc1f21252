"""Find the fewest operations that still break the same invariant, and print what happened then."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence

from dev.simulator.core.kernel import Kernel
from dev.simulator.fleet import Report, apart
from dev.simulator.scenario import Scenario


def show(kernel: Kernel, scenario: Scenario, *, whole: bool) -> int:
    """The exit code: 1 when an invariant is broken."""
    report = apart(kernel, scenario)
    left_out: Collection[int] = ()
    if report.findings and not whole:
        numbers = [each.number for each in scenario.operations]
        left_out = shortened(kernel, scenario, numbers, report.findings[0].invariant)
        report = apart(kernel, scenario, left_out)
    print(f"{scenario.name}: {', '.join(scenario.features)}; {scenario.nodes} nodes; {scenario.values}")
    for entry in _until(report):
        print(entry)
    for finding in report.findings:
        print(f"{finding.at:9.3f}  BROKEN: {finding.invariant}: {finding.message}")
    print(f"history {report.digest}; {len(scenario.operations) - len(left_out)} operations", file=sys.stderr)
    return 1 if report.findings else 0


def shortened(kernel: Kernel, scenario: Scenario, numbers: Sequence[int], invariant: str) -> Collection[int]:
    """The operations that are not needed, by delta debugging: halves first, then smaller and smaller parts."""
    kept, size = list(numbers), max(1, len(numbers) // 2)
    while kept:
        for begin in range(0, len(kept), size):
            fewer = kept[:begin] + kept[begin + size :]
            left_out = set(numbers) - set(fewer)
            found = apart(kernel, scenario, left_out).findings
            if found and found[0].invariant == invariant:
                kept = fewer
                break
        else:
            if size == 1:
                break
            size = max(1, size // 2)
    return set(numbers) - set(kept)


def _until(report: Report) -> Sequence[object]:
    """The history up to the first finding."""
    end = report.findings[0].at if report.findings else float("inf")
    return [each for each in report.history if each.at <= end]
