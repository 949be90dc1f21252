"""Events are created once, counted afterwards, and block no caller."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from dev.lab.waiting import stretch, until
from kube import event_recorder
from kube.client import Resource
from kube.event_recorder import BURST, WINDOW, EventCorrelator, EventRecorder, Note, Regarding
from kube.types import ObjectMeta, Pod
from tests.fakes import FakeClock
from tests.metrics import sample
from tests.misbehaving_server import Answer, Asked, Server, answers, hangs, refuses, resets, serving

POD = Regarding.pod("shop", "a", "uid-a")
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def refused() -> float:
    """Events so far that were dropped because they were."""
    return sample("drawbridge_events_dropped_total", reason="refused")


def note(reason: str = "Held", regarding: Regarding = POD) -> Note:
    return Note(regarding, reason, "why", "Normal")


def test_a_series_lasts_as_long_as_it_is_repeated_within_the_window() -> None:
    correlator = EventCorrelator()
    counts = [correlator.enter(note(), AT, at) for at in (0.0, WINDOW - 1, 2 * WINDOW - 2, 3 * WINDOW - 1)]
    assert [each.count for each in counts if each] == [3, 3, 3, 1]


def test_after_a_burst_about_one_object_the_rest_is_dropped_but_counted() -> None:
    correlator = EventCorrelator()
    entered = [correlator.enter(note(), AT, float(at)) for at in range(BURST + 3)]
    assert entered.count(None) == 3
    assert correlator.enter(note(regarding=Regarding.pod("shop", "b")), AT, 30.0)
    later = correlator.enter(note(), AT, WINDOW)
    assert later is not None
    assert later.count == BURST + 4


def test_a_long_name_still_makes_a_valid_one() -> None:
    series = EventCorrelator().enter(note(regarding=Regarding("v1", "Node", "n" * 229 + ".x" * 12)), AT, 0.0)
    assert series is not None
    assert len(series.event_name) <= 253
    assert ".." not in series.event_name


def test_an_event_is_about_an_object_of_a_resource() -> None:
    reservation = Pod(metadata=ObjectMeta(name="r", uid="u"))
    about = Regarding.of(reservation, Resource("projectcalico.org", "v3", "ipreservations"), "IPReservation")
    assert about == Regarding("projectcalico.org/v3", "IPReservation", "r", "", "u")


@contextmanager
def recording(*answer: Answer) -> Iterator[tuple[Server, EventRecorder, FakeClock]]:
    clock, left = FakeClock(), list(answer)

    def next_answer(asked: Asked) -> Answer:
        return left.pop(0) if left else answers({})

    with serving(next_answer) as server:
        recorder = EventRecorder(server.client(), "drawbridge-test", clock=clock)
        yield server, recorder, clock
        recorder.close(0.1)


def test_an_event_is_written_on_the_object() -> None:
    with recording() as (server, recorder, _):
        recorder.event(POD, "Held", "x" * 2000, type="Warning")
        recorder.close()
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("POST", "/api/v1/namespaces/shop/events")
    about = {"apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "a", "uid": "uid-a"}
    assert asked.body["involvedObject"] == about
    assert (asked.body["reason"], asked.body["type"], asked.body["count"]) == ("Held", "Warning", 1)
    assert len(asked.body["message"]) == 1024
    assert asked.body["source"] == {"component": "drawbridge-test"}
    times = [datetime.fromisoformat(asked.body[name]) for name in ("firstTimestamp", "lastTimestamp")]
    assert all(abs(datetime.now(UTC) - each) < timedelta(minutes=5) for each in times)


def test_repeats_are_counted_in_the_same_event() -> None:
    with recording() as (server, recorder, _):
        for _ in range(3):
            recorder.event(POD, "Held", "why")
        recorder.close()
    created, *patched = server.asked
    assert [asked.method for asked in server.asked] == ["POST", "PATCH", "PATCH"]
    assert {asked.path.rsplit("/", 1)[1] for asked in patched} == {created.body["metadata"]["name"]}
    assert [asked.body["count"] for asked in patched] == [2, 3]


def test_a_repeat_of_an_event_that_is_gone_is_created() -> None:
    with recording(answers({}), refuses(404, "NotFound")) as (server, recorder, _):
        recorder.event(POD, "Held", "why")
        recorder.event(POD, "Held", "why")
        recorder.close()
    assert [asked.method for asked in server.asked] == ["POST", "PATCH", "POST"]
    assert server.asked[-1].body["count"] == 2


@pytest.mark.parametrize("fault", [refuses(403, "Forbidden"), resets, answers(b"{")])
def test_what_cannot_be_written_is_dropped_and_the_next_is_written(fault: Answer) -> None:
    before = refused()
    with recording(fault) as (server, recorder, _):
        recorder.event(POD, "Held", "why")
        recorder.event(POD, "Released", "why")
        recorder.close()
    assert [asked.body["reason"] for asked in server.asked] == ["Held", "Released"]
    assert refused() == before + 1


def test_an_event_refused_by_a_terminating_namespace_is_about_another_object() -> None:
    before = refused()
    segment = Regarding("projectcalico.org/v3", "IPReservation", "a-1", uid="uid-1")
    with recording(refuses(403, "Forbidden"), answers({})) as (server, recorder, _):
        recorder.event(POD, "IPReservedLate", "why", "Warning", instead=segment)
        until(lambda: len(server.asked) == 2)
    first, second = server.asked
    # That of an object that stands in no namespace.
    assert [each.path.split("/")[4] for each in (first, second)] == ["shop", "default"]
    assert msgspec.convert(second.body["involvedObject"], Regarding) == segment
    said = {"reason": "IPReservedLate", "message": "why", "type": "Warning"}
    assert said.items() <= second.body.items()
    assert refused() == before


def test_a_hanging_server_blocks_no_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_recorder, "QUEUE_SIZE", 10)
    with recording(*[hangs] * 5) as (server, recorder, _):
        began = time.monotonic()
        for number in range(100):
            recorder.event(POD, f"Held{number}", "why")
        recorder.close(0.2)
        assert time.monotonic() - began < 0.5 * stretch()
        until(lambda: server.asked)
    assert sample("drawbridge_events_dropped_total", reason="queue full")
