"""Nodes by state, how long they took to open, and what is left of the cloud's quotas: functions of values."""

from __future__ import annotations

from statistics import median

from cli.addresses import Address, Addresses, QuotaLeft
from cli.output import Document


class AddressesPage(Document, frozen=True):
    """*usual* is the median of the seconds in which nodes opened, *slowest* the longest; None when none is known."""

    found: Addresses
    usual: float | None
    slowest: float | None

    @property
    def addresses(self) -> tuple[Address, ...]:
        return self.found.addresses

    @property
    def quotas(self) -> tuple[QuotaLeft, ...]:
        return self.found.quotas


def page_of(found: Addresses) -> AddressesPage:
    times = [each.opened_after for each in found.addresses if each.opened_after is not None]
    return AddressesPage(found, median(times) if times else None, max(times, default=None))
