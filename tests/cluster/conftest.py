"""Everything below needs the lab; the labs that tests share are brought up once.

Those of the four features have a policy engine beside Drawbridge, as most clusters have.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dev.lab import binaries, install
from dev.lab.bootstrap import running
from dev.lab.session import Lab
from tests.cluster import (
    anycast,
    elasticity,
    elasticity_subnets,
    ingress_daemonset,
)
from tests.cluster.anycast import Fleet
from tests.cluster.least_privilege import audit_logs as audit_logs
from tests.cluster.shared_labs import grouped_by_lab, shared_lab
from tests.cluster.workloads import VALUES, reserved_namespace
from tests.sockets import PEER_GONE

HERE = Path(__file__).parent

LABS = ("lab_v3", "lab_v1", "bare_lab", "cloud_lab", "elastic_lab", "edge_lab")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.cluster)
            item.add_marker(grouped_by_lab(item, LABS))
            item.add_marker(PEER_GONE)
            if not shared_lab(item, LABS):
                item.add_marker(pytest.mark.apart)


@pytest.fixture(scope="session")
def lab_v3() -> Iterator[Lab]:
    """A lab with the chart on it and IPReservation as Calico serves it natively, in projectcalico.org/v3."""
    with running(calico="projectcalico.org/v3", values=VALUES, policy=True) as up:
        yield up


@pytest.fixture(scope="session")
def lab_v1() -> Iterator[Lab]:
    """A lab with the chart on it and all definitions of Calico 3.28, in crd.projectcalico.org/v1."""
    with running(calico=None, chart=False, policy=True) as up:
        up.kubectl("apply", "--server-side", "-f", str(binaries.calico_crds()))
        install.install_chart(up, VALUES)
        yield up


@pytest.fixture(scope="session")
def bare_lab() -> Iterator[Lab]:
    """A lab without the chart, with both of Calico's API versions."""
    with running(chart=False, calico="both", nodes=1) as up:
        yield up


@pytest.fixture(scope="session")
def cloud_lab() -> Iterator[Lab]:
    """A lab in whose cloud nodes get anycast IPs; in the end nothing must be left of those that are gone."""
    values = VALUES | {"controllers": {"replicaCount": 1}}
    with running(values=values, kwok_nodes=1, cloud={"instances_run": False}, policy=True) as up:
        yield up
        anycast.assert_empty_soon(up, lambda: anycast.left_behind(up))


@pytest.fixture
def fleet(cloud_lab: Lab) -> Iterator[Fleet]:
    """The nodes of one test."""
    with anycast.joined(cloud_lab) as nodes:
        yield nodes


@pytest.fixture(scope="session")
def elastic_lab() -> Iterator[Lab]:
    """A lab with local nodes and one super node, whose pods kwok plays."""
    with running(values=elasticity.VALUES, calico=None, nodes=2, policy=True) as up:
        yield up


@pytest.fixture(scope="session")
def subnets(elastic_lab: Lab) -> Iterator[Callable[[], None]]:
    """They come and go while other tests run; what it gives waits for the end of that."""
    with elasticity_subnets.coming_and_going(elastic_lab) as end:
        yield end


@pytest.fixture(scope="session")
def edge_lab() -> Iterator[Lab]:
    """A lab that keeps IngressDaemonSets, and has no nodes for them yet; with a cloud for their weights."""
    values = install.merged(ingress_daemonset.VALUES, ingress_daemonset.WITH_CLB)
    with running(values=values, calico=None, nodes=2, kwok_nodes=0, cloud={}, policy=True) as up:
        yield up


@pytest.fixture(params=["v3", "v1"])
def group(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def lab(group: str, request: pytest.FixtureRequest) -> Lab:
    """A lab whose Calico serves IPReservation in one group; those of group v1 are Calico's own definitions."""
    found: Lab = request.getfixturevalue(f"lab_{group}")
    return found


@pytest.fixture
def redis(lab: Lab) -> Iterator[str]:
    """A separate namespace in which addresses are reserved."""
    name = f"t-{secrets.token_hex(4)}"
    yield reserved_namespace(lab.client, name)
    lab.kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")
