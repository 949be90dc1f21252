"""Bars as an SVG that can be read on light and dark pages, without a library or a script."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT = 860, 250, 60
BAR, GAP, GROUP_GAP, TITLE = 14, 3, 12, 40
STYLE = """
svg { --ink: #1f2328; --soft: #59636e; --back: #ffffff; --c0: #8c959f; --c1: #54aeff; --c2: #bf8700; --c3: #cf222e }
@media (prefers-color-scheme: dark) {
  svg { --ink: #f0f6fc; --soft: #9198a1; --back: #0d1117; --c0: #6e7681; --c1: #388bfd; --c2: #d29922; --c3: #f85149 }
}
text { font: 12px system-ui, sans-serif; fill: var(--ink) }
.title { font-weight: 600; font-size: 14px }
.soft { fill: var(--soft) }
.back { fill: var(--back) }
"""
"""Colours of at most four series."""


@dataclass(frozen=True)
class Group:
    """Bars side by side: the value of each series that has one."""

    label: str
    values: Sequence[tuple[str, float]]


@dataclass(frozen=True)
class Panel:
    """*groups* on one scale."""

    title: str
    groups: Sequence[Group]


class _Drawing:
    """Elements one below the other, down to *y*."""

    def __init__(self, series: Sequence[str]) -> None:
        self.series, self.y = series, 0.0
        self.elements: list[str] = []

    def legend(self) -> None:
        step = (WIDTH - 20) / len(self.series)
        for number, name in enumerate(self.series):
            x = 10 + number * step
            self.elements.append(_rect(x, 12, 12, 12, f"fill: var(--c{number})"))
            self.elements.append(_text(x + 18, 22, name))
        self.y = 30

    def panel(self, panel: Panel) -> None:
        self.y += TITLE
        self.elements.append(_text(10, self.y - 14, panel.title, "title"))
        most = max((value for group in panel.groups for _, value in group.values), default=0.0) or 1.0
        for group in panel.groups:
            self._group(group, (WIDTH - LEFT - RIGHT) / most)

    def _group(self, group: Group, scale: float) -> None:
        middle = self.y + len(group.values) * (BAR + GAP) / 2 + 3
        self.elements.append(_text(10, middle, group.label, "soft"))
        for name, value in group.values:
            colour = f"fill: var(--c{self.series.index(name)})"
            self.elements.append(_rect(LEFT, self.y, max(1.0, value * scale), BAR, colour))
            self.elements.append(_text(LEFT + value * scale + 6, self.y + BAR - 3, _number(value)))
            self.y += BAR + GAP
        self.y += GROUP_GAP


def svg(title: str, panels: Iterable[Panel], series: Sequence[str]) -> str:
    """*panels* one below the other; *series* have the same colours in all of them."""
    drawing = _Drawing(series)
    drawing.legend()
    for panel in panels:
        drawing.panel(panel)
    return "\n".join(_document(title, drawing)) + "\n"


def _document(title: str, drawing: _Drawing) -> Iterator[str]:
    height = drawing.y + 10
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img">'
    yield f"<title>{escape(title)}</title>"
    yield f"<style>{STYLE}</style>"
    yield f'<rect class="back" width="{WIDTH}" height="{height:g}" rx="6"/>'
    yield from drawing.elements
    yield "</svg>"


def _rect(x: float, y: float, width: float, height: float, style: str) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:.1f}" height="{height:g}" style="{style}"/>'


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    attribute = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:g}"{attribute}>{escape(text)}</text>'


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
