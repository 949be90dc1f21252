"""How the demo looks: the story scrolls, the table of held addresses stays below it; without a terminal, lines."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from rich import box
from rich.console import Console, RenderableType
from rich.live import Live
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from demo.promises import Promise
from demo.table import Proof, Row, State, news

WIDTH_WITHOUT_TERMINAL = 130
LINES_AROUND_TABLE = 8
# Wide enough from the start, so that columns stay where they are; a narrow terminal cuts off the last ones.
COLUMNS = {"": 1, "IP": 10, "reserved for": 14, "for": 5, "release": 23, "because": 7, "node": 6, "owner": 17}
STYLES = {State.GOING: "yellow", State.HELD: "green", State.RELEASED: "dim"}
SIGNS = {State.GOING: "◐", State.HELD: "●", State.RELEASED: "○"}


class Screen:
    def __init__(self, console: Console) -> None:
        self._console = console
        # Drawn when something changed and not by the clock, so that nothing flickers.
        self._live = (
            Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        )
        self._rows: Sequence[Row] = ()

    def __enter__(self) -> Screen:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def title(self, text: str) -> None:
        self._print(Text())
        self._print(Rule(Text(text, "bold"), align="left"))

    def story(self, text: str) -> None:
        self._print(Text(text, "italic"))

    def command(self, line: str) -> None:
        self._print(Text(f"$ {line}", "bold cyan"))

    def note(self, text: str) -> None:
        self._print(Text(f"  {text}", "dim"))

    def verdict(self, promise: Promise) -> None:
        self._print(Text.assemble(_mark(promise), f" {promise.text}", (f"  ({promise.evidence})", "dim")))

    def show(self, rows: Sequence[Row], summary: str) -> None:
        """Draw the table anew when it differs from the last one."""
        if rows == self._rows:
            return
        if self._live:
            self._live.update(_table(rows, summary, self._console.height - LINES_AROUND_TABLE), refresh=True)
        else:
            for line in news(self._rows, rows):
                self.note(line)
        self._rows = rows

    def _print(self, what: RenderableType) -> None:
        self._console.print(what, soft_wrap=not self._console.is_terminal and isinstance(what, Text))


def console(is_terminal: bool) -> Console:
    return Console(highlight=False, width=None if is_terminal else WIDTH_WITHOUT_TERMINAL)


def proofs(seen: Sequence[Proof]) -> Table:
    """What the watches saw of every pod that is gone."""
    table = Table(
        title="What the watches saw, in revisions of the API server's one history", box=box.SIMPLE_HEAD
    )
    table.title_justify = "left"
    for name in ("pod", "IP", "how", "reserved", "pod gone", "released", "held after its end"):
        table.add_column(name, justify="left" if name in ("pod", "IP", "how") else "right")
    for each in seen:
        table.add_row(each.pod, each.address, each.how, each.reserved, each.gone, each.released, each.held)
    return table


def promises(kept: Sequence[tuple[str, Promise]]) -> Table:
    """The last word: every promise of every scene."""
    table = Table(
        "", "scene", "promise", "evidence", title="What was promised", box=box.ROUNDED, title_justify="left"
    )
    scenes: set[str] = set()
    for scene, promise in kept:
        table.add_row(_mark(promise), "" if scene in scenes else scene, promise.text, promise.evidence)
        scenes.add(scene)
    return table


def _table(rows: Sequence[Row], summary: str, height: int) -> Table:
    table = Table(
        title=f"Addresses: {summary}", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD
    )
    for name, width in COLUMNS.items():
        table.add_column(name, no_wrap=True, min_width=width, justify="right" if name == "for" else "left")
    shown = rows[-max(1, height) :]
    for row in shown:
        cells = (row.address, row.pod, row.held, row.release, row.reason, row.node, row.owner)
        table.add_row(SIGNS[row.state], *cells, style=STYLES[row.state])
    if len(shown) < len(rows):
        table.caption = f"and {len(rows) - len(shown)} older ones"
    return table


def _mark(promise: Promise) -> Text:
    return Text("✓", "bold green") if promise.kept else Text("✗", "bold red")
