"""Since when addresses have been in the allow-list: what `announceBefore` counts from.

The ConfigMap records when the write of each address began. This process counts its own writes from their answers. Of
what another leader wrote only the beginning is known, so that the longest time that a write takes is added: a change
of the leader makes no wait shorter, and none begins again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

Recorded = Mapping[str, datetime | None]
"""When the write of each address began, by its id; None where that was not recorded."""
LONGEST_WRITE = timedelta(seconds=15)
"""From the beginning of a write until it is seen by others: the client gives up after ten seconds."""
LISTED = 10.0
"""Seconds from one look whether an address is listed to the next; its node is queued when it was written, too."""


@dataclass(frozen=True)
class Announcement:
    """An address that is not to be bound yet: listed *since*, and to be bound from *until* on.

    Both are None while it is not listed; *problem* is why the list could not be written.
    """

    since: datetime | None = None
    until: datetime | None = None
    problem: str = ""

    def left(self, now: datetime) -> float:
        """Seconds until the next look."""
        return max(0.0, (self.until - now).total_seconds()) if self.until else LISTED


@dataclass(frozen=True)
class _Listed:
    """*recorded* is what the entry says, *since* what is certain."""

    recorded: datetime | None
    since: datetime


class Announcements:
    """One thread calls `written`, `read` and `failed`; any may call `of`."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._listed: Mapping[str, _Listed] = {}
        self._problem = ""

    def written(self, found: Recorded) -> None:
        """*found* is what the list is from now on."""
        self._update(found, lambda _: self._now())

    def read(self, found: Recorded) -> None:
        """*found* was in the list: written by this process, or by another one."""
        now = self._now()
        self._update(found, lambda since: min(now, since + LONGEST_WRITE) if since else now)

    def failed(self, problem: str) -> None:
        """Empty when the list was written since."""
        self._problem = problem

    def _update(self, found: Recorded, certain: Callable[[datetime | None], datetime]) -> None:
        known, listed = self._listed, dict[str, _Listed]()
        for address_id, recorded in found.items():
            before = known.get(address_id)
            is_same = before is not None and before.recorded == recorded
            listed[address_id] = before if before and is_same else _Listed(recorded, certain(recorded))
        self._listed = listed

    def of(self, address_id: str, seconds: float) -> Announcement | None:
        """None when it has been listed for *seconds*."""
        listed = self._listed.get(address_id)
        if listed is None:
            return Announcement(problem=self._problem)
        until = listed.since + timedelta(seconds=seconds)
        return Announcement(listed.since, until) if self._now() < until else None
