"""Everything below needs the lab; the labs that tests share are brought up once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import lab
from lab.session import Lab

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def lab_v3() -> Iterator[Lab]:
    """A lab with the chart on it and Calico's IPReservation in projectcalico.org/v3."""
    with lab.running(calico="projectcalico.org/v3") as running:
        yield running


@pytest.fixture(scope="session")
def bare_lab() -> Iterator[Lab]:
    """A lab without the chart, with both of Calico's API versions."""
    with lab.running(install=False, calico="both", nodes=1) as running:
        yield running
