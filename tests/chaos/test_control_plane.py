"""The control plane itself breaks in the midst of a storm."""

from __future__ import annotations

import time

from lab import faults
from lab.session import Lab
from tests.chaos.judge import Judge, judging
from tests.chaos.storm import crowd, storming, when_etcd_stands_still, when_the_api_server_starts
from tests.cluster.workloads import GROUPS

FROZEN = 10.0


def test_the_api_server_crashes_and_comes_back(lab: Lab, redis: str) -> None:
    # One that was away forgets what happened before, which the judge must know.
    with faults.second_api_server(lab) as witness, judging(lab, GROUPS["v1"], witness) as judge:
        pods = crowd(lab, judge, redis, 120)

        with storming(lab, pods, repeats=when_the_api_server_starts) as storm:
            storm.let(80)
            storm.await_answers(30)
            with faults.killed(lab, "kube-apiserver"):
                storm.let(100)
                lab.wait(lambda: len(storm.repeated) > 10, 30, "requests to find no API server")
            lab.wait(lambda: faults.is_ready(lab.client), 60, "the API server to be ready")

        judge.await_end(pods)
    assert judge.complaints(pods) == []


def test_etcd_stands_still_for_ten_seconds(lab: Lab, judge: Judge, redis: str) -> None:
    pods = crowd(lab, judge, redis, 120)

    with storming(lab, pods, repeats=when_etcd_stands_still) as storm:
        storm.let(80)
        storm.await_answers(30)
        with faults.frozen(lab, "etcd"):
            storm.let(100)
            time.sleep(FROZEN)

    judge.await_end(pods)
    assert judge.complaints(pods) == []
