"""Metrics of Calico's pools."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import Gauge

from controllers.ip_reservation.pool_usage import Pool

ADDRESSES = Gauge("drawbridge_pool_addresses", "Addresses of an IPPool that is not disabled.", ["pool"])
ASSIGNED = Gauge("drawbridge_pool_assigned_addresses", "Addresses of an IPPool that are assigned.", ["pool"])
RESERVED = Gauge(
    "drawbridge_pool_reserved_addresses",
    "Addresses of an IPPool that are not assigned, and kept back by any IPReservation.",
    ["pool"],
)
FREE = Gauge(
    "drawbridge_pool_free_addresses",
    "Addresses of an IPPool that are neither assigned nor reserved: new pods get them.",
    ["pool"],
)
GAUGES = (ADDRESSES, ASSIGNED, RESERVED, FREE)


class PoolReporter:
    """Shows no figure that is not known any more."""

    def __init__(self) -> None:
        self._shown: set[str] = set()

    def inventory(self, pools: Sequence[Pool] | None) -> None:
        names = {each.name for each in pools or ()}
        for name in self._shown - names:
            for gauge in GAUGES:
                gauge.remove(name)
        for each in pools or ():
            usage = each.usage
            for gauge, value in zip(
                GAUGES, (usage.addresses, usage.assigned, usage.reserved, usage.free), strict=True
            ):
                gauge.labels(each.name).set(value)
        self._shown = names
