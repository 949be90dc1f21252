"""Under continuous creation of pods, ten times each: switched off, and uninstalled, and no pod is left gated."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from dev.lab.bootstrap import running
from dev.lab.session import Lab
from tests.cluster import elasticity_leaving as leaving

ROUNDS = int(os.environ.get("ROUNDS", "10"))


@pytest.fixture(scope="module")
def elastic_lab() -> Iterator[Lab]:
    with running(values=leaving.VALUES, calico=None, nodes=2, kwok_nodes=4) as up:
        yield up


def test_switched_off_it_leaves_no_pod_gated(elastic_lab: Lab) -> None:
    for _ in range(ROUNDS):
        leaving.switched_off(elastic_lab)


def test_uninstalled_it_leaves_no_pod_gated(elastic_lab: Lab) -> None:
    for _ in range(ROUNDS):
        leaving.uninstalled(elastic_lab)
