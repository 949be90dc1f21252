"""A release under another name takes over between two halves of a storm; in a separate lab."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from dev.lab import install
from dev.lab.bootstrap import running
from dev.lab.killing import kill_pod
from dev.lab.session import Lab
from dev.outside import Outside
from tests.chaos import programs
from tests.chaos.rules import VALUES
from tests.chaos.storm import crowd, storming, when_a_replica_dies
from tests.cluster.test_other_names import NAMESPACE, install_under_another_name
from tests.cluster.workloads import PODS


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with running(calico="crd.projectcalico.org/v1", values=VALUES, kwok_nodes=2) as up:
        yield up


def test_what_one_release_has_reserved_another_one_holds_and_releases(
    lab: Lab, outside: Outside, redis: str
) -> None:
    pods = crowd(lab, outside, redis, 80)
    with storming(lab, pods, repeats=when_a_replica_dies) as storm:
        storm.let(40)
        storm.await_answers(40)
        lab.helm("uninstall", install.RELEASE, "--namespace", programs.NAMESPACE)
        install_under_another_name(lab, VALUES)
        storm.let(60)
        storm.await_answers(50)
        selector = "app.kubernetes.io/component=webhook"
        [server, *_] = lab.client.list(PODS, NAMESPACE, label_selector=selector).items
        kill_pod(lab, NAMESPACE, server["metadata"]["name"], signal.SIGKILL)

    assert outside.at_rest() == []
