"""The pages, in the order of the navigation, and what is read for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cli.cluster import Cluster
from cli.errors import Failure, unreadable
from cli.output import age, duration
from dashboard.feed import Feed
from dashboard.reader import Reader
from kube.errors import KubeError


@dataclass(frozen=True)
class Page:
    """*name* is that of its template, too; its feed has the value to show, or why it cannot be read."""

    name: str
    title: str
    path: str
    feed: Feed[Any]


def pages_of(cluster: Cluster) -> list[Page]:
    reader = Reader(cluster)
    return [
        Page("overview", "Overview", "/", Feed(_caught(reader.overview))),
        Page("reservations", "IP reservation", "/reservations", Feed(_caught(reader.reservations))),
        Page("addresses", "Anycast IP", "/addresses", Feed(_caught(reader.addresses))),
        Page("elasticity", "Elasticity", "/elasticity", Feed(_caught(reader.elasticity))),
        Page("rollouts", "Rollouts", "/rollouts", Feed(_caught(reader.rollouts))),
    ]


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
