"""The pages, in the order of the navigation, those of single objects, and what is read for each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import pairwise
from typing import Any, Generic, TypeVar

from rich.text import Text

from api.ingress_daemonset import GROUP, INGRESS_DAEMONSETS, NODE_LABEL, PLURAL
from api.ingress_daemonset.node_matching import FollowedNode
from cli.access import Access
from cli.addresses import Addresses
from cli.cluster import Cluster
from cli.commands.addresses import addresses_of
from cli.commands.explain import kind_of
from cli.commands.reservations import read as read_reservations
from cli.commands.rollout import Patch, revisions_of, stored_of
from cli.commands.rollout import write as write_change
from cli.commands.status import facts_of
from cli.errors import Failure, unreadable
from cli.inventory import Inventory
from cli.objects import Pod, StoredResource
from cli.output import Cell, Part, Table, age, duration
from cli.placements import listed as placements_listed
from cli.revisions import aborted, undo
from cli.rollouts import pause, promote, rollout_of
from cli.status import Status, status_of
from controllers.ingress_daemonset.children import Workload
from dashboard import elasticity, reservations, rollouts
from kube.client import Client
from kube.errors import Conflict, KubeError
from kube.resources import DEPLOYMENTS, NODES, PODS, Selection
from kube.types import is_super
from runtime import threading, time, utc_now

STYLES = {"green": "good", "yellow": "warning", "bold red": "bad", "dim": "faint", "bold": "title"}
"""The class of each style that `cli.output` gives a text."""
T = TypeVar("T")
INTERVAL = 2.0
"""Seconds between two reads at least."""
SHARE = 5
"""A read is not repeated before this many times its own duration: a large cluster is read less often."""
TITLES = {"pod": "Pod", "ip": "IP", "node": "Node", "ingressdaemonset": "IngressDaemonSet"}
Write = Callable[[str, str, str, str], None]
"""Of a namespace, a name, one of VERBS, and the stamp of the rollout that the page showed."""


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


class Feed(Generic[T]):
    """Safe to use from any thread: one reads, and the others wait for what it finds."""

    def __init__(self, read: Callable[[], T], clock: Callable[[], float] = time.monotonic) -> None:
        self._read, self._clock = read, clock
        self._lock = threading.Lock()
        self._latest: tuple[T] | None = None
        self._due = 0.0

    def latest(self) -> T:
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
            self._due = 0.0


@dataclass(frozen=True)
class Page:
    """Its feed has the value to show, or why it cannot be read. *command* prints the same; *now* is for ages."""

    name: str
    title: str
    path: str
    feed: Feed[Any]
    command: str = ""
    now: Callable[[], datetime] = utc_now

    @property
    def template(self) -> str:
        """The pages of single objects have one template."""
        return f"{self.name.partition('/')[0]}.html"


def pages_of(cluster: Cluster, read_only: bool = False) -> list[Page]:
    reader, page = PageReader(cluster, read_only), partial(Page, now=cluster.now)
    return [
        page("overview", "Overview", "/", Feed(_caught(reader.overview))),
        page("reservations", "IP reservation", "/reservations", Feed(_caught(reader.reservations))),
        page("addresses", "Anycast IP", "/addresses", Feed(_caught(reader.addresses))),
        page("elasticity", "Elasticity", "/elasticity", Feed(_caught(reader.elasticity))),
        page("rollouts", "Rollouts", "/rollouts", Feed(_caught(reader.rollouts))),
    ]


def explanation_of(cluster: Cluster, kind: str, name: str) -> Page | None:
    """The page of one object, by its name, after its namespace if it has one; None for no such object."""
    known = kind_of(kind)
    namespace, _, rest = name.rpartition("/")
    if known is None or known.namespaced != bool(namespace) or "/" in namespace or not rest:
        return None

    def read() -> list[Line | Grid]:
        facts = known.read(Inventory(cluster), namespace, rest)
        return shown(known.parts(known.explain(facts)))

    command = f"drawbridge explain {kind} {rest}" + (f" -n {namespace}" if namespace else "")
    place = f"explain/{kind}/{name}"
    return Page(place, f"{TITLES[kind]} {name}", f"/{place}", Feed(_caught(read)), command, cluster.now)


def until(moment: datetime, now: datetime) -> str:
    return f"in {duration((moment - now).total_seconds())}" if moment > now else f"{age(moment, now)} ago"


def slug(text: str) -> str:
    """As an element's id: the same for the same object."""
    return "".join(each if each.isalnum() else "-" for each in text)


def _caught(read: Callable[[], Any]) -> Callable[[], Any]:
    def caught() -> Any:
        try:
            return read()
        except KubeError as error:
            return unreadable(error)
        except Failure as failure:
            return failure

    return caught


class PageReader:
    """All raise KubeError, or Failure when Drawbridge is not installed."""

    def __init__(self, cluster: Cluster, read_only: bool = False) -> None:
        """With *read_only*, no Secret is read, and nothing can be changed."""
        self.cluster, self._read_only = cluster, read_only
        self._may_change: dict[str, bool] = {}

    def overview(self) -> Status:
        return status_of(facts_of(Inventory(self.cluster), secrets=not self._read_only), self.cluster.now())

    def reservations(self) -> reservations.ReservationsPage:
        inventory = Inventory(self.cluster)
        found = read_reservations(inventory)
        return reservations.page_of(found, inventory.pools(found.segments), inventory.now())

    def addresses(self) -> Addresses:
        return addresses_of(Inventory(self.cluster))

    def elasticity(self) -> elasticity.ElasticityPage:
        inventory = Inventory(self.cluster)
        pods = partial(inventory.list, PODS, Pod)
        found = self.cluster.read_all({"nodes": inventory.nodes, "pods": pods})
        super_nodes = {each.metadata.name for each in found["nodes"] if is_super(each)}
        return elasticity.page_of(placements_listed(found["pods"], super_nodes))

    def rollouts(self) -> rollouts.RolloutsPage:
        inventory, ours = Inventory(self.cluster), Selection(label_selector=NODE_LABEL)
        found = self.cluster.read_all(
            {
                "rollouts": partial(inventory.list, INGRESS_DAEMONSETS, dict[str, Any]),
                "nodes": partial(inventory.cached, NODES, FollowedNode),
                "deployments": partial(inventory.list, DEPLOYMENTS, Workload, ours),
            }
        )
        raw = found["rollouts"]
        writable = self._writable({each["metadata"]["namespace"] for each in raw})
        values = rollouts.Found(raw, found["nodes"], found["deployments"], writable)
        return rollouts.page_of(values, self.cluster.now())

    def _writable(self, namespaces: Collection[str]) -> set[str]:
        """Where the user may pause rollouts; asked once: what changes later, a write shows."""
        if self._read_only:
            return set()
        unknown = [name for name in namespaces if name not in self._may_change]
        asked = {name: Access("patch", PLURAL, GROUP, name) for name in unknown}
        may = Inventory(self.cluster).may
        answers = self.cluster.read({name: partial(may, access) for name, access in asked.items()})
        self._may_change |= {name: may for name, may in answers.items() if not isinstance(may, KubeError)}
        return {each for each in namespaces if self._may_change.get(each)}


def _abort(client: Client, stored: StoredResource) -> Patch:
    return undo(aborted(stored, revisions_of(client, stored)))


VERBS: Mapping[str, Callable[[Client, StoredResource], Patch | None]] = {
    "pause": lambda _, stored: pause(stored, True),
    "resume": lambda _, stored: pause(stored, False),
    "promote": lambda _, stored: promote(stored),
    "abort": _abort,
}
"""The patch of each; None when there is nothing to do."""


def writer_of(cluster: Cluster) -> Write:
    def write(namespace: str, name: str, verb: str, shown: str) -> None:
        """KubeError; Failure for another rollout than was *shown*, or when there is nothing to return to."""
        stored = stored_of(cluster.client, namespace, name)
        if rollout_of(stored).stamp != shown:
            raise _outdated()
        try:
            write_change(cluster.client, stored, partial(VERBS[verb], cluster.client))
        except Conflict:
            raise _outdated() from None

    return write


def _outdated() -> Failure:
    return Failure(
        "the rollout was changed in the meantime; nothing was changed by you", "go back, and repeat it"
    )
