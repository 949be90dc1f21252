"""Requests of many callers share calls, and each caller has its own answer; a refusal delays no other caller."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud.batched import BatchedCloud, Batcher, CircuitBreaker, Shape
from cloud.client import PAGE, Cloud
from cloud.errors import CloudError, NotPermitted, QuotaExceeded, Rejected, RetryAfter, Unavailable
from controllers.anycast_ip.controller import WORKERS
from controllers.liveness import LONGEST_RUN
from dev.lab.waiting import until
from settings import CloudSettings
from tests.cloud_server import FakeTransport, batchers, calls, error, step
from tests.fakes import FakeClock


class Desk:
    """A batcher without threads, and what was called; *spoil* are items that fail the call that they are in."""

    def __init__(self, shape: Shape) -> None:
        self.clock, self.calls = FakeClock(), list[list[str]]()
        self.spoil: dict[str, Exception] = {}
        self.closed = 0
        self.breaker = CircuitBreaker(self.clock, self._closed)
        self.batcher: Batcher[str, str] = Batcher(self._call, shape, self.breaker, self.clock)

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
        while step(self.batcher):
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
    assert step(desk.batcher)
    assert [each.result() for each in later] == ["B", "C"]
    desk.ask(*names(12))

    assert [len(each) for each in desk.calls] == [1, 2, 10]


@given(bad=st.sets(st.integers(0, 19)), kind=st.sampled_from([NotPermitted, Rejected]))
def test_a_batch_divides_until_those_that_spoil_it_stand_alone(bad: set[int], kind: type[CloudError]) -> None:
    desk = Desk(Shape(size=20))
    desk.spoil = {f"n{number}": error(kind) for number in bad}
    answers = dict(zip(names(20), desk.ask(*names(20)), strict=True))
    failed = {name: refused for name, each in answers.items() if (refused := each.exception())}

    is_for_all = kind is NotPermitted and len(failed) > len(bad)
    assert failed.keys() == (answers if is_for_all else desk.spoil).keys()
    assert all(isinstance(each, RetryAfter if kind is NotPermitted else kind) for each in failed.values())
    assert len(desk.calls) <= 8 or not is_for_all


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
    desk.spoil["c"] = latest = error(kind, "Other")
    _, waiting = (each.exception() for each in desk.ask("c", "d"))
    assert isinstance(waiting, RetryAfter)
    assert waiting.cause is latest
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
    breaker = CircuitBreaker(FakeClock(), lambda: None)
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
    desk = Desk(Shape(size=50, distance=3600))
    desk.ask("first")
    with ThreadPoolExecutor(50) as pool:
        assert [*pool.map(desk.batcher.ask, names(50))] == [each.upper() for each in names(50)]
        assert [len(each) for each in desk.calls] == [1, 50]
        desk.spoil = {"bad": SystemExit()}  # type: ignore[dict-item]
        answers = [pool.submit(desk.batcher.ask, each) for each in ("bad", *names(49))]
        assert all(isinstance(each.exception(10), SystemExit) for each in answers)
    desk.clock.advance(3600)

    assert desk.batcher.ask("a") == "A"


def test_who_waits_first_calls_when_it_is_time() -> None:
    desk = Desk(Shape(size=50, distance=0.2))
    desk.batcher = Batcher(desk._call, Shape(size=50, distance=0.2), desk.breaker, time.monotonic)
    began = time.monotonic()
    with ThreadPoolExecutor(20) as pool:
        for _ in range(3):
            assert [*pool.map(desk.batcher.ask, names(20))] == [each.upper() for each in names(20)]

    assert time.monotonic() - began >= 0.2 * (len(desk.calls) - 1)
    assert 3 <= len(desk.calls) <= 6


def test_so_many_calls_at_a_time_as_there_may_be() -> None:
    running, go = list[str](), threading.Event()

    def call(items: Sequence[str]) -> Sequence[str]:
        running.extend(items)
        assert go.wait(30)
        return items

    clock = FakeClock()
    breaker = CircuitBreaker(clock, lambda: None)
    batcher: Batcher[str, str] = Batcher(call, Shape(senders=3), breaker, clock)
    with ThreadPoolExecutor(10) as pool:
        for _ in range(2):
            answers = [pool.submit(batcher.ask, each) for each in names(10)]
            until(lambda: len(running) == 3 and len(batcher._waiting) == 7)
            go.set()
            assert [each.result(30) for each in answers] == names(10)
            go.clear()
            running.clear()


def batched(fake: FakeTransport, clock: Callable[[], float]) -> BatchedCloud:
    return BatchedCloud(Cloud(calls(fake, FakeClock())), lambda: None, clock)


def test_tags_are_created_once_and_their_refusal_is_that_of_the_callers_that_need_them() -> None:
    def create(params: Mapping[str, Any]) -> object:
        values = {each["TagValue"] for each in params["Tags"]}
        return error(Rejected) if "2" in values else {}

    fake = FakeTransport(CreateTags=create)
    cloud = batched(fake, FakeClock())
    shared, one, two = ("k", "shared"), ("k", "1"), ("k", "2")
    wanted = {"a": [shared, one], "b": [shared, two]}
    answers = [cloud._new_tags.submit(tags, key) for key, tags in wanted.items()]
    assert step(cloud._new_tags)
    errors = [answer.exception() for answer in answers]

    assert (type(errors[0]), type(errors[1])) == (type(None), Rejected)
    assert (cloud.has_tags([shared, one]), cloud.has_tags([two])) == (True, False)


def test_a_question_of_which_only_a_part_was_in_the_call_that_failed_leaves_nothing_in_the_queue() -> None:
    fake = FakeTransport(DescribeInstances=lambda _: error(Unavailable))
    cloud = batched(fake, count().__next__)
    with pytest.raises(Unavailable):
        cloud.instance_states(names(PAGE + 1))

    assert {each.due for each in batchers(cloud)} == {math.inf}


def test_when_no_call_is_answered_all_workers_have_their_turn_before_the_process_counts_as_hung() -> None:
    cloud = batched(FakeTransport(), FakeClock())
    shapes = [each._shape for each in batchers(cloud)]
    longest = max(WORKERS / (each.size * each.senders) for each in shapes)
    assert longest * CloudSettings().call_timeout < LONGEST_RUN
