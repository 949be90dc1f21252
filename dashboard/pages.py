"""The pages, in the order of the navigation, those of single objects, and what is read for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from cli.cluster import Cluster
from cli.errors import Failure, unreadable
from cli.explain.kinds import KINDS
from cli.explain.reader import Reader
from cli.output import age, duration
from dashboard.explanations import Grid, Line, shown
from dashboard.feed import Feed
from dashboard.reader import Reader as PageReader
from kube.errors import KubeError
from runtime import utc_now

TITLES = {"pod": "Pod", "ip": "IP", "node": "Node", "ingressdaemonset": "IngressDaemonSet"}


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
    known = KINDS.get(kind)
    namespace, _, rest = name.rpartition("/")
    if known is None or known.namespaced != bool(namespace) or "/" in namespace or not rest:
        return None

    def read() -> list[Line | Grid]:
        facts = known.read(Reader(cluster), namespace, rest)
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
