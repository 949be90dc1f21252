"""Everything below needs a cluster of containers, one for all of it: `make e2e` picks what the machine has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import kind, real
from tests.e2e.cluster import Cluster

HERE = Path(__file__).parent
PROVIDER = "DRAWBRIDGE_E2E"
"""The environment variable by which `python -m tests.e2e` says what runs the containers."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """With our image, and the chart with all four features."""
    provider = os.environ.get(PROVIDER)
    if provider == "kind":
        with kind.running(tmp_path_factory.mktemp("kind")) as up:
            yield up
    elif provider == "real":
        with real.running() as up:
            yield up
    else:
        pytest.skip("the end-to-end tests are run by `make e2e`")


@pytest.fixture
def real_nodes(cluster: Cluster) -> Cluster:
    """With Calico beside it, and clients that reach its nodes."""
    if not cluster.is_real:
        pytest.skip("kind has neither Calico nor a load balancer")
    return cluster
