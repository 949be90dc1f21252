"""The page and the picture of the documentation, made from the rows of one run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from dev.bench.ip_reservation.rows import CPU, P50, P99, WALL, Rows
from dev.bench.ip_reservation.runs import Setting
from dev.bench.ip_reservation.variants import AHEAD, NO_OP, NO_OP_CONDITIONS, NONE, OURS
from dev.bench.picture import Group, Panel, svg
from dev.bench.report import Figure
from dev.lab.binaries.table import versions

SHOWN = (NONE, NO_OP_CONDITIONS, NO_OP, OURS, AHEAD)
PAGE, PICTURE = Path("contributing") / "storm.md", Path("images") / "storm.svg"
TEXT = """\
# A storm of deletions

What IP reservation costs deletions of pods, measured by [`make bench SUITE=ip_reservation`](lab.md#benchmarks),
which writes this page.

![Time, request and CPU of deletions, by variant](../images/storm.svg)

Kubernetes {kubernetes}, {cores} cores for control plane, kubelets and clients; medians of the rounds ({rounds}).
The variants take turns in one cluster: no webhook, one that does nothing behind our match conditions, ours
with pods whose IPs are reserved when they go, and ours with pods whose IPs are reserved ahead.
The machine is shared: compare ratios, not seconds. *Busy* means that other loops occupy half of the cores.
CPU is that of the whole cluster until the last pod is gone.

{met} of {judged} targets are met; `build/bench/ip_reservation.json` lists them all.
"""


def write(found: Rows, settings: Sequence[Setting], figures: Sequence[Figure], directory: Path) -> Path:
    """The page below *directory*, with its picture."""
    for path, text in ((PAGE, page(found, figures)), (PICTURE, picture(found, settings))):
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(text)
    return directory / PAGE


def page(found: Rows, figures: Sequence[Figure]) -> str:
    judged = [each.met for each in figures if each.met is not None]
    return TEXT.format(
        kubernetes=versions()["kubernetes"],
        cores=os.cpu_count(),
        rounds=max(len(each.values) for each in found.all),
        met=sum(judged),
        judged=len(judged),
    )


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
