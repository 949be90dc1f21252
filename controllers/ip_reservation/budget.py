"""Plan which reservations are too many: for their namespace, for what their pool has left, or for the cluster.

Of each the oldest are released. Only reservations whose time has begun count, so neither addresses that pods still
have nor unconfirmed ones displace any. Without pools, or where they are not known, none is too many for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from calico.segment import Record
from controllers.ip_reservation.copies import Identity
from controllers.ip_reservation.pool_usage import Pool

Reserved = Mapping[Identity, Record]


def beyond_namespaces(reserved: Reserved, most: int) -> Iterable[Identity]:
    """So that *most* addresses of each namespace stay; 0 is no limit."""
    if not most:
        return ()
    by_namespace: dict[str, dict[Identity, Record]] = {}
    for identity, record in reserved.items():
        if record.namespace:  # else it is of no pod
            by_namespace.setdefault(record.namespace, {})[identity] = record
    return [identity for held in by_namespace.values() for identity in beyond(held, most)]


def beyond_pools(reserved: Reserved, pools: Iterable[Pool], share: int) -> Iterable[Identity]:
    """So that of each pool's room at most *share* percent stay reserved by us."""
    surplus: list[Identity] = []
    for pool in pools:
        held = {identity: record for identity, record in reserved.items() if record.cidr in pool.ours}
        surplus += beyond(held, pool.room * share // 100)
    return surplus


def beyond(reserved: Reserved, count: int) -> Sequence[Identity]:
    """The records whose time began first, so that *count* addresses stay."""
    latest = {record.cidr: _began(record) for record in sorted(reserved.values(), key=_began)}
    oldest_first = sorted(latest, key=lambda cidr: latest[cidr])
    surplus = set(oldest_first[: max(0, len(oldest_first) - count)])
    return [identity for identity, record in reserved.items() if record.cidr in surplus]


def _began(record: Record) -> tuple[datetime, datetime]:
    return record.ended or record.at, record.at
