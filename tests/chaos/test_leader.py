"""The leader comes to its end in the midst of releasing; the next one finishes what it began."""

from __future__ import annotations

import signal

from lab.session import Lab
from tests.chaos import programs
from tests.chaos.hook import STUCK, Hook, hooked, stuck_in_releasing
from tests.chaos.judge import Judge
from tests.chaos.storm import crowd, storming


def end_leader_in_the_midst_of_releasing(lab: Lab, hook: Hook, number: signal.Signals) -> str:
    """The leader's pod, after it got the signal between two of its writes."""
    lab.wait(lambda: STUCK in hook.given, 90, "the leader to be in the midst of releasing")
    old = programs.leader(lab)
    programs.kill(lab, old, number)
    return old


def test_what_a_killed_leader_has_not_released_the_next_one_releases(
    lab: Lab, judge: Judge, redis: str
) -> None:
    programs.await_ready(lab, "controllers")
    pods = crowd(lab, judge, redis, 120)
    with hooked(lab, stuck_in_releasing()) as hook:
        with storming(lab, pods) as storm:
            storm.let(120)
        old = end_leader_in_the_midst_of_releasing(lab, hook, signal.SIGKILL)

    programs.another_leader(lab, than=old)
    judge.await_end(pods)
    assert judge.complaints(pods) == []


def test_a_leader_that_stood_still_for_longer_than_its_lease_ends_and_does_no_harm(
    lab: Lab, judge: Judge, redis: str
) -> None:
    programs.await_ready(lab, "controllers")
    pods = crowd(lab, judge, redis, 120)
    with storming(lab, pods) as storm:
        with hooked(lab, stuck_in_releasing()) as hook:
            storm.let(60)
            old = end_leader_in_the_midst_of_releasing(lab, hook, signal.SIGSTOP)
        programs.another_leader(lab, than=old)
    programs.kill(lab, old, signal.SIGCONT)

    lab.wait(lambda: programs.exit_code(lab, "controllers", old) == 1, 60, "the old leader to end by itself")
    judge.await_end(pods)
    assert judge.complaints(pods) == []
