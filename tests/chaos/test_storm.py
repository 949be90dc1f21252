"""Something breaks during a storm: a webhook replica, the leader, or the control plane."""

from __future__ import annotations

import time

import pytest

from dev.lab import faults
from dev.lab.session import Lab
from dev.outside import Outside, judged, of_reservations
from tests.chaos import programs
from tests.chaos.rules import HOLD
from tests.chaos.storm import (
    as_client_go,
    crowd,
    storming,
    when_a_replica_dies,
    when_etcd_stands_still,
    when_the_api_server_starts,
)
from tests.cluster import workloads
from tests.cluster.workloads import GROUPS

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


@pytest.mark.promise
def test_what_a_killed_leader_has_not_released_the_next_one_releases(
    lab: Lab, outside: Outside, redis: str
) -> None:
    programs.await_ready(lab, "controllers")
    pods = crowd(lab, outside, redis, 120)
    with storming(lab, pods) as storm:
        storm.let(120)
        storm.await_answers(120)
    most = len(workloads.all_records(lab, "v1"))
    lab.wait(lambda: len(workloads.all_records(lab, "v1")) < most, 90, "the leader to be releasing")
    old = programs.leader(lab)
    programs.kill(lab, old)

    programs.another_leader(lab, than=old)
    assert outside.at_rest() == []


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
