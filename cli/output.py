"""One value, shown as its reader wants it: a table for people, JSON or YAML with all of it for programs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from typing import IO, Any, Literal, TypeVar

import click
import msgspec
import yaml
from rich.cells import cell_len
from rich.console import Console, Group
from rich.table import Table as Grid
from rich.text import Text

from runtime import time

Form = Literal["table", "wide", "json", "yaml"]
FORMS: tuple[Form, ...] = ("table", "wide", "json", "yaml")
WIDTH_WITHOUT_TERMINAL = 10_000
"""Lines that are piped are neither cut nor wrapped."""
LARGE = 200
"""Rows of a table that a terminal wraps by itself."""
GAP = 3
"""Blanks between two columns."""
INTERVAL = 2.0
"""Seconds between two looks with --watch."""
Cell = str | Text
T = TypeVar("T")


def printable(text: str) -> str:
    """*text* with a visible escape, such as `\\x1b`, for all that is no letter, sign or blank.

    So it moves no cursor, ends no line, and turns no text around.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def json_printable(text: str) -> str:
    """The same for JSON, with escapes of JSON; line ends stay, which are never within a value."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(each if each == "\n" or each.isprintable() else _json_escape(each) for each in text)


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[begin : begin + 4]}" for begin in range(0, len(units), 4))


class Document(msgspec.Struct, frozen=True, rename="camel"):
    """A value to be shown: *content* is what ``-o json`` prints, also of fields that have their defaults."""

    @property
    def content(self) -> Any:
        return fields_of(self)


class Report(Document, frozen=True):
    """What a command shows."""

    def parts(self, now: datetime) -> Iterable[Part]:
        """For people, from top to bottom."""
        raise NotImplementedError


def fields_of(value: msgspec.Struct) -> dict[str, Any]:
    return {
        name: getattr(value, field)
        for name, field in zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
    }


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def plain(value: Any) -> Any:
    """*value* for an encoder, whole: objects of Kubernetes leave out what has its default."""
    match value:
        case msgspec.Struct():
            content = value.content if isinstance(value, Document) else fields_of(value)
            return plain(content)
        case _ if is_dataclass(value):
            return {_camel(each.name): plain(getattr(value, each.name)) for each in fields(value)}
        case dict():
            return {str(name): plain(each) for name, each in value.items()}
        case list() | tuple():
            return [plain(each) for each in value]
    return msgspec.to_builtins(value)


@dataclass(frozen=True)
class Table:
    """*wide* columns, the last ones, are shown with ``-o wide`` only; *empty* is shown when it has no rows."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    title: str = ""
    empty: str = ""
    wide: int = 0


Part = Table | Text | str
Render = Callable[[T], Iterable[Part]]
"""The parts of what people see of a value, from top to bottom: a function of the value."""


def good(text: str) -> Text:
    return Text(text, "green")


def warning(text: str) -> Text:
    return Text(text, "yellow")


def bad(text: str) -> Text:
    return Text(text, "bold red")


def faint(text: str) -> Text:
    return Text(text, "dim")


def title(text: str) -> Text:
    return Text(text, "bold")


def age(since: datetime | None, now: datetime) -> str:
    """As kubectl writes it: 45s, 12m, 3h, 8d; nothing for no time."""
    return duration((now - since).total_seconds()) if since else ""


def left(at: datetime | None, now: datetime) -> str:
    """Until then; nothing for no time."""
    return duration((at - now).total_seconds()) if at else ""


def moment(at: datetime | None) -> str:
    """A time in full; nothing for none."""
    return f"{at:%Y-%m-%dT%H:%M:%SZ}" if at else ""


def count_of(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def duration(seconds: float) -> str:
    whole = max(0, int(seconds))
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if whole >= 2 * length:
            return f"{whole // length}{unit}"
    return f"{whole}s"


def aligned(rows: Sequence[Sequence[Cell]]) -> Iterator[Cell]:
    """A line for each of *rows*, with cells of one column below each other; Text where a cell of it is."""
    widths = [max(map(_width, cells)) for cells in zip(*rows, strict=True)]
    for row in rows:
        filled = [(cell, " " * (width - _width(cell) + GAP)) for cell, width in zip(row, widths, strict=True)]
        if any(isinstance(cell, Text) for cell in row):
            yield Text.assemble(*(part for pair in filled for part in pair))
        else:
            yield "".join(f"{cell}{blanks}" for cell, blanks in filled).rstrip()


def _width(cell: Cell) -> int:
    text = str(cell)
    return len(text) if text.isascii() else cell_len(text)


class Output:
    def __init__(self, form: Form = "table", *, color: bool = True, file: IO[str] | None = None) -> None:
        self.form: Form = form
        self._console = _console(color, file)

    @property
    def for_people(self) -> bool:
        return self.form in ("table", "wide")

    def show(self, value: T, render: Render[T]) -> None:
        if self.for_people:
            self._print(map(_printable, render(value)))
        else:
            self._echo(self._encoded(value))

    def watch(self, read: Callable[[], T], render: Render[T], interval: float = INTERVAL) -> None:
        """Show the value that *read* returns, again whenever it has changed, until the user interrupts.

        In place on a terminal; without one, one after the other.
        """
        with contextlib.suppress(KeyboardInterrupt):
            self._watch(read, render, interval)

    def _watch(self, read: Callable[[], T], render: Render[T], interval: float) -> None:
        if self.for_people and self._console.is_terminal:
            from rich.live import Live

            with Live(console=self._console, auto_refresh=False, screen=False) as live:
                self._each(
                    read,
                    lambda value: live.update(self._group(map(_printable, render(value))), refresh=True),
                    interval,
                )
        else:
            self._each(read, lambda value: self.show(value, render), interval)

    def say(self, text: Cell) -> None:
        """A line about what was done; on the error stream where the output is for programs."""
        if self.for_people:
            self._console.print(_cell(text), soft_wrap=True)
        else:
            click.echo(printable(str(text)), err=True)

    def _print(self, parts: Iterable[Part]) -> None:
        if not self._console.is_terminal:
            self._echo("\n".join(str(line).rstrip() for part in parts for line in self._lines(part)))
            return
        for part in parts:
            if isinstance(part, Table) and len(part.rows) > LARGE:
                for line in self._lines(part):
                    self._echo(line) if isinstance(line, str) else self._console.print(line, soft_wrap=True)
            else:
                self._console.print(self._group([part]))

    def _lines(self, part: Part) -> Iterator[Cell]:
        """As they are drawn where they are neither cut nor wrapped: rich takes a millisecond for two rows."""
        if not isinstance(part, Table):
            yield part
            return
        if part.title:
            yield title(part.title)
        if part.rows:
            shown = len(part.columns) - (0 if self.form == "wide" else part.wide)
            header = title if not part.title else faint
            columns = [header(each) for each in part.columns[:shown]]
            yield from aligned([columns, *(row[:shown] for row in part.rows)])
        elif part.empty:
            yield faint(part.empty)

    def _each(self, read: Callable[[], T], show: Callable[[T], None], interval: float) -> None:
        before: list[T] = []
        while True:
            value = read()
            if before != [value]:
                show(value)
            before = [value]
            time.sleep(interval)

    def _group(self, parts: Iterable[Part]) -> Group:
        drawn: list[Any] = []
        for part in parts:
            drawn += self._table(part) if isinstance(part, Table) else [part]
        return Group(*drawn)

    def _table(self, table: Table) -> list[Any]:
        heading = [title(table.title)] if table.title else []
        if not table.rows:
            return [*heading, faint(table.empty)] if table.empty else heading
        shown = len(table.columns) - (0 if self.form == "wide" else table.wide)
        grid = Grid(
            box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold" if heading == [] else "dim"
        )
        for name in table.columns[:shown]:
            grid.add_column(name, no_wrap=not self._console.is_terminal, overflow="fold")
        for row in table.rows:
            grid.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row[:shown]))
        return [*heading, grid]

    def _encoded(self, value: object) -> str:
        found = plain(value)
        if self.form == "json":
            return json_printable(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        return _yaml(found)

    def _echo(self, text: str) -> None:
        self._console.file.write(f"{text}\n")
        self._console.file.flush()


def _printable(part: Part) -> Part:
    if not isinstance(part, Table):
        return _cell(part)
    rows = [[_cell(each) for each in row] for row in part.rows]
    return Table(part.columns, rows, printable(part.title), printable(part.empty), part.wide)


def _cell(cell: Cell) -> Cell:
    if isinstance(cell, str):
        return printable(cell)
    return cell if cell.plain.isprintable() else Text(printable(cell.plain), cell.style)


class _Dumper(yaml.SafeDumper):
    """Strings that have to be escaped are quoted: YAML has escapes nowhere else."""


def _represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if text.isprintable() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _represent)


def _yaml(value: object) -> str:
    """Without letters of other languages where one character must be escaped: PyYAML escapes all or few."""
    for unicode in (True, False):
        text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=unicode)
        if text.replace("\n", "").isprintable():
            break
    return text.rstrip("\n")


def _console(color: bool, file: IO[str] | None) -> Console:
    plain = not color or bool(os.environ.get("NO_COLOR"))
    console = Console(file=file, highlight=False, markup=False, emoji=False, no_color=plain or None)
    if not console.is_terminal:
        console.width = WIDTH_WITHOUT_TERMINAL
    return console
