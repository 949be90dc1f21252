"""The page and the picture of the documentation, made from the rows of one run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from dev.bench.ip_reservation.rows import CPU, P50, P99, WALL, Rows
from dev.bench.ip_reservation.runs import SETTLE, Setting
from dev.bench.ip_reservation.variants import NO_OP, NO_OP_CONDITIONS, NONE, OURS
from dev.bench.picture import Group, Panel, svg
from dev.bench.report import Figure, number
from dev.lab.binaries.table import versions

SHOWN = (NONE, NO_OP_CONDITIONS, NO_OP, OURS)
PAGE, PICTURE = Path("reference") / "storm.md", Path("images") / "storm.svg"
HEAD = """\
# A storm of deletions

What IP reservation costs deletions of pods: a page written by `make bench SUITE=ip_reservation`, picture included.
[Sizing](../how-to/sizing.md#how-it-is-measured) explains how it is measured.

![Time, request and CPU of deletions, by variant](../images/storm.svg)

Kubernetes {kubernetes}, {cores} cores for control plane, kubelets and clients; medians of the rounds ({rounds}).
The variants took turns in one cluster; a ratio is the median of the ratios of each round. Other programs use the
machine, too: compare ratios, not seconds. *busy* is the same beside loops that occupy half of the cores.
The CPU is that of all processes of the cluster until the last pod is gone. What it uses in the {settle:g} s after that
is shown, too, and the target is for both, less what the cluster uses then without a webhook.
"""


def write(found: Rows, settings: Sequence[Setting], figures: Sequence[Figure], directory: Path) -> Path:
    """The page below *directory*, with its picture."""
    for path, text in ((PAGE, page(found, settings, figures)), (PICTURE, picture(found, settings))):
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(text)
    return directory / PAGE


def page(found: Rows, settings: Sequence[Setting], figures: Sequence[Figure]) -> str:
    rounds = max(len(each.values) for each in found.all)
    about = {
        "kubernetes": versions()["kubernetes"],
        "cores": os.cpu_count(),
        "rounds": rounds,
        "settle": SETTLE,
    }
    parts = [HEAD.format(**about), "## Targets\n", *_targets(figures)]
    for setting in settings:
        parts += [f"\n## {str(setting).capitalize()}\n", *_table(found, setting)]
    return "\n".join(parts) + "\n"


def _targets(figures: Sequence[Figure]) -> Iterator[str]:
    yield "| | measured | target | |\n| --- | --- | --- | --- |"
    for each in figures:
        if each.met is not None:
            value = number(each.value if each.ratio is None else each.ratio)
            yield f"| {each.name} | {value} | {each.target} | {'held' if each.met else '**not held**'} |"


def _table(found: Rows, setting: Setting) -> Iterator[str]:
    rows = [each for each in found.all if each.setting == str(setting)]
    variants = [each for each in SHOWN if any(row.variant == each for row in rows)]
    yield f"| | {' | '.join(variants)} |\n| --- |{' --- |' * len(variants)}"
    for measure in dict.fromkeys(row.measure for row in rows):
        cells = [found.get(setting, variant, measure) for variant in variants]
        yield f"| {measure} | {' | '.join(number(cell.median) if cell else '' for cell in cells)} |"


def picture(found: Rows, settings: Sequence[Setting]) -> str:
    storms = [each for each in settings if each.load.is_storm and not each.allocating]
    others = [each for each in settings if not each.load.is_storm]
    panels = [
        _panel("Time until all pods are gone, s", found, storms, WALL),
        _panel("CPU of the whole cluster, s per 1,000 pods", found, storms, CPU),
        _panel("A request waits, median, ms", found, [*others, *storms], P50),
        _panel("A request waits, 99 of 100 at most, ms", found, others, P99),
    ]
    return svg("What deletions cost, by variant", panels, [each for each in SHOWN if each != NO_OP])


def _panel(title: str, found: Rows, settings: Iterable[Setting], measure: str) -> Panel:
    def values(setting: Setting) -> list[tuple[str, float]]:
        cells = [(name, found.get(setting, name, measure)) for name in SHOWN if name != NO_OP]
        return [(name, cell.median) for name, cell in cells if cell]

    return Panel(title, [Group(str(each), values(each)) for each in settings])
