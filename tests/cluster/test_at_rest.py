"""Beside a policy engine, with objects of all four features, nothing is written when there is nothing to do."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lab.bootstrap import running
from lab.install import merged
from lab.session import Lab
from lab.waiting import until
from tests import audit
from tests.audit import Request
from tests.cluster import anycast, elasticity, ingress_daemonset, workloads
from tests.cluster.elasticity import Shop, keeping, template
from tests.cluster.ingress_daemonset import by_deployment, detaching
from tests.cluster.ingress_daemonset_edge import Edge
from tests.cluster.ingress_daemonset_history import recording

VALUES = merged(
    merged(elasticity.VALUES, ingress_daemonset.VALUES),
    {"ipReservation": {"enabled": True}, "config": workloads.CONFIG},
)
NODES = ("a", "b", "c")
CALM, WINDOW = 20.0, 120.0
"""Seconds without a write after which it is at rest, and that it then stays so."""
SECONDS = 240


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with running(values=VALUES, nodes=2, kwok_nodes=2, cloud={}, policy=True) as up:
        yield up


def test_at_rest_nothing_is_written_for_two_minutes(lab: Lab, audit_logs: Path) -> None:
    log = audit_logs / f"{lab.directory.name}.log"
    with recording(lab.client) as record, anycast.joined(lab) as fleet:
        fleet.join("n1")
        edge = Edge(lab, record, *NODES)
        edge.create(healthCheckNodePorts=[10080], rolling=detaching(2, **by_deployment(1)))
        shop = Shop(lab)
        shop.deploy("web", 4, template(keeping(2)))
        redis = workloads.reserved_namespace(lab.client, "redis")
        [pod, *_] = workloads.running_statefulset(lab, redis, 2)
        lab.client.delete(workloads.PODS, pod.metadata.name, redis)
        lab.wait(
            lambda: is_reserved(lab),
            SECONDS,
            "an address to be reserved, and the end of its pod to be stored",
        )
        edge.settle(*NODES)
        shop.settle("web", 4)
        fleet.await_open("n1")

        until(lambda: seconds_since_last(writes(log)) > CALM, SECONDS, "no more writes", every=2)
        begin = len(writes(log))
        end = time.monotonic() + WINDOW
        until(lambda: time.monotonic() > end or writes(log)[begin:], WINDOW + 60, "the time to pass", every=5)
        found = [str(each) for each in writes(log)[begin:]]

    assert found == []


def is_reserved(lab: Lab) -> bool:
    held = workloads.all_records(lab, "v3")
    return bool(held) and all(each.ended for each in held)


def writes(log: Path) -> Sequence[Request]:
    """By Drawbridge's ServiceAccounts and those that it has made."""
    return audit.read(log).writes


def seconds_since_last(found: Sequence[Request]) -> float:
    last = max(datetime.fromisoformat(each.at) for each in found)
    return (datetime.now(UTC) - last).total_seconds()
