"""Whether the pools have changed so much since the last pass that the next one should not wait for its time.

An address that is assigned takes one of the room. One that becomes unassigned may have become a reservation, which
counts against the room's share. What a pass leaves says how many of both a pool can bear.
"""

from __future__ import annotations

from collections.abc import Iterable

from calico.address_ranges import Range, overlap
from calico.pools import Block
from controllers.ip_reservation.pool_usage import Pool


class PressureGauge:
    """For the *share*, in percent, of each pool's room that may be reserved. It counts in percent of addresses."""

    def __init__(self, pools: Iterable[Pool], share: int = 100) -> None:
        self._share = share
        self._left: dict[Range, int] = {
            each.range: each.room * share - len(each.ours) * 100 for each in pools if share < 100
        }

    def rises(self, old: Block | None, new: Block | None) -> bool:
        """Whether a pool may be short after this change of a block."""
        known = new or old
        if known is None:
            return False
        before, after = (each.assigned if each else 0 for each in (old, new))
        assigned, unassigned = (after & ~before).bit_count(), (before & ~after).bit_count()
        cost = assigned * self._share + unassigned * (100 - self._share)
        for whole, left in self._left.items():
            if overlap(whole, known.range):
                self._left[whole] = left - cost
                return cost > 0 and left < cost
        return False
