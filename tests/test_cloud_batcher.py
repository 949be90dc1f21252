"""Requests of many callers share calls, and each caller has its own answer; a refusal delays no other caller."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from cloud.batched import BatchedCloud, Batcher, Shape
from cloud.circuit_breaker import CircuitBreaker
from cloud.client import Cloud
from cloud.errors import CloudError, NotPermitted, QuotaExceeded, Rejected, RetryAfter, Unavailable
from dev.lab.waiting import until
from tests.cloud_server import FakeTransport, calls, error
from tests.fakes import FakeClock


class Desk:
    """A batcher without threads, and what was called; *spoil* are items that fail the call that they are in."""

    def __init__(self, shape: Shape) -> None:
        self.clock, self.calls = FakeClock(), list[list[str]]()
        self.spoil: dict[str, Exception] = {}
        self.closed = 0
        self.breaker = CircuitBreaker(self.clock, self._closed)
        self.batcher: Batcher[str, str] = Batcher("desk", self._call, shape, self.breaker, self.clock)

    def _closed(self) -> None:
        self.closed += 1

    def _call(self, items: Sequence[str]) -> Sequence[str]:
        self.calls.append(list(items))
        for each in items:
            if each in self.spoil:
                raise self.spoil[each]
        return [each.upper() for each in items]

    def ask(self, *items: str) -> list[Future[str]]:
        answers = [self.batcher.submit(each) for each in items]
        while self.batcher.step():
            pass
        return answers

    def outcome(self, item: str) -> str | Exception:
        (answer,) = self.ask(item)
        found = answer.exception() if answer.exception() else answer.result()
        assert isinstance(found, str | Exception)
        return found


def names(count: int) -> list[str]:
    return [f"n{number}" for number in range(count)]


def test_the_first_goes_at_once_and_the_next_together_after_the_distance_or_when_they_are_many() -> None:
    desk = Desk(Shape(size=10, distance=0.5))
    desk.ask("a")
    later = desk.ask("b", "c")
    assert desk.calls == [["a"]]
    assert desk.batcher.due == desk.clock() + 0.5
    desk.clock.advance(0.5)
    assert desk.batcher.step()
    assert [each.result() for each in later] == ["B", "C"]
    desk.ask(*names(12))

    assert [len(each) for each in desk.calls] == [1, 2, 10]


@pytest.mark.parametrize("kind", [NotPermitted, Rejected])
def test_a_batch_divides_until_the_one_that_spoils_it_stands_alone(kind: type[CloudError]) -> None:
    desk = Desk(Shape(size=40))
    desk.spoil = {"n17": error(kind)}
    answers = dict(zip(names(40), desk.ask(*names(40)), strict=True))
    failed = {name for name, each in answers.items() if each.exception()}

    assert failed == {"n17"}
    assert isinstance(answers["n17"].exception(), RetryAfter if kind is NotPermitted else kind)


@pytest.mark.parametrize(
    ("fault", "most"), [(error(Unavailable), 1), (error(NotPermitted), 8), (RuntimeError("bug"), 1)], ids=str
)
def test_a_call_that_fails_for_all_costs_a_few_calls(fault: Exception, most: int) -> None:
    desk = Desk(Shape(size=40))
    desk.spoil = dict.fromkeys(names(40), fault)
    answers = desk.ask(*names(40))

    assert all(each.exception() for each in answers)
    assert len(desk.calls) <= most


@pytest.mark.parametrize("kind", [QuotaExceeded, NotPermitted])
def test_what_one_caller_is_refused_the_others_still_try(kind: type[CloudError]) -> None:
    desk = Desk(Shape())
    desk.spoil = {"a": error(kind)}
    refused = desk.outcome("a")
    assert isinstance(refused, RetryAfter)
    assert (refused.seconds, refused.cause) == (10, desk.spoil["a"])
    assert desk.outcome("b") == "B"


@pytest.mark.parametrize("kind", [QuotaExceeded, NotPermitted])
def test_what_two_callers_are_refused_one_tries_for_all(kind: type[CloudError]) -> None:
    desk = Desk(Shape())
    desk.spoil = dict.fromkeys("abc", error(kind))
    desk.ask("a", "b")
    waiting = desk.outcome("c")
    assert isinstance(waiting, RetryAfter)
    assert (waiting.seconds, waiting.cause) == (10, desk.spoil["a"])
    desk.clock.advance(10)
    assert isinstance(desk.outcome("a"), RetryAfter)  # one that was not refused comes first
    desk.ask("c", "d")
    assert desk.calls == [["a"], ["b"], ["c"]]
    desk.clock.advance(20)
    desk.spoil = {}
    assert desk.outcome("d") == "D"

    assert desk.closed == 1
    assert [desk.outcome(each) for each in "abc"] == ["A", "B", "C"]


def test_callers_that_stay_refused_while_others_pass_hold_up_none_any_more() -> None:
    desk = Desk(Shape())
    desk.spoil = dict.fromkeys("ab", error(NotPermitted))
    for _ in range(2):
        desk.ask("a", "b")
        desk.clock.advance(300)
        assert desk.outcome("c") == "C"
    desk.ask("a", "b")

    assert desk.outcome("d") == "D"


def test_refusals_that_were_under_way_together_count_as_one() -> None:
    breaker = CircuitBreaker(FakeClock())
    for each in names(12):
        refused = breaker.refused(each, error(QuotaExceeded))

    assert refused.seconds == pytest.approx(11)


def test_something_that_changed_lets_the_refused_try_at_once() -> None:
    desk = Desk(Shape())
    desk.spoil = dict.fromkeys("ab", error(QuotaExceeded))
    desk.ask("a", "b")
    desk.spoil = {}
    desk.breaker.try_again()
    desk.clock.advance(1)

    assert (desk.closed, desk.outcome("c")) == (1, "C")


def test_threads_share_calls_and_are_released_when_a_call_ends_its_thread() -> None:
    desk = Desk(Shape(size=100, distance=0.05))
    # Before the start: the clock stands still, and what misses the first call would wait for ever.
    answers = [desk.batcher.submit(each) for each in names(50)]
    desk.batcher.start()
    try:
        assert [each.result(10) for each in answers] == [each.upper() for each in names(50)]
        desk.spoil = {"bad": SystemExit()}  # type: ignore[dict-item]
        desk.clock.advance(1)
        assert isinstance(desk.batcher.submit("bad").exception(10), SystemExit)
        desk.clock.advance(1)
        assert desk.batcher.submit("a").result(10) == "A"
    finally:
        desk.batcher.close()
    assert not [each for each in threading.enumerate() if each.name.startswith("desk-")]


def test_tags_are_created_once_and_their_refusal_is_that_of_the_callers_that_need_them() -> None:
    def create(params: Mapping[str, Any]) -> object:
        values = {each["TagValue"] for each in params["Tags"]}
        return error(Rejected) if "2" in values else {}

    fake = FakeTransport(CreateTags=create)
    cloud = BatchedCloud(Cloud(calls(fake, FakeClock())), clock=FakeClock())
    shared, one, two = ("k", "shared"), ("k", "1"), ("k", "2")
    with ThreadPoolExecutor(2) as pool:
        answers = [
            pool.submit(cloud.create_tags, *wanted) for wanted in (("a", [shared, one]), ("b", [shared, two]))
        ]
        until(lambda: sum(len(batcher._waiting) for batcher in cloud.batchers) == 2)
        for batcher in cloud.batchers:
            batcher.step()
        errors = [answer.exception(10) for answer in answers]

    assert (type(errors[0]), type(errors[1])) == (type(None), Rejected)
    assert (cloud.has_tags([shared, one]), cloud.has_tags([two])) == (True, False)
