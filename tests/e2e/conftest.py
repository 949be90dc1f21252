"""Everything below needs Docker and kind; there is one cluster for all of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import kind

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kind.Kind]:
    """With cert-manager, our image, and the chart with all four features."""
    if why := kind.here():
        pytest.skip(why)
    with kind.running(tmp_path_factory.mktemp("kind")) as up:
        yield up
