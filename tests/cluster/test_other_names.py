"""An installation works whatever its release, its namespace and its parts are called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from dev.lab import admission, install
from dev.lab.bootstrap import running
from dev.lab.session import Lab
from kube.resources import PODS
from tests.cluster import workloads
from tests.cluster.test_cli import shown
from tests.cluster.workloads import SECONDS

RELEASE, NAMESPACE = "prod", "gate"
WHERE = ("--namespace", NAMESPACE)
NAMES = {"nameOverride": "keeper", "certs": {"mode": "self-managed", "existingSecret": ""}}


def install_under_another_name(lab: Lab, values: Mapping[str, Any]) -> None:
    own = install.merged(install.lab_values(lab, b""), {**values, **NAMES})
    what = ("install", RELEASE, str(install.CHART), "--create-namespace", "--values", "-")
    waiting = ("--wait", "--timeout", install.HELM_TIMEOUT)
    lab.helm(*what, *WHERE, *waiting, stdin=yaml.safe_dump(own))
    admission.await_evictions(lab.client)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with running(chart=False, nodes=2, kwok_nodes=1) as up:
        install_under_another_name(up, workloads.VALUES)
        yield up


def test_ips_are_reserved_and_what_checks_it_reserves_one(lab: Lab) -> None:
    redis = workloads.reserved_namespace(lab.client, "redis")
    pod = workloads.running_pod(lab, redis, "a")

    lab.client.delete(PODS, "a", redis)

    held = workloads.records(lab, "v3")[pod.metadata.uid]
    assert held.cidr == f"{pod.status.addresses[0]}/32"

    tested = lab.helm("test", RELEASE, *WHERE).stdout
    assert tested.count("Phase:          Succeeded") == 2

    found = shown(lab, "doctor")["findings"]
    assert [each for each in found if each["verdict"] == "wrong"] == []
    assert [each["verdict"] for each in found if each["check"] == "a reservation"] == ["ok"]
    lab.wait(lambda: [*workloads.records(lab, "v3")] == [pod.metadata.uid], SECONDS, "the leader to clear up")
