"""One value, shown as its reader wants it: a table for people, JSON or YAML with all of it for programs."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import datetime
from functools import partial
from itertools import zip_longest
from typing import IO, Any, Literal, TypeVar

import click
import msgspec
import yaml
from rich.cells import cell_len
from rich.console import Console, Group
from rich.text import Text

from runtime import time

Form = Literal["table", "wide", "json", "yaml"]
FORMS: tuple[Form, ...] = ("table", "wide", "json", "yaml")
GAP = 3
"""Blanks between two columns."""
NARROW_GAP = 2
"""The same where a table is too wide for the terminal."""
INDENT = 4
"""Of what belongs to the line above; a line that begins with two blanks is continued there."""
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
    return "".join(each if each == "\n" or each.isprintable() else json.dumps(each)[1:-1] for each in text)


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


def plain(value: Any) -> Any:
    """*value* for an encoder, whole: objects of Kubernetes leave out what has its default."""
    match value:
        case msgspec.Struct():
            content = value.content if isinstance(value, Document) else fields_of(value)
            return plain(content)
        case _ if is_dataclass(value):
            names = {
                each.name: re.sub("_(.)", lambda found: found[1].upper(), each.name) for each in fields(value)
            }
            return {camel: plain(getattr(value, name)) for name, camel in names.items()}
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
Style = Callable[[str], Text]
good: Style = partial(Text, style="green")
warning: Style = partial(Text, style="yellow")
bad: Style = partial(Text, style="bold red")
faint: Style = partial(Text, style="dim")
title: Style = partial(Text, style="bold")


def age(since: datetime | None, now: datetime) -> str:
    """As kubectl writes it: 45s, 12m, 3h, 8d; nothing for no time."""
    return duration((now - since).total_seconds()) if since else ""


def left(at: datetime | None, now: datetime) -> str:
    """Until then; nothing for no time."""
    return duration((at - now).total_seconds()) if at else ""


def until(at: datetime, now: datetime) -> str:
    return f"in {left(at, now)}" if at > now else f"{age(at, now)} ago"


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


def _width(cell: Cell) -> int:
    text = str(cell)
    return len(text) if text.isascii() else cell_len(text)


def spaced(parts: Iterable[Part]) -> Iterator[Part]:
    """With a blank line before and after each table that has rows."""
    before: Part | None = None
    for part in parts:
        tables = [each for each in (before, part) if isinstance(each, Table) and each.rows]
        if before is not None and tables and not {str(before), str(part)} & {""}:
            yield ""
        yield part
        before = part


def _words(cells: Iterable[Cell]) -> int:
    """The width of the longest word."""
    return max((cell_len(word) for cell in cells for word in str(cell).split()), default=1)


def fitted(natural: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Widths of columns that take no more than *room*.

    Each has at least the width of its longest word, and those that miss little are filled first. If the words alone
    are too wide, the widest columns break theirs.
    """
    widths = [*least]
    while sum(widths) > room and max(widths) > 1:
        widths[widths.index(max(widths))] -= 1
    spare = max(0, room - sum(widths))
    missing = sorted(range(len(widths)), key=lambda at: natural[at] - widths[at])
    for done, at in enumerate(missing):
        more = max(0, min(natural[at] - widths[at], spare // (len(missing) - done)))
        widths[at], spare = widths[at] + more, spare - more
    return widths


def _drawn(rows: Iterable[Sequence[Cell]], widths: Sequence[int], gap: int) -> Iterator[Cell]:
    """A line for each row, with cells of one column below each other; Text where a cell of it is."""
    ends = (*(each + gap for each in widths[:-1]), 0)
    for row in rows:
        filled = [(cell, " " * (end - _width(cell))) for cell, end in zip(row, ends, strict=True)]
        if any(isinstance(cell, Text) for cell in row):
            yield Text.assemble(*(part for pair in filled for part in pair))
        else:
            yield "".join(f"{cell}{blanks}" for cell, blanks in filled)


def _text(cell: Cell) -> Text:
    return cell if isinstance(cell, Text) else Text(cell)


class Output:
    def __init__(
        self, form: Form = "table", *, color: bool = True, file: IO[str] | None = None, clock: Any = time
    ) -> None:
        self.form, self._clock = form, clock
        self._for_people = form in ("table", "wide")
        plain = not color or bool(os.environ.get("NO_COLOR"))
        self._console = Console(file=file, highlight=False, markup=False, emoji=False, no_color=plain or None)

    def show(self, value: T, render: Render[T]) -> None:
        if not self._for_people:
            self._echo(self._encoded(value))
        elif self._console.is_terminal:
            for line in self._lines(render(value)):
                self._echo(line) if isinstance(line, str) else self._console.print(line, soft_wrap=True)
        else:
            self._echo("\n".join(str(line).rstrip() for line in self._lines(render(value))))

    def watch(self, read: Callable[[], T], render: Render[T]) -> None:
        """Show the value that *read* returns until the user interrupts.

        In place on a terminal, with its ages as they are; without one, again whenever it has changed.
        """
        before: list[T] = []
        with contextlib.suppress(KeyboardInterrupt), contextlib.ExitStack() as stack:
            live = None
            if self._for_people and self._console.is_terminal:
                from rich.live import Live

                live = stack.enter_context(Live(console=self._console, auto_refresh=False))
            while True:
                value = read()
                if live:
                    live.update(Group(*self._lines(render(value))), refresh=True)
                elif before != [value]:
                    self.show(value, render)
                before = [value]
                self._clock.sleep(INTERVAL)

    def wait(
        self, read: Callable[[], T], line: Callable[[T], str], is_over: Callable[[T], bool], limit: float = 0
    ) -> T:
        """The value that *read* returns once *is_over*, or after *limit* seconds; 0 is no limit.

        Its *line* is said whenever it has changed.
        """
        ends, said = self._clock.monotonic() + limit if limit else math.inf, ""
        while True:
            value = read()
            if (now := line(value)) != said:
                self.say(now)
                said = now
            left = ends - self._clock.monotonic()
            if is_over(value) or left <= 0:
                return value
            self._clock.sleep(min(INTERVAL, left))

    def say(self, text: Cell) -> None:
        """A line about what was done; on the error stream where the output is for programs."""
        if self._for_people:
            self._console.print(_cell(text), soft_wrap=True)
        else:
            click.echo(printable(str(text)), err=True)

    def _lines(self, parts: Iterable[Part]) -> Iterator[Cell]:
        """As a terminal shows them; without one they are neither cut nor wrapped."""
        width = self._console.width if self._console.is_terminal else math.inf
        for part in spaced(map(_printable, parts)):
            if not isinstance(part, Table):
                yield from self._folded(part, width)
                continue
            if part.title:
                yield from self._folded(title(part.title), width)
            if part.rows:
                yield from self._rows(part, width)
            elif part.empty:
                yield from self._folded(faint(part.empty), width)

    def _folded(self, line: Cell, width: float) -> Iterator[Cell]:
        """Continued below its text where it is indented."""
        if _width(line) <= width:
            yield line
            return
        text, indent = _text(line), INDENT if str(line).startswith("  ") else 0
        for number, each in enumerate(
            text[indent:].wrap(self._console, int(width) - indent, overflow="fold")
        ):
            yield Text.assemble(" " * indent if number else text[:indent], each)

    def _rows(self, table: Table, width: float) -> Iterator[Cell]:
        """Words are whole where there is room; columns without a cell, too, give theirs to the others."""
        shown = len(table.columns) - (0 if self.form == "wide" else table.wide)
        header, gap = faint if table.title else title, GAP
        rows = [[header(name) for name in table.columns[:shown]], *(row[:shown] for row in table.rows)]
        widths = [max(map(_width, cells)) for cells in zip(*rows, strict=True)]
        if sum(widths) + gap * (shown - 1) <= width:
            return _drawn(rows, widths, gap)
        used = [at for at in range(shown) if any(str(row[at]) for row in rows[1:])]
        rows, gap = [[row[at] for at in used] for row in rows], NARROW_GAP
        words, room = [*map(_words, zip(*rows, strict=True))], int(width) - gap * (len(used) - 1)
        fit = fitted([widths[at] for at in used], words, room)
        return _drawn((line for row in rows for line in self._wrapped(row, fit)), fit, gap)

    def _wrapped(self, row: Sequence[Cell], widths: Sequence[int]) -> Iterator[Sequence[Cell]]:
        """In as many lines as its longest cell takes."""
        cells = zip(map(_text, row), widths, strict=True)
        columns = (cell.wrap(self._console, width, overflow="fold") for cell, width in cells)
        return zip_longest(*columns, fillvalue=Text())

    def _encoded(self, value: object) -> str:
        found = plain(value)
        if self.form == "json":
            return json_printable(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
        # PyYAML would leave signs that turn a text around; so it escapes letters of other languages, too.
        text: str = yaml.safe_dump(found, sort_keys=False)
        return text.rstrip("\n")

    def _echo(self, text: str) -> None:
        self._console.file.write(f"{text}\n")
        self._console.file.flush()


def _printable(part: Part) -> Part:
    if not isinstance(part, Table):
        return _cell(part)
    rows = [[_cell(each) for each in row] for row in part.rows]
    return replace(part, rows=rows, title=printable(part.title), empty=printable(part.empty))


def _cell(cell: Cell) -> Cell:
    if isinstance(cell, str):
        return printable(cell)
    return cell if cell.plain.isprintable() else Text(printable(cell.plain), cell.style)
