"""Turns: how many a second, and who waits how long."""

from __future__ import annotations

import threading
from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloud import apis
from cloud.caller import RateLimiter, Timing
from tests.fakes import FakeClock


def limits(clock: FakeClock, share: float = 1.0) -> RateLimiter:
    return RateLimiter(share, Timing(clock, clock.advance))


@given(pauses=st.lists(st.floats(0, 2), max_size=60), share=st.floats(0.1, 1))
def test_no_second_however_cut_has_more_than_the_documented_calls(pauses: list[float], share: float) -> None:
    clock = FakeClock(0.0)
    ours = limits(clock, share)
    turns = []
    for pause in pauses:
        clock.advance(pause)
        ours.wait(apis.ALLOCATE, float("inf"))
        turns.append(clock())
    # A microsecond less than a second: what sums of floats may be off by.
    counts = [bisect_left(turns, start + 1 - 1e-6) - number for number, start in enumerate(turns)]
    assert max(counts, default=0) <= apis.ALLOCATE.rate


def test_each_api_has_separate_turns() -> None:
    clock = FakeClock(0.0)
    ours = limits(clock)
    for api in (apis.ALLOCATE, apis.ASSOCIATE, apis.DESCRIBE_ADDRESSES):
        ours.wait(api, float("inf"))
    assert clock() == 0


def test_who_cannot_have_a_turn_in_time_gets_an_answer_at_once_and_takes_none() -> None:
    clock = FakeClock(0.0)
    ours = limits(clock)
    assert ours.wait(apis.ALLOCATE, 0.0)
    assert not ours.wait(apis.ALLOCATE, 0.05)
    assert clock() == 0
    assert ours.wait(apis.ALLOCATE, 0.2)
    assert clock() == pytest.approx(0.1)


def test_threads_share_the_turns() -> None:
    clock, slept, lock = FakeClock(0.0), [], threading.Lock()

    def sleep(seconds: float) -> None:
        with lock:
            slept.append(round(seconds, 6))

    ours = RateLimiter(1.0, Timing(clock, sleep))
    threads = [threading.Thread(target=ours.wait, args=(apis.ALLOCATE, 10.0)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(slept) == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7])
