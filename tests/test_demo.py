"""The demo's promises about reserved addresses are judged by the history alone."""

from __future__ import annotations

import io
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace
from rich.console import Console

from calico.segment import IPReservation, Record
from demo.burst import Replicas
from demo.burst_promises import never_more_local, placed_first, split, super_node_first
from demo.fleet import Fleet
from demo.fleet_promises import no_pod_too_early, nothing_left, one_address_each, opened_when_bound
from demo.promises import (
    Death,
    Promise,
    died_in_between,
    held_for_their_time,
    never_reserved,
    not_restarted,
    oldest_released_first,
    reserved_before_gone,
)
from demo.rollout import Rollout
from demo.rollout_promises import never_more_off, off_before_replaced, on_when_complete
from demo.screen import ADDRESSES, Screen
from demo.table import Rules, rows
from kube.types import Pod
from lab.history import History, Observation
from tests.factories import NOW, ago, pod, record, segment

RULES = Rules(reserve_time=12.0, max_count=300)
END = ago(seconds=20)
REDIS = pod("redis-0")
HELD = record(at=END, pod="redis-0", node="node-1", owner="StatefulSet/redis", reason="deleted")


def seen(what: Pod | IPReservation, revision: int, *, gone: bool = False, after: float = 0.0) -> Observation:
    """*what* as it was at *revision*, seen *after* seconds from END."""
    metadata = replace(what.metadata, resource_version=str(revision))
    return Observation(replace(what, metadata=metadata), gone, END + timedelta(seconds=after))


def history(*observations: Observation) -> History:
    seen = History()
    for observation in observations:
        seen.add(observation)
    return seen


there = seen(REDIS, 1)
gone = partial(seen, REDIS, gone=True)


def reserved(revision: int, *records: Record, **when: Any) -> Observation:
    return seen(segment(*records), revision, **when)


# The history


@pytest.mark.parametrize("pods_first", [True, False])
def test_revisions_and_not_the_order_of_two_watches_decide_what_came_first(pods_first: bool) -> None:
    observations = [gone(7), reserved(5, HELD)]
    found = history(there, *(observations if pods_first else reversed(observations)))
    [hold] = found.standing()
    assert hold.covers(found.departures["uid-redis-0"].revision)


def test_a_hold_spans_the_segments_that_an_address_stands_in() -> None:
    found = history(
        reserved(5, HELD),
        seen(segment(HELD, name="another"), 6),
        reserved(7, HELD, gone=True),
        seen(segment(name="another"), 9),
    )
    [hold] = found.holds
    assert (hold.since, hold.until) == (5, 9)


def test_an_address_that_is_reserved_again_begins_another_hold() -> None:
    found = history(reserved(5, HELD), reserved(6), reserved(7, HELD))
    assert [(hold.since, hold.until) for hold in found.holds] == [(5, 6), (7, None)]


# The promises


@pytest.mark.parametrize(
    ("observations", "evidence"),
    [
        pytest.param([reserved(5, HELD), gone(7)], "1 of 1, 2 revisions ahead", id="kept"),
        pytest.param(
            [reserved(5, HELD), reserved(6), gone(7)],
            "redis/redis-0 was gone before 10.0.0.1/32 was reserved",
            id="released before the end",
        ),
        pytest.param(
            [reserved(5, replace(HELD, late=True)), gone(7)],
            "redis/redis-0 was reserved late, not by admission",
            id="by the backstop",
        ),
        pytest.param([reserved(5, HELD)], "redis/redis-0 is still there", id="not gone"),
    ],
)
def test_an_address_is_reserved_before_its_pod_is_gone(
    observations: list[Observation], evidence: str
) -> None:
    promise = reserved_before_gone(history(there, *observations), [REDIS])
    assert (promise.kept, promise.evidence) == ("ahead" in evidence, evidence)


@pytest.mark.parametrize(
    ("observations", "kept"),
    [
        pytest.param([gone(7), reserved(8)], True, id="no reservation up to a later event"),
        pytest.param([gone(7), reserved(6)], False, id="no event of the reservations since"),
        pytest.param([gone(7), reserved(8, HELD)], False, id="reserved after all"),
        pytest.param([reserved(8)], False, id="pod still there"),
    ],
)
def test_that_nothing_was_reserved_needs_proof(observations: list[Observation], kept: bool) -> None:
    assert never_reserved(history(there, *observations), REDIS).kept is kept


@pytest.mark.parametrize(
    ("observations", "evidence"),
    [
        pytest.param([reserved(9, after=12.5)], "1 of 1 IPs, held for 12.5 s", id="in time"),
        pytest.param(
            [reserved(9, after=11.9)], "10.0.0.1/32 of redis/redis-0 was released after 11.9 s", id="early"
        ),
    ],
)
def test_an_address_is_held_for_its_time(observations: list[Observation], evidence: str) -> None:
    found = history(there, reserved(5, HELD), gone(7), reserved(8, replace(HELD, ended=END)), *observations)
    promise = held_for_their_time(found, found.holds, 12.0)
    assert (promise.kept, promise.evidence) == ("12.5" in evidence, evidence)


def test_a_hold_does_not_count_from_a_time_at_which_its_pod_was_still_there() -> None:
    found = history(
        there,
        reserved(5, HELD),
        reserved(6, replace(HELD, ended=END)),
        gone(7),
        reserved(8, after=12.5),
    )
    promise = held_for_their_time(found, found.holds, 12.0)
    assert promise.evidence == "10.0.0.1/32 of redis/redis-0 counts from a time before its pod's end"
    assert not promise.kept


@pytest.mark.parametrize(
    ("left", "kept"),
    [
        pytest.param({2}, True, id="the newest stays"),
        pytest.param({1, 2}, False, id="too many stay"),
    ],
)
def test_the_oldest_are_released_first(left: set[int], kept: bool) -> None:
    records = [
        record(
            f"10.0.0.{number}/32",
            uid=f"uid-redis-{number}",
            pod=f"redis-{number}",
            at=ago(seconds=9 - number),
        )
        for number in range(3)
    ]
    found = history(reserved(5, *reversed(records)), reserved(6, *(records[each] for each in left)))
    assert oldest_released_first(found.holds, 1).kept is kept


@pytest.mark.parametrize(
    ("observations", "death", "evidence"),
    [
        pytest.param(
            [reserved(5, HELD), gone(7)],
            Death("webhook-a", 6, 1),
            "webhook-a was killed with 1 of 1 pods to go, and restarted",
            id="in the middle",
        ),
        pytest.param(
            [reserved(5, HELD), gone(7)],
            Death("webhook-a", 6, 0),
            "webhook-a was not restarted",
            id="not at all",
        ),
        pytest.param(
            [reserved(5, HELD), gone(7)],
            Death("webhook-a", 4, 1),
            "webhook-a died before any IP was reserved",
            id="too early",
        ),
    ],
)
def test_a_death_counts_only_in_the_middle(
    observations: list[Observation], death: Death, evidence: str
) -> None:
    promise = died_in_between(history(there, *observations), [death], [REDIS])
    assert (promise.kept, promise.evidence) == ("to go" in evidence, evidence)


def test_programs_that_were_restarted_are_named() -> None:
    assert not_restarted({"a 1", "b 1"}, {"b 1", "a 1"}).kept
    assert not_restarted({"a 1"}, {"a 2"}) == Promise(
        "a changed configuration is applied without a restart", False, "a 1; a 2"
    )


@pytest.mark.parametrize(
    "promise",
    [
        reserved_before_gone(History(), [REDIS]),
        never_reserved(History(), REDIS),
        held_for_their_time(History(), [], 12.0),
        oldest_released_first([], 1),
        died_in_between(History(), [], [REDIS]),
        not_restarted([], []),
        placed_first(Replicas(), 1),
        split(Replicas(), 1, home=1, away=1),
        never_more_local(Replicas(), 1),
        super_node_first(Replicas(), 1, 2),
        off_before_replaced(Rollout(), 1, 1.0),
        never_more_off(Rollout(), 1),
        on_when_complete(Rollout(), 1, 1),
        opened_when_bound(Fleet(), 1),
        no_pod_too_early(Fleet(), 1),
        one_address_each(Fleet()),
        nothing_left(Fleet(), "cloud-0"),
    ],
    ids=lambda promise: promise.text,
)
def test_a_promise_about_nothing_is_not_kept(promise: Promise) -> None:
    assert not promise.kept


def test_a_screen_without_a_terminal_writes_lines_that_say_it_all() -> None:
    text = io.StringIO()
    with Screen(Console(file=text, width=130)) as screen:
        screen.command("kubectl delete pods redis-0")
        screen.show(ADDRESSES, rows(history(reserved(5, HELD)), RULES, NOW), "1 held, 0 released")
        screen.verdict(Promise("each IP is reserved", True, "1 of 1 pods"))
    assert text.getvalue().splitlines() == [
        "$ kubectl delete pods redis-0",
        "  10.0.0.1 is reserved for redis/redis-0 on node-1 (StatefulSet/redis, deleted)",
        "✓ each IP is reserved  (1 of 1 pods)",
    ]
