"""The page of IP reservation: reserved IPs by workload, and when they are released."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from api.ip_reservation import FINISHED
from cli.inventory import Inventory
from cli.ip_reservation.pools import Headroom, headroom
from cli.ip_reservation.reservations import Reservation, listed, segments_of, settings_of
from cli.output import Document, duration

BARS = 12
"""Parts of the time line."""


class WorkloadView(Document, frozen=True):
    namespace: str
    owner: str
    addresses: int
    not_ended: int
    reasons: dict[str, int]
    next_release: datetime | None


class Bar(Document, frozen=True):
    """Releases from *begins* to *ends*, in words; *height* is the share of the highest bar, in percent."""

    begins: str
    ends: str
    releases: int
    height: int


class ReservationsPage(Document, frozen=True):
    """*counted* addresses count towards *limit*: those of pods that are gone.

    *pools_unknown* is why there are no *pools*.
    """

    addresses: int
    counted: int
    limit: int
    workloads: tuple[WorkloadView, ...]
    bars: tuple[Bar, ...]
    releases: tuple[Reservation, ...]
    pools: tuple[Headroom, ...]
    pools_unknown: str


def read(inventory: Inventory) -> ReservationsPage:
    segments, settings, now = segments_of(inventory), settings_of(inventory), inventory.now()
    pools, unknown = headroom(inventory, segments)
    reservations = listed(segments, settings)
    ended = [each for each in reservations if each.expires_at]
    coming = [each for each in ended if not each.kept_by]
    return ReservationsPage(
        len(reservations),
        sum(not each.reason.startswith(FINISHED) for each in ended),
        settings.max_count,
        tuple(
            sorted(_workloads(reservations), key=lambda each: (-each.addresses, each.namespace, each.owner))
        ),
        tuple(_bars(coming, timedelta(seconds=settings.duration), now)),
        tuple(coming),
        pools,
        unknown,
    )


def _workloads(reservations: Sequence[Reservation]) -> Iterator[WorkloadView]:
    by_workload: dict[tuple[str, str], list[Reservation]] = {}
    for each in reservations:
        by_workload.setdefault((each.namespace, each.owner or each.pod), []).append(each)
    for (namespace, owner), held in by_workload.items():
        releases = [each.expires_at for each in held if each.expires_at and not each.kept_by]
        yield WorkloadView(
            namespace,
            owner,
            len(held),
            sum(not each.expires_at for each in held),
            dict(Counter(each.reason or "unknown" for each in held).most_common()),
            min(releases, default=None),
        )


def _bars(coming: Sequence[Reservation], whole: timedelta, now: datetime) -> Iterator[Bar]:
    """The reserve time that lies ahead, in equal parts; what is overdue belongs to the first."""
    part = whole.total_seconds() / BARS
    ahead = ((each.expires_at - now).total_seconds() for each in coming if each.expires_at)
    counted = Counter(min(BARS - 1, max(0, int(seconds // part))) for seconds in ahead)
    for index in range(BARS if coming else 0):
        begins, ends = duration(index * part), duration((index + 1) * part)
        height = round(100 * counted[index] / max(counted.values()))
        yield Bar(begins, ends, counted[index], height)
