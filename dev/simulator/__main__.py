"""``make simulate``: play scenarios by seed, on all cores; ``SEED=n`` shows the shortest history of one that fails."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dev.simulator.core.kernel import Kernel
from dev.simulator.core.once import begin

if TYPE_CHECKING:
    from dev.simulator.scenario import Scenario

PROGRESS = 10.0
"""Seconds between two lines of progress."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seed", type=int, help="this one alone, with its history")
    parser.add_argument("--seeds", type=int, default=200, help="how many (default: %(default)s)")
    parser.add_argument("--first", type=int, default=1, help="the first of them (default: %(default)s)")
    parser.add_argument(
        "--hard", action="store_true", help="more operations in less time than a seed usually has"
    )
    parser.add_argument("--histories", action="store_true", help="the directed histories instead of seeds")
    parser.add_argument("--history", help="the directed history whose name contains this, as it went")
    parser.add_argument(
        "--crashes",
        type=int,
        nargs="?",
        const=1,
        help="the walks, in which the leader dies after each write, or every such; with --history: after that one",
    )
    parser.add_argument("--jobs", type=int, default=0, help="how many at a time (default: one per core)")
    parser.add_argument("--whole", action="store_true", help="with --seed: the history of all operations")
    arguments = parser.parse_args()
    kernel = begin()
    from dev.simulator import shortening
    from dev.simulator.crashes import WALKS, crashes, crashing
    from dev.simulator.histories import HISTORIES
    from dev.simulator.scenario import drawn

    if arguments.seed is not None:
        scenario = drawn(arguments.seed, hard=arguments.hard)
        return shortening.show(kernel, scenario, whole=arguments.whole)
    if arguments.history:
        found = [each for name, each in (HISTORIES | WALKS).items() if arguments.history in name]
        if arguments.crashes:
            found = [crashing(each, arguments.crashes) for each in found]
        return max((shortening.show(kernel, each, whole=True) for each in found), default=2)
    if arguments.crashes:
        scenarios = crashes(kernel, arguments.crashes)
        return play(kernel, scenarios, len(scenarios), arguments.jobs)
    if arguments.histories:
        return play(kernel, HISTORIES.values(), len(HISTORIES), arguments.jobs)
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    drawings = (drawn(each, hard=arguments.hard) for each in seeds)
    return play(kernel, drawings, arguments.seeds, arguments.jobs)


def play(kernel: Kernel, scenarios: Iterable[Scenario], count: int, jobs: int) -> int:
    """The exit code: 1 when an invariant was broken in one of them."""
    from dev.simulator import fleet

    failures = 0
    shown = began = time.monotonic()
    for done, (scenario, report) in enumerate(fleet.run(kernel, scenarios, jobs), start=1):
        if report.findings:
            failures += 1
            finding = report.findings[0]
            print(f"{scenario.name}: {finding.at:.1f} s: {finding.invariant}: {finding.message}", flush=True)
        if time.monotonic() - shown >= PROGRESS or done == count:
            shown = time.monotonic()
            rate = done / (shown - began)
            print(
                f"{done} of {count}, {failures} failed, {rate * 60:.0f} a minute, {(count - done) / rate:.0f} s left",
                file=sys.stderr,
                flush=True,
            )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
