"""How the demo looks: the story scrolls, the table of what is at play stays below it; without a terminal, lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from rich import box
from rich.console import Console, RenderableType
from rich.live import Live
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from dev.demo import burst_table, fleet_table, rollout_table, table
from dev.demo.promises import Promise

WIDTH_WITHOUT_TERMINAL = 130
LINES_AROUND_TABLE = 8
STYLES: dict[StrEnum, str] = {
    table.State.GOING: "yellow",
    table.State.HELD: "green",
    table.State.RELEASED: "dim",
    fleet_table.State.TAINTED: "yellow",
    fleet_table.State.OPEN: "green",
    fleet_table.State.GONE: "dim",
    burst_table.State.WAITING: "yellow",
    burst_table.State.HOME: "green",
    burst_table.State.AWAY: "cyan",
    burst_table.State.GONE: "dim",
    rollout_table.State.WAITING: "dim",
    rollout_table.State.ON: "green",
    rollout_table.State.OFF: "yellow",
}
SIGNS = {"yellow": "◐", "green": "●", "cyan": "◆", "dim": "○"}


class Shown(Protocol):
    @property
    def state(self) -> StrEnum: ...

    @property
    def cells(self) -> tuple[str, ...]: ...


R = TypeVar("R", bound=Shown)


@dataclass(frozen=True)
class Board(Generic[R]):
    """A table that stays; *news* are the lines that say the same without a terminal."""

    title: str
    # Wide enough from the start, so that columns stay where they are; a narrow terminal cuts off the last ones.
    columns: Mapping[str, int]
    news: Callable[[Sequence[R], Sequence[R]], list[str]]


ADDRESSES = Board(
    "Addresses",
    {"IP": 10, "reserved for": 14, "for": 5, "release": 23, "because": 7, "node": 6, "owner": 17},
    table.news,
)
NODES = Board(
    "Nodes",
    {"node": 8, "born": 8, "anycast IP": 12, "in the cloud": 12, "opened": 14, "pods": 5},
    fleet_table.news,
)
REPLICAS = Board("Replicas", {"pod": 33, "placement": 9, "node": 21, "because": 55}, burst_table.news)
EDGE = Board(
    "Edge nodes", {"node": 8, "load balancer": 13, "health check": 12, "its pods": 12}, rollout_table.news
)
RIGHT = {"for", "pods"}


class Screen:
    def __init__(self, console: Console) -> None:
        self._console = console
        # Drawn when something changed and not by the clock, so that nothing flickers.
        self._live = (
            Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        )
        self._rows: dict[str, Sequence[Any]] = {}

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

    def show(self, board: Board[R], rows: Sequence[R], summary: str) -> None:
        """Draw the table again, in place of any other, when it differs from the last one of this board."""
        before = self._rows.get(board.title)
        if rows == before:
            return
        if self._live:
            height = self._console.height - LINES_AROUND_TABLE
            self._live.update(_table(board, rows, summary, height), refresh=True)
        else:
            for line in board.news(before or (), rows):
                self.note(line)
        self._rows[board.title] = rows

    def _print(self, what: RenderableType) -> None:
        self._console.print(what, soft_wrap=not self._console.is_terminal and isinstance(what, Text))


def console(is_terminal: bool) -> Console:
    return Console(highlight=False, width=None if is_terminal else WIDTH_WITHOUT_TERMINAL)


def proofs(seen: Sequence[table.Proof]) -> Table:
    """What the watches saw of every pod that is gone."""
    shown = _evidence(
        "What the watches saw, in revisions of the API server's one history",
        ["pod", "IP", "how"],
        ["reserved", "pod gone", "released", "held after its end"],
    )
    for each in seen:
        shown.add_row(each.pod, each.address, each.how, each.reserved, each.gone, each.released, each.held)
    return shown


def fleet_proofs(seen: Sequence[fleet_table.Proof]) -> Table:
    """What the watches and the cloud have of every node that needs an address."""
    shown = _evidence(
        "What they saw of the nodes, in revisions, and in seconds from the cloud's binding and the node's end",
        ["node", "anycast IP"],
        ["tainted", "opened", "first pod", "bound before it opened", "released after its end"],
    )
    for each in seen:
        revisions = (each.tainted, each.opened, each.first_pod)
        shown.add_row(each.node, each.address, *revisions, each.bound, each.released)
    return shown


def replica_proofs(seen: Sequence[burst_table.Proof]) -> Table:
    """What the watch saw of every replica of which some are to stay local."""
    shown = _evidence(
        "What they saw of the replicas", ["pod", "node"], ["born", "placed", "scheduled", "left"]
    )
    for each in seen:
        shown.add_row(each.pod, each.node, each.born, each.placed, each.bound, each.left)
    return shown


def rollout_proofs(seen: Sequence[rollout_table.Proof]) -> Table:
    """What the watches and the load balancer saw of every node that was updated."""
    shown = _evidence(
        "What they saw of the edge nodes, in revisions, and in seconds from the first 503",
        ["node"],
        ["off", "first pod gone", "first new pod", "on again", "503 before a pod went", "off for"],
    )
    for each in seen:
        revisions = (each.off, each.first_gone, each.first_new, each.on)
        shown.add_row(each.node, *revisions, each.failing, each.lasted)
    return shown


def promises(kept: Sequence[tuple[str, Promise]]) -> Table:
    """The last word: every promise of every step."""
    shown = Table(
        "", "step", "promise", "evidence", title="What was promised", box=box.ROUNDED, title_justify="left"
    )
    steps: set[str] = set()
    for step, promise in kept:
        shown.add_row(_mark(promise), "" if step in steps else step, promise.text, promise.evidence)
        steps.add(step)
    return shown


def _table(board: Board[R], rows: Sequence[R], summary: str, height: int) -> Table:
    drawn = Table(
        title=f"{board.title}: {summary}", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD
    )
    for name, width in {"": 1, **board.columns}.items():
        drawn.add_column(name, no_wrap=True, min_width=width, justify="right" if name in RIGHT else "left")
    shown = rows[-max(1, height) :]
    for row in shown:
        style = STYLES[row.state]
        drawn.add_row(SIGNS[style], *row.cells, style=style)
    if len(shown) < len(rows):
        drawn.caption = f"and {len(rows) - len(shown)} older ones"
    return drawn


def _evidence(title: str, left: Sequence[str], right: Sequence[str]) -> Table:
    shown = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    for name in left:
        shown.add_column(name)
    for name in right:
        shown.add_column(name, justify="right")
    return shown


def _mark(promise: Promise) -> Text:
    return Text("✓", "bold green") if promise.kept else Text("✗", "bold red")
