"""At which hours something holds: any of several windows, written as that of an IngressDaemonSet is."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from settings import windows
from settings.values import Matching, Model

AHEAD = timedelta(days=14)
"""How far hours are followed for their end."""
_NO_ZONE = "is not known; write one of the IANA database, such as Europe/Berlin"


def _known(name: str) -> str:
    if windows.zone_of(Hours.model_construct(time_zone=name)) is None:
        raise ValueError(f"{name!r} {_NO_ZONE}")
    return name


class Hours(Model):
    """From *start* on, as a clock in *time_zone* shows it, on these days; no days are every day."""

    days: tuple[Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"], ...] = ()
    start: Annotated[
        str,
        Matching(windows.START.pattern, 'is not a time; write hours and minutes in quotes, such as "08:00"'),
    ]
    duration_seconds: Annotated[int, Field(ge=60, le=int(windows.LONGEST.total_seconds()))]
    """Real time: on the day on which the clock is changed, another one than the clock shows."""
    time_zone: Annotated[str, Matching("[A-Za-z][-+_/A-Za-z0-9]{0,63}", _NO_ZONE), AfterValidator(_known)] = (
        "UTC"
    )

    def __str__(self) -> str:
        days = ", ".join(self.days) or "every day"
        return f"{days} {self.start} for {_duration(self.duration_seconds)} ({self.time_zone})"


def _duration(seconds: int) -> str:
    parts = {"h": seconds // 3600, "m": seconds // 60 % 60, "s": seconds % 60}
    return "".join(f"{count}{unit}" for unit, count in parts.items() if count)


def holds_at(hours: Collection[Hours], now: datetime) -> bool:
    """Whether one of them includes *now*; without any, always."""
    return not hours or any(windows.closes_at(each, now) for each in hours)


def ends_at(hours: Collection[Hours], now: datetime) -> datetime | None:
    """When none of them holds any more; None for what does not hold *now*, or does not end within two weeks."""
    end = now
    while ends := [each for each in (windows.closes_at(each, end) for each in hours) if each]:
        end = max(ends)
        if end - now > AHEAD:
            return None
    return end if end > now else None


def begins_at(hours: Collection[Hours], now: datetime) -> datetime | None:
    """When one of them begins next; None without any."""
    return min((each for each in (windows.opens_at(each, now) for each in hours) if each), default=None)
