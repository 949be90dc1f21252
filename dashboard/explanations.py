"""What `drawbridge explain` says of one object, as a page shows it: functions of what the command prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rich.text import Text

from cli.output import Cell, Part, Table

STYLES = {"green": "good", "yellow": "warning", "bold red": "bad", "dim": "faint", "bold": "title"}
"""The class of each style that `cli.output` gives a text."""


@dataclass(frozen=True)
class Run:
    """A *text* that looks the same throughout, by its *kind*."""

    text: str
    kind: str = ""


Line = tuple[Run, ...]


@dataclass(frozen=True)
class Grid:
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Line]]
    empty: str


def shown(parts: Iterable[Part]) -> list[Line | Grid]:
    """From top to bottom, without empty lines."""
    return [found for part in parts if (found := _grid(part) if isinstance(part, Table) else line_of(part))]


def line_of(cell: Cell) -> Line:
    if isinstance(cell, str):
        return (Run(cell),) if cell else ()
    edges = {edge for span in cell.spans for edge in (span.start, span.end)}
    cuts = sorted({0, len(cell.plain), *edges})
    return tuple(Run(cell.plain[begin:end], _kind(cell, begin)) for begin, end in pairwise(cuts))


def _kind(text: Text, at: int) -> str:
    styles = [str(span.style) for span in text.spans if span.start <= at < span.end]
    return STYLES.get(styles[-1] if styles else str(text.style), "")


def _grid(table: Table) -> Grid:
    rows = [[line_of(cell) for cell in row] for row in table.rows]
    return Grid(table.title, table.columns, rows, table.empty)
