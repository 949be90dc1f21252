"""Everything below needs the lab; the labs that tests share are brought up once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import binaries, install
from lab.begin import running
from lab.session import Lab
from tests.cluster.workloads import VALUES

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def lab_v3() -> Iterator[Lab]:
    """A lab with the chart on it and IPReservation as Calico serves it natively, in projectcalico.org/v3."""
    with running(calico="projectcalico.org/v3", values=VALUES) as up:
        yield up


@pytest.fixture(scope="session")
def lab_v1() -> Iterator[Lab]:
    """A lab with the chart on it and all definitions of Calico 3.28, in crd.projectcalico.org/v1."""
    with running(calico=None, chart=False) as up:
        up.kubectl("apply", "--server-side", "-f", str(binaries.calico_crds()))
        install.install_chart(up, VALUES)
        yield up


@pytest.fixture(scope="session")
def bare_lab() -> Iterator[Lab]:
    """A lab without the chart, with both of Calico's API versions."""
    with running(chart=False, calico="both", nodes=1) as up:
        yield up
