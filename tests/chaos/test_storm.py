"""Something breaks during a storm: a webhook replica, the leader, its writes, or the control plane."""

from __future__ import annotations

import signal
import time

import pytest

from dev.lab import faults
from dev.lab.session import Lab
from dev.outside import Outside, judged, of_reservations
from tests.chaos import programs
from tests.chaos.hook import PASS, STUCK, Answer, Hook, hooked, in_turn, stuck_in_releasing
from tests.chaos.rules import HOLD
from tests.chaos.storm import (
    as_client_go,
    crowd,
    storming,
    when_a_replica_dies,
    when_etcd_stands_still,
    when_the_api_server_starts,
)
from tests.cluster.workloads import GROUPS

TOO_MANY = Answer(429, "TooManyRequests", retry_after=1)
BROKEN = Answer(500, "InternalError")
CONFLICT = Answer(409, "Conflict")
SLOW = Answer(seconds=1.0)
FROZEN = 10.0


def test_the_judge_sees_an_address_that_is_not_reserved(lab: Lab, outside: Outside, redis: str) -> None:
    [pod] = crowd(lab, outside, redis, 1)
    lab.kubectl("annotate", "pod", pod.metadata.name, "-n", redis, "drawbridge.io/reserve-ip=false")

    with storming(lab, [pod]):
        pass

    assert "is free" in outside.at_rest()[0].message


# Webhook replicas end


@pytest.mark.promise
def test_five_hundred_pods_go_while_one_replica_is_restarted_and_the_other_one_killed(
    lab: Lab, outside: Outside, redis: str
) -> None:
    programs.await_ready(lab, "webhook")
    first, second = programs.ready(lab, "webhook")
    pods = crowd(lab, outside, redis, 500)

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

    assert outside.at_rest() == []
    programs.await_ready(lab, "webhook")
    assert programs.exit_code(lab, "webhook", second) == 137


# The leader ends while it releases; the next one finishes what it began


def end_leader_while_it_releases(lab: Lab, hook: Hook, number: signal.Signals) -> str:
    """The leader's pod, after it got the signal between two of its writes."""
    lab.wait(lambda: STUCK in hook.given, 90, "the leader to be releasing")
    old = programs.leader(lab)
    programs.kill(lab, old, number)
    return old


@pytest.mark.promise
def test_what_a_killed_leader_has_not_released_the_next_one_releases(
    lab: Lab, outside: Outside, redis: str
) -> None:
    programs.await_ready(lab, "controllers")
    pods = crowd(lab, outside, redis, 120)
    with hooked(lab, stuck_in_releasing()) as hook:
        with storming(lab, pods) as storm:
            storm.let(120)
        old = end_leader_while_it_releases(lab, hook, signal.SIGKILL)

    programs.another_leader(lab, than=old)
    assert outside.at_rest() == []


def test_a_leader_that_stood_still_for_longer_than_its_lease_ends_and_does_no_harm(
    lab: Lab, outside: Outside, redis: str
) -> None:
    programs.await_ready(lab, "controllers")
    pods = crowd(lab, outside, redis, 120)
    with storming(lab, pods) as storm:
        with hooked(lab, stuck_in_releasing()) as hook:
            storm.let(60)
            old = end_leader_while_it_releases(lab, hook, signal.SIGSTOP)
        programs.another_leader(lab, than=old)
    programs.kill(lab, old, signal.SIGCONT)

    lab.wait(lambda: programs.exit_code(lab, "controllers", old) == 1, 60, "the old leader to end by itself")
    assert outside.at_rest() == []


# The API server refuses or delays writes


def test_writes_that_are_refused_are_repeated_and_no_deletion_is_repeated(
    lab: Lab, outside: Outside, redis: str
) -> None:
    pods = crowd(lab, outside, redis, 120)
    with hooked(lab, in_turn(TOO_MANY, PASS, BROKEN, CONFLICT, PASS, PASS)) as hook:
        with storming(lab, pods) as storm:
            storm.let(120)
        assert outside.at_rest() == []

    assert storm.repeated == []
    assert {TOO_MANY, BROKEN, CONFLICT} <= set(hook.given)


def test_writes_that_take_a_second_each_are_shared_so_that_no_deletion_comes_too_late(
    lab: Lab, outside: Outside, redis: str
) -> None:
    pods = crowd(lab, outside, redis, 120)
    with hooked(lab, in_turn(SLOW)), storming(lab, pods) as storm:
        storm.let(120)

    assert outside.at_rest() == []
    assert storm.repeated == []


# The control plane breaks


def test_the_api_server_crashes_and_comes_back(lab: Lab, redis: str) -> None:
    # One that was away forgets what happened before, which the judge must know.
    rules = of_reservations(HOLD.total_seconds())
    with (
        faults.second_api_server(lab) as witness,
        judged(lab, rules, GROUPS["v1"], client=witness) as outside,
    ):
        pods = crowd(lab, outside, redis, 120)

        with storming(lab, pods, repeats=when_the_api_server_starts) as storm:
            storm.let(80)
            storm.await_answers(30)
            with faults.killed(lab, "kube-apiserver"):
                storm.let(100)
                lab.wait(lambda: len(storm.repeated) > 10, 30, "requests to find no API server")
            lab.wait(lambda: faults.is_ready(lab.client), 60, "the API server to be ready")

        assert outside.at_rest() == []


def test_etcd_stands_still_for_ten_seconds(lab: Lab, outside: Outside, redis: str) -> None:
    pods = crowd(lab, outside, redis, 120)

    with storming(lab, pods, repeats=when_etcd_stands_still) as storm:
        storm.let(80)
        storm.await_answers(30)
        with faults.frozen(lab, "etcd"):
            storm.let(100)
            time.sleep(FROZEN)

    assert outside.at_rest() == []
