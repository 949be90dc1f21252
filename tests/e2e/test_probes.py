"""A webhook server that hangs is taken out of its Service, and restarted."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from dev.judge import observation
from dev.lab.install import NAMESPACE
from kube.resources import PODS
from tests.cluster.workloads import messages
from tests.e2e.calls import SERVERS
from tests.e2e.inside import processes_of
from tests.e2e.real import Real

SECONDS = 180
COPY = "without-probes"
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
KILLING = "Killing"


@pytest.fixture
def server(real_nodes: Real) -> dict[str, Any]:
    """A pod of the webhook servers."""
    pods: list[dict[str, Any]] = real_nodes.client.list(PODS, NAMESPACE, label_selector=SERVERS).items
    return next(each for each in pods if "deletionTimestamp" not in each["metadata"])


@pytest.fixture
def copy(real_nodes: Real, server: dict[str, Any]) -> Iterator[str]:
    """The name of the same pod without its probes, on the same node; no Service selects it."""
    containers = [
        {key: value for key, value in each.items() if key not in PROBES}
        for each in server["spec"]["containers"]
    ]
    spec = {**server["spec"], "containers": containers}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": COPY}, "spec": spec}
    real_nodes.client.create(PODS, pod, NAMESPACE)
    real_nodes.wait(lambda: is_ready(real_nodes, COPY), SECONDS, f"{COPY} to run")
    yield COPY
    real_nodes.kubectl("--namespace", NAMESPACE, "delete", "pod", COPY, "--force", "--grace-period=0")


def test_a_server_that_hangs_is_restarted_and_a_copy_without_probes_is_not(
    real_nodes: Real, server: dict[str, Any], copy: str
) -> None:
    """The control is the copy."""
    name = server["metadata"]["name"]
    for pod in (name, copy):
        real_nodes.wait(lambda: len(processes_of(pod)) == 2, SECONDS, f"{pod} to have its worker")  # noqa: B023
        signal_all(pod, signal.SIGSTOP)

    real_nodes.wait(lambda: not is_ready(real_nodes, name), SECONDS, f"{name} to leave the Service")
    real_nodes.wait(
        lambda: KILLING in messages(real_nodes.client, NAMESPACE, name=name), SECONDS, f"{name} to be ended"
    )
    signal_all(name, signal.SIGCONT)
    real_nodes.wait(lambda: restarts(real_nodes, name) == 1, SECONDS, f"{name} to be restarted")
    real_nodes.wait(lambda: is_ready(real_nodes, name), SECONDS, f"{name} to be back in the Service")

    assert is_ready(real_nodes, copy)
    assert restarts(real_nodes, copy) == 0
    assert KILLING not in messages(real_nodes.client, NAMESPACE, name=copy)


def signal_all(pod: str, number: signal.Signals) -> None:
    for pid in processes_of(pod):
        os.kill(pid, number)


def is_ready(cluster: Real, pod: str) -> bool:
    """As the Service takes it."""
    return observation.is_ready(cluster.client.get(PODS, pod, NAMESPACE))


def restarts(cluster: Real, pod: str) -> int:
    [container] = cluster.client.get(PODS, pod, NAMESPACE)["status"]["containerStatuses"]
    return int(container["restartCount"])
