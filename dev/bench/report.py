"""A figure says what was measured, against what, and whether that is as good as promised."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import msgspec
from rich.table import Table

DIRECTORY = Path(__file__).resolve().parents[2] / "build" / "bench"


class Figure(msgspec.Struct, frozen=True):
    """*target* speaks of the ratio where there is a baseline, else of the value; *met* is None without one."""

    name: str
    value: float
    unit: str
    baseline: float | None = None
    ratio: float | None = None
    target: str | None = None
    met: bool | None = None


def figure(
    name: str,
    value: float,
    unit: str,
    *,
    baseline: float | None = None,
    at_most: float | None = None,
    at_least: float | None = None,
) -> Figure:
    """With the ratio to *baseline*, and the verdict by one of the two limits, if any is given."""
    ratio = None if baseline is None else value / baseline if baseline else float("inf")
    judged = value if ratio is None else ratio
    if at_most is not None:
        return Figure(name, value, unit, baseline, ratio, f"<= {at_most:g}", judged <= at_most)
    if at_least is not None:
        return Figure(name, value, unit, baseline, ratio, f">= {at_least:g}", judged >= at_least)
    return Figure(name, value, unit, baseline, ratio)


def of_rounds(
    name: str, unit: str, values: Sequence[float], baselines: Sequence[float], *, at_most: float | None = None
) -> Figure:
    """Medians over the rounds; the ratio is the median of those of each round, so that no drift is in it."""
    ratios = [
        value / baseline if baseline else math.inf for value, baseline in zip(values, baselines, strict=True)
    ]
    judged = figure(name, median(ratios), "", at_most=at_most)
    return Figure(name, median(values), unit, median(baselines), judged.value, judged.target, judged.met)


def verdicts(figures: Sequence[Figure]) -> list[str]:
    """A line for each figure that has a target."""
    return [
        f"{'held    ' if each.met else 'not held'}  {each.name}: "
        f"{number(each.value if each.ratio is None else each.ratio)} ({each.target})"
        for each in figures
        if each.met is not None
    ]


def write(suite: str, figures: Sequence[Figure], directory: Path = DIRECTORY) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{suite}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(figures)) + b"\n")
    return path


def table(suite: str, figures: Sequence[Figure]) -> Table:
    """What is judged has a line below it."""
    shown = Table("figure", title=suite, title_justify="left", box=None, pad_edge=False)
    for heading in ("value", "unit", "baseline", "ratio"):
        shown.add_column(heading, justify="left" if heading == "unit" else "right")
    for each in figures:
        shown.add_row(each.name, number(each.value), each.unit, number(each.baseline), number(each.ratio))
    return shown


def number(value: float | None) -> str:
    """Short enough to be read: three significant digits, whole numbers from 100 on."""
    if value is None:
        return ""
    if not math.isfinite(value):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def summary(figures: Sequence[Figure]) -> str:
    judged = [each for each in figures if each.met is not None]
    missed = [each for each in judged if not each.met]
    if not judged:
        return "there are no targets"
    return f"{len(missed)} of {len(judged)} targets missed" if missed else f"all {len(judged)} targets met"
