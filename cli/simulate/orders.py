"""The addresses to order for more nodes: how many, how long that takes, and the quotas for them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from api.anycast_ip import is_tainted, wanted
from api.ingress_daemonset.node_matching import FollowedNode
from cli.output import Document, Part, Table, count_of, duration, warning
from cloud.apis import ALLOCATE
from controllers.anycast_ip.quotas import QuotasRead
from settings import Settings

TAG_VALUES = 2
"""Each address has two tags with their own values: the name of its node and the id of its instance."""


@dataclass(frozen=True)
class Supply:
    """Of addresses: so many are there or *ordered* already, *idle* are those of them that no node uses.

    *quotas* is None where they are not known. *announced* of the idle ones may be bound at once.
    """

    ordered: int
    idle: int = 0
    quotas: QuotasRead | None = None
    announced: int = 0


class Quota(Document, frozen=True):
    """*needed* of the cloud's quota; *left* is what the leader last read, and None where that is not known.

    *limit* is then that of the account, else the usual one.
    """

    quota: str
    needed: int
    usual_limit: int | None
    counts: str
    limit: int | None = None
    left: int | None = None


class Orders(Document, frozen=True):
    """*waiting* nodes are before the new ones; *seconds* from the first order to the last, for both.

    *from_pool* of the new ones get an idle address; *needed* is how many are ordered. Each address is announced for
    *announced_for* seconds before it is bound, but *announced* of the idle ones have been for so long.
    """

    address_type: str
    needed: int
    from_pool: int
    waiting: int
    in_cluster: int
    per_second: float
    seconds: float
    quotas: tuple[Quota, ...]
    announced_for: float = 0.0
    announced: int = 0


def orders_for(count: int, nodes: Iterable[FollowedNode], supply: Supply, settings: Settings) -> Orders:
    """So that *count* new nodes get their addresses, after those of *nodes* that wait."""
    waiting = sum(wanted(each, settings.anycast_ip) and is_tainted(each) for each in nodes)
    per_second = ALLOCATE.rate * settings.cloud.rate_share
    from_pool = min(count, max(0, supply.idle - waiting))
    needed = count - from_pool
    return Orders(
        address_type=settings.anycast_ip.address_type,
        needed=needed,
        from_pool=from_pool,
        waiting=waiting,
        in_cluster=supply.ordered,
        per_second=per_second,
        seconds=max(0, waiting + count - supply.idle) / per_second,
        quotas=(
            _quota(supply, needed, "TOTAL_EIP_QUOTA", 20, "addresses of the account in the region"),
            _quota(supply, needed, "DAILY_EIP_APPLY", 40, "orders of the account on a day"),
            Quota("tag values", TAG_VALUES * needed, None, "the name and the instance of each node"),
        ),
        announced_for=settings.anycast_ip.allow_list.announce_before,
        announced=supply.announced,
    )


def _quota(supply: Supply, needed: int, name: str, usual: int, counts: str) -> Quota:
    known = supply.quotas
    read = next((each for each in (known.quotas if known else ()) if each.id == name), None)
    if read is None:
        return Quota(name, needed, usual, counts)
    return Quota(name, needed, usual, counts, read.limit, read.limit - read.current)


def order_parts(orders: Orders, shown_by: str) -> Iterator[Part]:
    """*shown_by* is the command that shows quotas which are not known here."""
    if orders.from_pool:
        yield f"From the pool, without an order: {count_of(orders.from_pool, 'address', 'addresses')}."
    first = f" after {count_of(orders.waiting, 'node')} waiting already" if orders.waiting else ""
    yield (
        f"Type {orders.address_type}; the cluster has {orders.in_cluster} now. All are ordered in"
        f" {duration(orders.seconds)}{first}, at {orders.per_second:g} a second, if the quotas suffice."
    )
    if orders.announced_for:
        known = f"; idle and announced for that long: {orders.announced}" if orders.from_pool else ""
        yield f"Each is in the allow-list for {duration(orders.announced_for)} before it is bound{known}."
    rows = [(each.quota, str(each.needed), _limit(each), _left(each), each.counts) for each in orders.quotas]
    yield Table(("QUOTA", "NEEDED", "LIMIT", "LEFT", "COUNTS"), rows)
    short = [each.quota for each in orders.quotas if each.left is not None and each.needed > each.left]
    if short:
        yield warning(f"More than is left: {', '.join(short)}.")
    over = [
        each.quota
        for each in orders.quotas
        if each.left is None and each.usual_limit and each.needed > each.usual_limit
    ]
    if over:
        yield warning(f"More than the cloud grants unless it was raised: {', '.join(over)}.")
    if any(each.left is not None for each in orders.quotas):
        yield "What is left is what the leader last read: drawbridge addresses list says when."
        return
    yield f"What is left is known to the leader, which drawbridge status names: {shown_by}"


def _limit(quota: Quota) -> str:
    if quota.limit is not None:
        return str(quota.limit)
    return f"{quota.usual_limit} unless raised" if quota.usual_limit else ""


def _left(quota: Quota) -> str:
    return "unknown" if quota.left is None else str(quota.left)
