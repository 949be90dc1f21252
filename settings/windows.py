"""When a window is open: functions of the window and a time, which is UTC as all results are.

A start that the clock of its zone skips is as much later, and one that it shows twice is the first of them. The length
is real time.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from datetime import MAXYEAR, MINYEAR, UTC, date, datetime, time, timedelta
from typing import Annotated, Literal, Protocol
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from settings.values import OF_PERIOD, Matching, Model, seconds

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
START = re.compile("([01][0-9]|2[0-3]):[0-5][0-9]", re.ASCII)
LONGEST = timedelta(days=7)
AROUND = 9
"""Days before and after a time: those of a window of the longest length, in any zone."""
AHEAD = 60
"""Windows that are looked at for an end."""
_NO_ZONE = "is not known; write one of the IANA database, such as Europe/Berlin"


class Window(Protocol):
    """It opens at *start*, as a clock in *time_zone* shows it, on these days; on every day if there are none."""

    @property
    def days(self) -> Collection[str]: ...

    @property
    def start(self) -> str: ...

    @property
    def duration_seconds(self) -> float: ...

    @property
    def time_zone(self) -> str: ...


def zone_of(window: Window) -> ZoneInfo | None:
    """None for one that is not known."""
    try:
        return ZoneInfo(window.time_zone)
    except (KeyError, ValueError, OSError):  # the last is of a name such as Europe, a directory
        return None


def closes_at(window: Window, now: datetime) -> datetime | None:
    """When it closes that is open *now*; None for one that is not."""
    ends = [end for begin, end in _around(window, now) if begin <= now < end]
    return max(ends, default=None)


def opens_at(window: Window, now: datetime) -> datetime | None:
    """When it opens next; None for one that never does."""
    return min((begin for begin, end in _around(window, now) if begin > now and end > begin), default=None)


def end_of(window: Window, now: datetime, seconds: float) -> datetime | None:
    """When what takes so many *seconds* while it is open ends; None for what needs too many windows."""
    for _ in range(AHEAD):
        closes = closes_at(window, now)
        if closes is None:
            if (opens := opens_at(window, now)) is None:
                return None
            now = opens
            continue
        if (left := (closes - now).total_seconds()) >= seconds:
            return now + timedelta(seconds=seconds)
        seconds, now = seconds - left, closes
    return None


def _around(window: Window, now: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Beginnings and ends; none of what is stored without a valid start or zone, nor in the first and last year."""
    if (zone := zone_of(window)) is None or not START.fullmatch(window.start):
        return
    if now.year in (MINYEAR, MAXYEAR):  # days before or after it may be no dates
        return
    hour, minute = map(int, window.start.split(":"))
    start, today = time(hour, minute, tzinfo=zone), now.astimezone(zone).date()
    length = min(LONGEST, timedelta(seconds=window.duration_seconds))
    for each in range(-AROUND, AROUND):
        day: date = today + timedelta(days=each)
        if not window.days or DAYS[day.weekday()] in window.days:
            begin = datetime.combine(day, start).astimezone(UTC)
            yield begin, begin + length


def _known(name: str) -> str:
    if zone_of(Hours.model_construct(time_zone=name)) is None:
        raise ValueError(f"{name!r} {_NO_ZONE}")
    return name


def _length(value: object) -> float:
    found = seconds(value)
    if not 60 <= found <= LONGEST.total_seconds():
        raise ValueError(f"{value!r} is not between 1m and 168h, a week; write for example 12h")
    return found


class Hours(Model):
    """A window of the settings."""

    days: tuple[Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"], ...] = ()
    start: Annotated[
        str, Matching(START.pattern, 'is not a time; write hours and minutes in quotes, such as "08:00"')
    ]
    duration: Annotated[float, BeforeValidator(_length), WithJsonSchema(OF_PERIOD)]
    """Real time: on the day on which the clock is changed, another one than the clock shows."""
    time_zone: Annotated[str, Matching("[A-Za-z][-+_/A-Za-z0-9]{0,63}", _NO_ZONE), AfterValidator(_known)] = (
        "UTC"
    )

    @property
    def duration_seconds(self) -> float:
        return self.duration

    def __str__(self) -> str:
        seconds = int(self.duration)
        parts = {"h": seconds // 3600, "m": seconds // 60 % 60, "s": seconds % 60}
        length = "".join(f"{count}{unit}" for unit, count in parts.items() if count)
        return f"{', '.join(self.days) or 'every day'} {self.start} for {length} ({self.time_zone})"
