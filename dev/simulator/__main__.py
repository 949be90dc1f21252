"""``make simulate``: run scenarios by seed, on all cores, and show the shortest history of each that fails."""

from __future__ import annotations

import argparse
import sys
import time

from dev.simulator.core.once import begin

PROGRESS = 10.0
"""Seconds between two lines of progress."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seed", type=int, help="this one alone, with its history")
    parser.add_argument("--seeds", type=int, default=200, help="how many (default: %(default)s)")
    parser.add_argument("--first", type=int, default=1, help="the first of them (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=0, help="how many at a time (default: one per core)")
    parser.add_argument("--whole", action="store_true", help="with --seed: the history of all operations")
    arguments = parser.parse_args()
    kernel = begin()
    from dev.simulator import fleet, shortening

    if arguments.seed is not None:
        return shortening.show(kernel, arguments.seed, whole=arguments.whole)
    last = arguments.first + arguments.seeds - 1
    failures = 0
    shown = began = time.monotonic()
    for done, (seed, report) in enumerate(
        fleet.run(kernel, range(arguments.first, last + 1), arguments.jobs), start=1
    ):
        if report.findings:
            failures += 1
            print(f"seed {seed}: {report.findings[0]}", flush=True)
        if time.monotonic() - shown >= PROGRESS or done == arguments.seeds:
            shown = time.monotonic()
            rate = done / (shown - began)
            left = (arguments.seeds - done) / rate
            print(
                f"{done} of {arguments.seeds} seeds, {failures} failed, {rate * 60:.0f} a minute, {left:.0f} s left",
                file=sys.stderr,
                flush=True,
            )
    if failures:
        print("Show one with: make simulate SEED=n", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
