"""A canary is promoted by its metric: when that was good for long enough, and never by what is not known."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from api.ingress_daemonset.status import MetricStatus
from api.ingress_daemonset.types import Metric
from controllers.ingress_daemonset.pacing import (
    Measurement,
    Query,
    filled,
    has_passed,
    judged,
    sentence,
)
from tests.factories import NOW
from tests.ingress_daemonset_rolling import NODES, Rolling, at
from tests.tables import table

Raw = dict[str, Any]
WANTED = Metric(query="errors", max=0.1, for_seconds=60, interval_seconds=30, failure_limit=2)
QUERY = Query("a-1", "errors", 30)
METRIC = {"query": 'errors{node=~"$(NODES)"}', "max": 0.1, "forSeconds": 60, "intervalSeconds": 30}
CANARY = {"nodes": 1, "metric": METRIC}
LOST = "connection refused"


def after(*measurements: tuple[float, float | str], wanted: Metric = WANTED) -> MetricStatus:
    """What is stored after values, or errors, that were measured so many seconds after each other."""
    found = MetricStatus()
    for seconds, value in measurements:
        found = judged(wanted, found, measurement(seconds, value))
    return found


def measurement(seconds: float, value: float | str) -> Measurement:
    at = NOW + timedelta(seconds=seconds)
    return Measurement(QUERY, at, error=value) if isinstance(value, str) else Measurement(QUERY, at, value)


@table(
    "measured, passes, fails, says",
    {
        "nothing was measured": ((), False, False, "not been measured"),
        "it was good once": (((0, 0.0),), False, False, "good since"),
        "not for long enough": (((0, 0.0), (30, 0.1)), False, False, "good since"),
        "for long enough": (((0, 0), (30, 0), (60, 0)), True, False, "good since"),
        "one was late": (((0, 0), (60, 0)), True, False, "good since"),
        "it was not measured for too long": (((0, 0), (91, 0)), False, False, "good since"),
        "one was lost": (((0, 0), (30, LOST), (60, 0)), True, False, "good since"),
        "the last one was lost": (((0, 0), (60, LOST)), False, False, LOST),
        "it was never known": (((0, LOST), (60, LOST)), False, False, LOST),
        "one was bad in between": (((0, 0), (30, 0.2), (60, 0)), False, False, "good since"),
        "the first one was bad": (((0, 0.2),), False, False, "above max"),
        "too many were bad": (((0, 0.2), (30, 0), (60, 0.2)), False, True, "failed"),
        "good ones come too late": (((0, 1), (30, 1), (60, 0), (120, 0)), False, True, "failed"),
    },
)
def test_measurements_are_judged(
    measured: tuple[tuple[float, float | str], ...], passes: bool, fails: bool, says: str
) -> None:
    found = after(*measured)
    now = NOW + timedelta(seconds=measured[-1][0] if measured else 0)

    assert (has_passed(WANTED, found, now), found.failed_at is not None) == (passes, fails)
    assert says in sentence(WANTED, found)


@pytest.mark.parametrize(
    ("bounds", "value", "is_good"),
    [
        ({"max": 1.0}, 1.0, True),
        ({"max": 1.0}, 1.01, False),
        ({"min": 1.0}, 1.0, True),
        ({"min": 1.0}, 0.99, False),
        ({"min": 1.0, "max": 2.0}, 1.5, True),
        ({"min": 1.0, "max": 2.0}, 2.5, False),
        ({"min": 0.0, "max": 0.0}, 0.0, True),
        ({}, 1.0, False),
    ],
)
def test_bounds_are_inclusive_and_without_any_nothing_is_good(
    bounds: Raw, value: float, is_good: bool
) -> None:
    wanted = Metric(query="errors", for_seconds=0, **bounds)
    found = judged(wanted, None, measurement(0, value))

    assert has_passed(wanted, found, NOW) is is_good


def test_what_is_stored_of_another_metric_is_void() -> None:
    failed = after((0, 1), (30, 1))

    assert judged(Metric(query="errors", max=2), failed, None).failed_at is None


def test_it_is_said_since_when_it_is_not_known() -> None:
    found = after((0, 0), (30, LOST), (60, "timed out"))

    assert found.unknown_since == NOW + timedelta(seconds=30)
    assert "timed out" in sentence(WANTED, found)
    assert not found.value


def test_the_names_of_nodes_are_a_regular_expression_in_a_string() -> None:
    assert filled('up{node=~"$(NODES)"}', ["n2", "n1.example"]) == 'up{node=~"n1[.]example|n2"}'


def begun(**rolling: Any) -> Rolling:
    here = Rolling(rolling={"canary": CANARY, **rolling})
    here.roll_out()
    return here


def test_the_others_follow_when_the_metric_was_good_for_its_time() -> None:
    here = begun()
    here.world.metric = 0.05
    here.play(lambda: "promotedAt" in here.canary)
    found = here.canary
    since, promoted = at(found["completeSince"]), at(found["promotedAt"])
    assert found["promotedBy"] == "Metric"
    assert timedelta(seconds=60) <= promoted - since < timedelta(seconds=120)
    assert here.updated() == {"n1"}

    here.finish()
    assert here.updated() == {*NODES}


def test_it_is_measured_only_while_all_nodes_of_the_canary_are_as_desired() -> None:
    here = begun()
    here.world.metric = 0.05
    here.play(lambda: here.world.query)
    assert here.world.query
    assert here.world.query.text == 'errors{node=~"n1"}'
    assert "completeSince" in here.canary

    here.play(lambda: "passingSince" in here.canary["metric"])
    here.world.set_available("n1", 1)
    here.turns(2)
    assert here.world.query is None
    assert "passingSince" not in here.canary["metric"]


def test_the_loss_of_a_node_interrupts_no_measurement_of_the_others() -> None:
    here = begun(canary=CANARY | {"nodes": 2})
    here.world.metric = 0.05
    here.play(lambda: "passingSince" in here.canary["metric"])
    since = here.canary["metric"]["passingSince"]

    here.world.set_ready("n1", False)
    here.world.set_available("n1", 0)
    here.turn()
    assert here.world.query
    assert here.world.query.text == 'errors{node=~"n2"}'
    here.play(lambda: "promotedAt" in here.canary)
    assert here.canary["metric"]["passingSince"] == since


@pytest.mark.parametrize("metric", [LOST, "the query has 2 series", "its value is NaN"])
def test_what_is_not_known_waits_and_says_so(metric: str) -> None:
    here = begun()
    here.world.metric = metric
    here.turns()

    assert here.updated() == {"n1"}
    assert here.reason == "CanaryPaused"
    assert metric in here.message
    here.world.metric = 0.05
    here.finish()
    assert here.updated() == {*NODES}


def test_a_canary_that_fails_waits_for_a_person() -> None:
    here = begun()
    here.world.metric = 0.2
    here.play(lambda: here.reason == "CanaryDegraded")
    assert "it is 0.2, above max (0.1) (3 of 3)" in here.message
    here.world.metric = 0.0
    here.turns()
    assert here.updated() == {"n1"}
    assert here.world.query is None

    here.promote()
    here.finish()
    assert here.updated() == {*NODES}


def test_the_pause_has_to_be_over_too() -> None:
    here = begun(canary={**CANARY, "pause": {"durationSeconds": 900}})
    here.world.metric = 0.0
    here.play(lambda: "promotedAt" in here.canary)

    since, promoted = (at(here.canary[name]) for name in ("completeSince", "promotedAt"))
    assert promoted - since >= timedelta(seconds=900)


def test_another_template_is_measured_from_its_beginning() -> None:
    here = begun()
    here.world.metric = 0.2
    here.play(lambda: here.reason == "CanaryDegraded")
    first = here.canary["id"]
    here.world.retemplate("proxy:3")
    here.play(lambda: here.canary.get("id", first) != first)

    assert here.canary["metric"] == {"revision": here.canary["metric"]["revision"], "failures": 0}


def test_events_say_that_it_is_not_known_and_that_it_promoted() -> None:
    here = begun()
    here.play(lambda: "unknownSince" in here.canary.get("metric", {}))
    here.world.metric = 0.0
    here.finish()
    events = dict(here.events())
    assert LOST in events["CanaryUnmeasured"]
    assert "by its metric" in events["CanaryPromoted"]
