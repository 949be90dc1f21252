"""The API server refuses, or delays, what Drawbridge writes in the midst of a storm."""

from __future__ import annotations

from lab.session import Lab
from tests.chaos.hook import PASS, Answer, hooked, in_turn
from tests.chaos.judge import Judge
from tests.chaos.storm import crowd, storming

TOO_MANY = Answer(429, "TooManyRequests", retry_after=1)
BROKEN = Answer(500, "InternalError")
CONFLICT = Answer(409, "Conflict")
SLOW = Answer(seconds=1.0)


def test_writes_that_are_refused_are_repeated_and_no_deletion_hears_of_it(
    lab: Lab, judge: Judge, redis: str
) -> None:
    pods = crowd(lab, judge, redis, 120)
    with hooked(lab, in_turn(TOO_MANY, PASS, BROKEN, CONFLICT, PASS, PASS)) as hook:
        with storming(lab, pods) as storm:
            storm.let(120)
        judge.await_end(pods)

    assert judge.complaints(pods) == []
    assert storm.repeated == []
    assert {TOO_MANY, BROKEN, CONFLICT} <= set(hook.given)


def test_writes_that_take_a_second_each_are_shared_so_that_no_deletion_comes_too_late(
    lab: Lab, judge: Judge, redis: str
) -> None:
    pods = crowd(lab, judge, redis, 120)
    with hooked(lab, in_turn(SLOW)), storming(lab, pods) as storm:
        storm.let(120)

    judge.await_end(pods)
    assert judge.complaints(pods) == []
    assert storm.repeated == []
