"""What a webhook server needs to reserve is out of its reach; in a separate lab."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from dev.lab import install
from dev.lab.bootstrap import running
from dev.lab.session import Lab
from dev.lab.waiting import at_most
from dev.outside import judged, of_reservations
from kube.errors import ApiError, ServerError
from kube.types import Pod
from tests.chaos import programs
from tests.chaos.rules import HOLD, VALUES
from tests.chaos.storm import as_client_go, crowd, delete, evict, storming
from tests.cluster import workloads
from tests.cluster.workloads import GROUPS

WAY_OUT = "annotate the pod drawbridge.io/reserve-ip=false to delete it without reserving its IP"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """A lab without Calico, until a test brings it."""
    with running(calico=None, values=VALUES) as up:
        yield up


def bring_calico(lab: Lab) -> None:
    """In both of its groups, if it is not there yet."""
    if not lab.client.serves(GROUPS["v3"]):
        install.install_crds(lab.client, "both")


def test_deletions_wait_for_calico_and_take_its_v3_where_both_groups_are_served(lab: Lab, redis: str) -> None:
    for number in range(20):
        workloads.create_pod(lab, redis, f"redis-{number}")
    workloads.running_pod(lab, redis, "early")
    with pytest.raises(ServerError, match=f"{redis}/early keeps running .* is Calico installed") as refused:
        lab.client.delete(workloads.PODS, "early", redis, timeout=30)
    assert (refused.value.status, as_client_go(refused.value)) == (503, True)

    bring_calico(lab)

    with judged(lab, of_reservations(HOLD.total_seconds()), GROUPS["v3"]) as outside:
        pods = workloads.pods_of(lab, redis)
        with storming(lab, pods) as storm:
            storm.let(21)
        assert lab.client.list(GROUPS["v1"]).items == []
        assert outside.at_rest() == []


def test_without_the_api_server_deletions_are_refused_in_time_and_reserved_late_where_they_may_pass(
    lab: Lab, redis: str
) -> None:
    bring_calico(lab)
    rules = of_reservations(HOLD.total_seconds())
    with judged(lab, rules, GROUPS["v3"]) as outside, silence() as port:
        pods = crowd(lab, outside, redis, 12)
        lead_the_webhook_to(lab, port)

        with ThreadPoolExecutor(2) as pool:
            answers = [
                pool.submit(refusal, ask, lab, pod) for ask, pod in ((delete, pods[0]), (evict, pods[1]))
            ]
        assert [answer.result() for answer in answers] == [503, 429]

        let_deletions_pass(lab)
        outside.disturb(*(pod.metadata.name for pod in pods))
        lab.wait(lambda: not refusal(delete, lab, pods[0]), 60, "failurePolicy Ignore to be in force")
        held = {}

        def are_all_held() -> bool:
            held.update(workloads.records(lab, "v3"))
            return {pod.metadata.uid for pod in pods} <= held.keys()

        with storming(lab, pods[1:]) as storm:
            storm.let(len(pods))
            lab.wait(are_all_held, 60, "every address to be reserved late")
        assert outside.at_rest() == []
    assert {held[pod.metadata.uid].late for pod in pods} == {True}


@contextmanager
def silence() -> Iterator[int]:
    """The port of a server that takes calls and never says a word."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as server:
        yield server.getsockname()[1]


def lead_the_webhook_to(lab: Lab, port: int) -> None:
    """What the webhook servers take for the API server is at *port* now; the API server still finds them."""
    where = ("KUBERNETES_SERVICE_HOST=127.0.0.1", f"KUBERNETES_SERVICE_PORT={port}")
    before = set(programs.pods(lab, "webhook"))
    lab.kubectl("set", "env", "deployment/drawbridge-webhook", "-n", programs.NAMESPACE, *where)
    lab.kubectl("rollout", "status", "deployment/drawbridge-webhook", "-n", programs.NAMESPACE, at_most(90))
    lab.wait(lambda: not before & programs.all_pods(lab), 60, "the servers of before to be gone")


def let_deletions_pass(lab: Lab) -> None:
    value = "ipReservation.failurePolicy=Ignore"
    release = ("drawbridge", str(install.CHART), "--namespace", programs.NAMESPACE)
    lab.helm("upgrade", *release, "--reuse-values", "--set", value)


def refusal(ask: Callable[[Lab, Pod], None], lab: Lab, pod: Pod) -> int:
    """The code with which Drawbridge, and not the API server in its place, refuses; 0 when it does not."""
    try:
        ask(lab, pod)
    except ApiError as answer:
        error = answer
    else:
        return 0
    assert f"pod {pod.metadata.namespace}/{pod.metadata.name} keeps running" in error.message
    assert WAY_OUT in error.message
    assert as_client_go(error)
    return error.status
