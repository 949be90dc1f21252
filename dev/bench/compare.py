"""`python -m dev.bench.compare BASE [SUITE]`: suites of another commit and of this tree, in turns, and their ratios."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from dev.bench.__main__ import SUITES
from dev.bench.report import Figure, number
from dev.lab.repository import ROOT

Values = Mapping[tuple[str, str], list[float]]
"""What was measured of a figure, by its name and unit, once a round."""


class SuiteFailed(Exception):
    """A suite could not be run; its own words are on stderr."""


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """The exit code: 1 when a commit or a suite could not be had."""
    options = _parser().parse_args(arguments)
    out = Console(width=None if sys.stdout.isatty() else 120)
    try:
        with checked_out(root, options.base) as base:
            for suite in [options.suite] if options.suite else SUITES:
                before, now = in_turns([base, root], suite, options.rounds, quick=options.quick)
                out.print(table(suite, options.base, before, now))
    except (SuiteFailed, subprocess.CalledProcessError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


@contextmanager
def checked_out(root: Path, commit: str) -> Iterator[Path]:
    """A working tree of *commit*, for a while."""
    git = ["git", "-C", str(root), "worktree"]
    with tempfile.TemporaryDirectory(prefix="drawbridge-bench-") as directory:
        tree = Path(directory) / "base"
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def in_turns(trees: Sequence[Path], suite: str, rounds: int, *, quick: bool) -> list[Values]:
    """Run *suite* in each of *trees*, in the other order each round: what changes with time befalls both."""
    measured: list[dict[tuple[str, str], list[float]]] = [defaultdict(list) for _ in trees]
    for turn in range(rounds):
        both = list(zip(trees, measured, strict=True))
        for tree, values in both if turn % 2 == 0 else reversed(both):
            for figure in _run(tree, suite, quick):
                values[figure.name, figure.unit].append(figure.value)
    return list(measured)


def _run(tree: Path, suite: str, quick: bool) -> list[Figure]:
    command = [sys.executable, "-m", "dev.bench", suite, *(["--quick"] if quick else [])]
    if subprocess.run(command, cwd=tree, stdout=subprocess.DEVNULL).returncode:
        raise SuiteFailed(f"{suite} failed in {tree}")
    return msgspec.json.decode((tree / "build" / "bench" / f"{suite}.json").read_bytes(), type=list[Figure])


def table(suite: str, base: str, before: Values, now: Values) -> Table:
    """The medians of what both have measured, and the ratio of now to before."""
    shown = Table("figure", "unit", title=suite, title_justify="left", box=None, pad_edge=False)
    for heading in (base[:12], "now", "ratio"):
        shown.add_column(heading, justify="right")
    for name, unit in now:
        after = statistics.median(now[name, unit])
        first = statistics.median(before[name, unit]) if (name, unit) in before else None
        ratio = after / first if first else None
        shown.add_row(name, unit, number(first), number(after), number(ratio))
    return shown


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m dev.bench.compare", description=__doc__)
    parser.add_argument("base", metavar="BASE", help="a commit")
    parser.add_argument("suite", nargs="?", choices=SUITES, metavar="SUITE", help="default: all")
    parser.add_argument("--rounds", type=int, default=2, help="of each (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="with small numbers, to try it out")
    return parser


if __name__ == "__main__":
    sys.exit(main())
