"""The pages, in the order of the navigation, those of single objects, and what is read for each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pkgutil import resolve_name
from typing import Any, Generic, TypeVar

import msgspec
from rich.text import Text

from cli.cluster import Cluster
from cli.errors import Failure, unreadable
from cli.explain.kinds import kind_of
from cli.inventory import Inventory
from cli.output import Cell, Part
from cli.status import Status, status_of
from features import FEATURES
from kube.errors import KubeError
from runtime import threading, time

STYLES = {"green": "good", "yellow": "warning", "bold red": "bad", "dim": "faint", "bold": "title"}
"""The class of each style that `cli.output` gives a text."""
T = TypeVar("T")
INTERVAL = 2.0
"""Seconds between two reads at least."""
SHARE = 5
"""A read is not repeated before this many times its own duration: a large cluster is read less often."""
MOST = 200
"""Rows of a list that are shown; the filter finds the others."""
TITLES = {"pod": "Pod", "ip": "IP", "node": "Node", "ingressdaemonset": "IngressDaemonSet"}


@dataclass(frozen=True)
class Run:
    """A *text* that looks the same throughout, by its *kind*."""

    text: str
    kind: str = ""


Line = tuple[Run, ...]


def line_of(cell: Cell) -> Line:
    if isinstance(cell, str):
        return (Run(cell),) if cell else ()

    def kind(at: int) -> str:
        styles = [str(span.style) for span in cell.spans if span.start <= at < span.end]
        return STYLES.get(styles[-1] if styles else str(cell.style), "")

    edges = {edge for span in cell.spans for edge in (span.start, span.end)}
    cuts = sorted({0, len(cell.plain), *edges})
    return tuple(Run(cell.plain[begin:end], kind(begin)) for begin, end in pairwise(cuts))


class Feed(Generic[T]):
    """Safe to use from any thread: one reads, and the others have what was read last, or wait for the first."""

    def __init__(self, read: Callable[[], T], clock: Callable[[], float] = time.monotonic) -> None:
        self._read, self._clock = read, clock
        self._lock = threading.Lock()
        self._latest: tuple[T] | None = None
        self._due = 0.0

    def latest(self) -> T:
        before = self._latest
        if before and self._lock.locked():
            return before[0]
        with self._lock:
            if self._latest is None or self._clock() >= self._due:
                began = self._clock()
                self._latest = (self._read(),)
                ended = self._clock()
                self._due = ended + max(INTERVAL, SHARE * (ended - began))
            return self._latest[0]

    def expire(self) -> None:
        """Read again for the next who looks: something was written."""
        with self._lock:
            self._latest = None


@dataclass(frozen=True)
class Page:
    """Its feed has the value to show, or why it cannot be read. *command* prints the same; *now* is for ages."""

    name: str
    title: str
    path: str
    feed: Feed[Any]
    now: Callable[[], datetime]
    command: str = ""

    @property
    def template(self) -> str:
        """The pages of single objects have one template."""
        return f"{self.name.partition('/')[0]}.html"


def pages_of(cluster: Cluster, read_only: bool = False) -> list[Page]:
    """All raise KubeError, or Failure when Drawbridge is not installed. With *read_only*, no Secret is read."""

    def overview(inventory: Inventory) -> Status:
        return status_of(inventory, secrets=not read_only)

    def page(name: str, title: str, path: str, read: Callable[[Inventory], Any]) -> Page:
        feed = Feed(_caught(lambda: read(Inventory(cluster))))
        return Page(name, title, path, feed, cluster.now)

    return [
        page("overview", "Overview", "/", overview),
        *(
            page(name, title, f"/{name}", resolve_name(read))
            for row in FEATURES
            for name, (read, title) in row.pages.items()
        ),
    ]


def explanation_of(cluster: Cluster, kind: str, name: str) -> Page | None:
    """The page of one object, by its name, after its namespace if it has one; None for no such object."""
    known = kind_of(kind)
    namespace, _, rest = name.rpartition("/")
    if known is None or known.namespaced != bool(namespace) or "/" in namespace or not rest:
        return None

    def read() -> list[Part]:
        return [*known.explain(Inventory(cluster), namespace, rest).parts(cluster.now())]

    command = f"drawbridge explain {kind} {rest}" + (f" -n {namespace}" if namespace else "")
    place = f"explain/{kind}/{name}"
    return Page(place, f"{TITLES[kind]} {name}", f"/{place}", Feed(_caught(read)), cluster.now, command)


def words(name: str) -> str:
    """A name of the API as people write it: RollingOut is Rolling out."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).capitalize()


def matching(rows: Iterable[T], query: str, *context: str) -> list[T]:
    """Those that have all words of the *query* in their texts, or in the *context* that they have in common."""
    wanted = query.casefold().split()
    if not wanted:
        return [*rows]

    def matches(row: T) -> bool:
        text = "\n".join((*context, *_texts(row))).casefold()
        return all(each in text for each in wanted)

    return [row for row in rows if matches(row)]


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case Text():
            yield value.plain
        case msgspec.Struct():
            for name in value.__struct_fields__:
                yield from _texts(getattr(value, name))
        case Mapping():
            yield from _texts([*value.items()])
        case Sequence():
            for each in value:
                yield from _texts(each)


def _caught(read: Callable[[], Any]) -> Callable[[], Any]:
    def caught() -> Any:
        try:
            return read()
        except (KubeError, Failure) as error:
            return unreadable(error)

    return caught
