"""When a window is open, by the clock of its zone, and when what takes a while ends in it."""

from __future__ import annotations

import zoneinfo
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from settings.windows import closes_at, end_of, opens_at, zone_of

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Window:
    """As a user may have written it."""

    days: tuple[str, ...] = ()
    start: str = "00:00"
    duration_seconds: int = 0
    time_zone: str = "UTC"


HOUR = 3600
SATURDAYS = Window(days=("Sat",), start="02:00", duration_seconds=4 * HOUR, time_zone="Europe/Berlin")
NIGHTS = Window(start="23:00", duration_seconds=2 * HOUR)
WEEK = Window(days=("Mon",), start="00:00", duration_seconds=7 * 24 * HOUR)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


SUNDAYS = Window(days=("Sun",), start="02:30", duration_seconds=HOUR, time_zone="Europe/Berlin")
FAR_EAST = Window(days=("Mon",), start="00:30", duration_seconds=HOUR, time_zone="Pacific/Kiritimati")
OPEN = {
    "a moment before": (NIGHTS, "2026-11-23T22:59:59", "", "2026-11-23T23:00"),
    "it opens": (NIGHTS, "2026-11-23T23:00", "2026-11-24T01:00", "2026-11-24T23:00"),
    "after midnight": (NIGHTS, "2026-11-24T00:59", "2026-11-24T01:00", "2026-11-24T23:00"),
    "it is over at its end": (NIGHTS, "2026-11-24T01:00", "", "2026-11-24T23:00"),
    "on a Monday, in winter": (SATURDAYS, "2026-11-23T12:00", "", "2026-11-28T01:00"),
    "on a Monday, in summer": (SATURDAYS, "2026-06-01T12:00", "", "2026-06-06T00:00"),
    "in the last minute": (SATURDAYS, "2026-11-28T04:59", "2026-11-28T05:00", "2026-12-05T01:00"),
    "a whole week": (WEEK, "2026-11-23T00:00", "2026-11-30T00:00", "2026-11-30T00:00"),
    "the clock skips its start": (SUNDAYS, "2026-03-28T12:00", "", "2026-03-29T01:30"),
    "the clock shows its start twice: the first one counts": (
        *(SUNDAYS, "2026-10-25T00:30", "2026-10-25T01:30", "2026-11-01T01:30"),
    ),
    "it is Monday there on our Sunday": (
        *(FAR_EAST, "2026-11-22T10:45", "2026-11-22T11:30", "2026-11-29T10:30"),
    ),
    "an unknown zone": (Window(time_zone="Moon/Crater", duration_seconds=60), "2026-11-23T00:00", "", ""),
    "a path": (Window(time_zone="../etc/passwd", duration_seconds=60), "2026-11-23T00:00", "", ""),
    "a directory": (Window(time_zone="Europe", duration_seconds=60), "2026-11-23T00:00", "", ""),
    "no start": (Window(start="at noon", duration_seconds=60), "2026-11-23T00:00", "", ""),
    "no length": (Window(), "2026-11-23T00:00", "", ""),
}


@pytest.mark.parametrize(("window", "now", "closes", "opens"), OPEN.values(), ids=OPEN)
def test_it_is_open(window: Window, now: str, closes: str, opens: str) -> None:
    assert closes_at(window, at(now)) == (at(closes) if closes else None)
    assert opens_at(window, at(now)) == (at(opens) if opens else None)


@pytest.mark.parametrize(
    ("now", "seconds", "end"),
    [
        pytest.param("2026-11-23T23:30", 600, "2026-11-23T23:40", id="in the open window"),
        pytest.param("2026-11-23T12:00", 600, "2026-11-23T23:10", id="in the next one"),
        pytest.param("2026-11-23T23:30", 2 * HOUR, "2026-11-24T23:30", id="what is left, in the one after"),
        pytest.param("2026-11-23T12:00", 5 * HOUR, "2026-11-26T00:00", id="over three of them"),
        pytest.param("2026-11-23T12:00", 999 * HOUR, None, id="too long to say"),
    ],
)
def test_what_takes_a_while_ends_in_a_window(now: str, seconds: float, end: str | None) -> None:
    assert end_of(NIGHTS, at(now), seconds) == (at(end) if end else None)


@pytest.mark.parametrize(
    "zone", ["UTC", "Europe/Berlin", "America/Santiago", "Pacific/Apia", "Asia/Kathmandu"]
)
def test_at_every_hour_of_a_year_it_is_open_or_will_be(zone: str) -> None:
    window = Window(days=("Sat",), start="00:00", duration_seconds=2 * HOUR, time_zone=zone)
    opened = 0
    for hour in range(0, 366 * 24):
        now = at("2026-01-01T00:00") + timedelta(hours=hour)
        closes, opens = closes_at(window, now), opens_at(window, now)
        assert closes is None or now < closes <= now + timedelta(hours=2)
        assert opens
        assert timedelta() < opens - now <= timedelta(days=7, hours=1)
        opened += closes is not None
    assert 52 * 2 <= opened <= 53 * 3


@pytest.fixture
def no_database_of_the_system() -> Iterator[None]:
    """As in the image."""
    zoneinfo.ZoneInfo.clear_cache()
    zoneinfo.reset_tzpath(())
    yield
    zoneinfo.ZoneInfo.clear_cache()
    zoneinfo.reset_tzpath()


@pytest.mark.usefixtures("no_database_of_the_system")
def test_zones_are_known_where_the_system_has_none() -> None:
    assert "\ntzdata==" in (ROOT / "requirements.txt").read_text()
    assert zone_of(SATURDAYS)
