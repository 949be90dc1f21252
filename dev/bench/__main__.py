"""`python -m dev.bench [SUITE]`: run one suite, or all; show its figures, and write them to build/bench/SUITE.json."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from types import ModuleType

from rich.console import Console

from dev.bench import anycast_ip, cli, elasticity, growth, ingress_daemonset, ip_reservation, replicas, report
from dev.lab.errors import LabError
from dev.lab.watching import WatchLost
from kube.errors import KubeError
from telemetry import logs

WIDTH = 120
"""Where there is no terminal."""
SUITES: dict[str, ModuleType] = {
    "ip_reservation": ip_reservation,
    "ip_reservation_growth": growth,
    "anycast_ip": anycast_ip,
    "elasticity": elasticity,
    "ingress_daemonset": ingress_daemonset,
    "replicas": replicas,
    "cli": cli,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 1 when a suite could not run. A target that was missed is shown, and is no failure."""
    options = _parser().parse_args(arguments)
    try:
        for name in [options.suite] if options.suite else SUITES:
            run(name, quick=options.quick)
    except (LabError, KubeError, WatchLost, OSError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("bench: interrupted; the lab is gone", file=sys.stderr)
        return 130
    return 0


def run(name: str, *, quick: bool) -> None:
    out, begin = Console(width=None if sys.stdout.isatty() else WIDTH), time.monotonic()
    figures = SUITES[name].run(_progress(begin), quick=quick)
    path = report.write(name, figures)
    out.print(report.table(name, figures))
    for line in report.verdicts(figures):
        out.print(line, soft_wrap=True, highlight=False)
    out.print(f"{report.summary(figures)}; it took {time.monotonic() - begin:.0f} s; {path}", soft_wrap=True)


def _progress(begin: float) -> Callable[[str], None]:
    return lambda text: print(f"{time.monotonic() - begin:5.0f} s  {text}", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m dev.bench", description=__doc__)
    parser.add_argument(
        "suite", nargs="?", choices=SUITES, metavar="SUITE", help=f"one of {', '.join(SUITES)}; default: all"
    )
    parser.add_argument(
        "--quick", action="store_true", help="with small numbers, to try it out: the figures say little"
    )
    return parser


if __name__ == "__main__":
    logs.configure("warning")  # where the product's own code runs in this process
    sys.exit(main())
