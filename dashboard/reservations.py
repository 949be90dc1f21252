"""The page of IP reservation: reserved IPs by workload, and when they are released."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

from api.ip_reservation import FINISHED
from cli.inventory import Inventory
from cli.ip_reservation.pools import Headroom, headroom
from cli.ip_reservation.reservations import Reservation, listed, segments_of, settings_in_force
from cli.output import Document


class WorkloadView(Document, frozen=True):
    namespace: str
    owner: str
    addresses: int
    not_ended: int
    reasons: dict[str, int]
    next_release: datetime | None


class ReservationsPage(Document, frozen=True):
    """*counted* addresses count towards *limit*: those of pods that are gone.

    *pools_unknown* is why there are no *pools*.
    """

    addresses: int
    counted: int
    limit: int
    workloads: tuple[WorkloadView, ...]
    releases: tuple[Reservation, ...]
    pools: tuple[Headroom, ...]
    pools_unknown: str


def read(inventory: Inventory) -> ReservationsPage:
    segments, settings = segments_of(inventory), settings_in_force(inventory)
    pools, unknown = headroom(inventory, segments)
    reservations = listed(segments, settings)
    ended = [each for each in reservations if each.expires_at]
    return ReservationsPage(
        len(reservations),
        sum(not each.reason.startswith(FINISHED) for each in ended),
        settings.max_count,
        tuple(
            sorted(_workloads(reservations), key=lambda each: (-each.addresses, each.namespace, each.owner))
        ),
        tuple(each for each in ended if not each.kept_by),
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
