"""README's quick start, as it stands, in a cluster of kind: `python -m tests.e2e tests/e2e/quick_start.py`.

`make e2e` leaves it out: once is enough for all versions of Kubernetes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.e2e.conftest import PROVIDER
from tests.e2e.kind import run
from tests.pages import ROOT
from tests.pages import run as run_block
from tests.test_quick_start import CLUSTER, POD, step


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[Mapping[str, str]]:
    """Where no cluster is yet; it is removed afterwards."""
    if os.environ.get(PROVIDER) != "kind":
        pytest.skip("the quick start needs Docker and kind")
    yield os.environ | {"KUBECONFIG": str(tmp_path / "kubeconfig")}
    run("kind", "delete", "cluster", *step("kind", "create", "cluster")[:2])


def test_the_quick_start_ends_with_a_reserved_ip(environment: Mapping[str, str]) -> None:
    for block in (CLUSTER, POD):
        assert block.prints in run_block(block, ROOT, environment, seconds=1200)
