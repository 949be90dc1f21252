"""Budgets that hold at certain hours: which bound a pod now, what waits until when, and that no leader exceeds one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from api.elasticity import REASON
from controllers.elasticity.planner import LATER
from controllers.elasticity.reporter import IN_FORCE
from settings import ElasticitySettings
from settings.elasticity import Budget, MaxSuperPods
from settings.windows import Hours
from tests.elasticity_world import World
from tests.tables import table
from tests.test_elasticity_placement import pod, quota, taken

BERLIN = "Europe/Berlin"


def hours(start: str, length: float, *days: Any, zone: str = BERLIN) -> Hours:
    return Hours(days=days, start=start, duration=f"{length * 3600:.0f}s", time_zone=zone)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


WEEKDAYS = hours("08:00", 12, "Mon", "Tue", "Wed", "Thu", "Fri")
NIGHTS = hours("20:00", 12)
SUNDAY_NIGHT = hours("22:00", 8, "Sun")


@table(
    "times, now, ends",
    {
        "none are always": ((), "2026-11-23T12:00", ""),
        "after midnight of another day": ((SUNDAY_NIGHT,), "2026-11-23T03:00", "2026-11-23T05:00"),
        "two that meet": ((WEEKDAYS, NIGHTS), "2026-11-27T12:00", "2026-11-28T07:00"),
        "two that overlap": (
            (hours("08:00", 4, zone="UTC"), hours("10:00", 4, zone="UTC")),
            "2026-11-23T09:00",
            "2026-11-23T14:00",
        ),
        "all day": ((hours("00:00", 24, zone="UTC"),), "2026-11-23T09:00", ""),
    },
)
def test_hours_end_as_the_clock_of_their_zone_shows_them(
    times: tuple[Hours, ...], now: str, ends: str
) -> None:
    assert limited(0, *times).ends_at(at(now)) == (at(ends) if ends else None)


DAYS = st.lists(st.sampled_from(["Mon", "Wed", "Sat", "Sun"]), max_size=3, unique=True)
ZONES = st.sampled_from(["UTC", BERLIN, "America/Santiago", "Pacific/Apia", "Asia/Kathmandu"])
ONE = st.builds(
    lambda days, start, length, zone: hours(start, length, *days, zone=zone),
    DAYS,
    st.sampled_from(["00:00", "02:30", "08:00", "20:00", "23:59"]),
    st.sampled_from([1 / 60, 1, 12, 24, 72]),
    ZONES,
)
ANY_HOURS = st.lists(ONE, min_size=1, max_size=3)
ANY_TIME = st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC))
MOMENT = timedelta(microseconds=1)


@given(times=ANY_HOURS, now=ANY_TIME, share=st.floats(0, 0.999))
def test_hours_hold_until_their_end(times: list[Hours], now: datetime, share: float) -> None:
    budget = limited(0, *times)
    ends = budget.ends_at(now)
    if not budget.holds_at(now):
        assert ends is None
    elif ends:
        assert not budget.holds_at(ends)
        assert budget.holds_at(ends - MOMENT)
        assert budget.holds_at(now + (ends - now) * share)
    else:
        assert budget.holds_at(now + timedelta(days=14) * share)


@table(
    "times, words",
    {
        "days": (WEEKDAYS, "Mon, Tue, Wed, Thu, Fri 08:00 for 12h (Europe/Berlin)"),
        "every day": (hours("23:30", 1.5, zone="UTC"), "every day 23:30 for 1h30m (UTC)"),
        "seconds": (hours("00:00", 90 / 3600, "Sat", zone="UTC"), "Sat 00:00 for 1m30s (UTC)"),
    },
)
def test_hours_are_said_in_words(times: Hours, words: str) -> None:
    assert str(times) == words


# What one decision takes

BY_NIGHT = Budget(namespaces=("shop",), max_pods=2, hours=(NIGHTS,))
BY_DAY = Budget(namespaces=("shop",), max_pods=3, hours=(WEEKDAYS,))
ALWAYS = Budget(namespaces=("shop",), max_pods=4)
NIGHT, DAY, WEEKEND = at("2026-11-23T22:00"), at("2026-11-24T12:00"), at("2026-11-28T12:00")


def test_a_decision_looks_once_for_the_end_of_hours() -> None:
    """That takes as long as 50 pods that wait, and there may be thousands."""
    read = list[datetime]()

    class Counted(Budget):
        def ends_at(self, now: datetime) -> datetime | None:
            read.append(now)
            return super().ends_at(now)

    night = Counted(max_pods=0, hours=(NIGHTS,))
    decision = quota(MaxSuperPods(budgets=(night,)), now=NIGHT)
    refusals = {decision.refusal(pod(f"web-{number}")) for number in range(10)}

    assert len(refusals) == len(read) == 1
    assert "end at 2026-11-24T07:00:00Z" in str(refusals)


@table(
    "budgets, now, fit",
    {
        "by night": ((BY_NIGHT, BY_DAY), NIGHT, 2),
        "by day": ((BY_NIGHT, BY_DAY), DAY, 3),
        "at neither": ((BY_NIGHT, BY_DAY), WEEKEND, 6),
        "with one that always holds, by night": ((ALWAYS, BY_NIGHT), NIGHT, 2),
        "with one that always holds, by day": ((ALWAYS, BY_NIGHT), DAY, 4),
    },
)
def test_a_budget_bounds_nothing_outside_of_its_hours(
    budgets: tuple[Budget, ...], now: datetime, fit: int
) -> None:
    room = quota(MaxSuperPods(budgets=budgets), now=now)

    assert [taken(room, pod(f"web-{number}")) for number in range(6)].count("") == fit


@table(
    "budget, reason",
    {
        "pods": (
            Budget(max_pods=0, namespaces=("shop",), hours=(NIGHTS,)),
            "maxSuperPods.budgets limits pods of shop on super nodes to 0; its hours, every day 20:00 for 12h"
            " (Europe/Berlin), end at 2026-11-24T07:00:00Z",
        ),
        "no end": (
            Budget(max_pods=0, hours=(hours("00:00", 24, zone="UTC"),)),
            "maxSuperPods.budgets limits pods on super nodes to 0; its hours, every day 00:00 for 24h (UTC), do not"
            " end soon",
        ),
        "several": (
            Budget(max_pods=0, hours=(NIGHTS, SUNDAY_NIGHT)),
            "maxSuperPods.budgets limits pods on super nodes to 0; its hours, every day 20:00 for 12h (Europe/Berlin)"
            " and Sun 22:00 for 8h (Europe/Berlin), end at 2026-11-24T07:00:00Z",
        ),
    },
)
def test_the_reason_names_the_hours_and_their_end_in_the_same_words_all_night(
    budget: Budget, reason: str
) -> None:
    limits = MaxSuperPods(budgets=(budget,))
    for minutes in (0, 1, 300):
        assert taken(quota(limits, now=NIGHT + timedelta(minutes=minutes)), pod()) == reason


# As time passes. The clock of a world begins at NOW, five seconds after 03:04.

BEFORE = hours("03:04", 1 / 30, zone="UTC")
AFTER = hours("03:06", 1, zone="UTC")
BORDER = 115.0
"""Seconds from NOW to the end of the one and the beginning of the other."""
END = "end at 2026-01-02T03:06:00Z"


def world(*budgets: Budget) -> World:
    limits = MaxSuperPods(budgets=budgets)
    return World(settings=ElasticitySettings(enabled=True, max_super_pods=limits))


def limited(most: int, *times: Hours) -> Budget:
    return Budget(namespaces=("shop",), max_pods=most, hours=times)


def test_what_waits_goes_within_seconds_when_the_hours_end() -> None:
    found = world(limited(1, BEFORE))
    found.create(3, n="0")
    stuck = found.stuck("stuck")
    found.leader.settle(10)
    (waiting,) = (each for each in found.cluster.names(lambda pod: pod.gated) if each == "web-3")
    assert found.placements() == {"": 2, "super": 1}
    assert END in found.annotations(waiting)[REASON]
    assert END in found.annotations(stuck)[REASON]
    assert found.leader.recorder.reasons == ["SuperNodeCapReached"] * 3

    found.clock.advance(BORDER - 0.5 - found.clock())
    found.leader.look()
    assert found.placements() == {"": 2, "super": 1}
    assert not found.cluster.pod(stuck).may_come_to_super_nodes

    found.clock.advance(LATER)
    found.leader.look()
    assert found.placements() == {"super": 3}
    assert found.cluster.pod(stuck).may_come_to_super_nodes


def test_what_is_on_super_nodes_stays_when_hours_begin_and_what_is_new_waits() -> None:
    found = world(limited(1, AFTER))
    there = found.create(3, n="0")
    found.leader.settle(2)
    found.bind_all()
    assert found.placements() == {"super": 3}

    found.clock.advance(BORDER - found.clock())
    (late,) = found.create(1, n="0")
    found.leader.settle(2)
    assert found.placements() == {"": 1, "super": 3}
    assert "its hours, every day" in found.annotations(late)[REASON]
    assert {*there} <= {*found.cluster.pods}

    for name in there[:2]:
        found.cluster.remove(name)
    found.leader.settle(2)
    assert found.placements() == {"": 1, "super": 1}, "as many are there as it allows"
    found.cluster.remove(there[2])
    found.leader.settle(2)
    assert found.placements() == {"super": 1}


def test_metrics_say_which_budgets_hold_now() -> None:
    night, day = BEFORE, AFTER
    found = world(
        Budget(namespaces=("bank",), max_pods=2, hours=(night,)),
        Budget(namespaces=("bank",), max_pods=9, hours=(day,)),
        Budget(namespaces=("bank",), max_pods=9),
    )
    found.leader.turn()
    assert in_force() == {str(night): 1, str(day): 0}

    found.clock.advance(BORDER)
    found.leader.turn()
    assert in_force() == {str(night): 0, str(day): 1}

    found.leader.settings = ElasticitySettings(enabled=True)
    found.leader.turn()
    assert in_force() == {}


def in_force() -> dict[str, float]:
    """By hours."""
    return {
        each.labels["hours"]: each.value
        for each in next(iter(IN_FORCE.collect())).samples
        if each.labels["budget"] == "pods of bank"
    }
