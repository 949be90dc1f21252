"""Webhook replicas come to their end in the midst of a storm."""

from __future__ import annotations

from lab.session import Lab
from tests.chaos import programs
from tests.chaos.judge import Judge
from tests.chaos.storm import as_client_go, crowd, storming, when_a_replica_dies


def test_five_hundred_pods_go_while_one_replica_is_restarted_and_the_other_one_killed(
    lab: Lab, judge: Judge, redis: str
) -> None:
    programs.await_ready(lab, "webhook")
    first, second = programs.ready(lab, "webhook")
    pods = crowd(lab, judge, redis, 500)

    with storming(lab, pods, repeats=when_a_replica_dies) as storm:
        storm.let(250)
        storm.await_answers(80)
        programs.delete(lab, first)
        lab.wait(lambda: set(programs.ready(lab, "webhook")) - {first, second}, 60, "a replica in its place")
        storm.await_answers(250)
        assert [refusal for refusal in storm.repeated if not as_client_go(refusal)] == []
        storm.let(400)
        storm.await_answers(300)
        programs.kill(lab, second)

    judge.await_end(pods)
    assert judge.complaints(pods) == []
    programs.await_ready(lab, "webhook")
    assert programs.exit_code(lab, "webhook", second) == 137
