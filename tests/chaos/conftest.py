"""Storms of deletions while something breaks; the lab that most of them share is brought up once."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.lab.bootstrap import running
from dev.lab.session import Lab
from dev.outside import Outside, judged, of_reservations
from tests.chaos.rules import HOLD, VALUES
from tests.cluster import workloads
from tests.cluster.least_privilege import audit_logs as audit_logs
from tests.cluster.shared_labs import grouped_by_lab
from tests.cluster.workloads import GROUPS
from tests.sockets import PEER_GONE

HERE = Path(__file__).parent
LABS = ("lab",)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.chaos)
            item.add_marker(grouped_by_lab(item, LABS))
            item.add_marker(PEER_GONE)


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Calico's group v1, which refuses neither a malformed entry nor one that stands twice."""
    with running(calico="crd.projectcalico.org/v1", values=VALUES, kwok_nodes=6) as up:
        yield up


@pytest.fixture
def outside(lab: Lab) -> Iterator[Outside]:
    with judged(lab, of_reservations(HOLD.total_seconds()), GROUPS["v1"]) as seeing:
        yield seeing


@pytest.fixture
def redis(lab: Lab) -> Iterator[str]:
    """A new namespace in which addresses are reserved."""
    name = f"c-{secrets.token_hex(4)}"
    yield workloads.reserved_namespace(lab.client, name)
    lab.kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")
