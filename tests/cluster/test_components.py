"""deploy/ and all of its components are applied together by kubectl, as a kustomization of a user lists them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.lab import chart
from dev.lab.bootstrap import running
from dev.lab.kustomize import FEATURES, OTHERS
from dev.lab.kwokctl import KWOK
from dev.lab.session import Lab
from dev.lab.waiting import at_most
from kube.types import INSTANCE_TYPE
from tests.cluster.test_chart_validity import define
from tests.test_kustomize import built

pytestmark = pytest.mark.nightly

SECONDS = 120


@pytest.fixture
def lab() -> Iterator[Lab]:
    """With the CRDs of other projects; kwok plays what runs the pods."""
    with running(chart=False, nodes=1, kwok_nodes=1) as up:
        define(up)
        up.kubectl("cordon", f"--selector={INSTANCE_TYPE}!={KWOK}")
        yield up


def test_all_components_are_applied_and_their_pods_are_created(lab: Lab, tmp_path: Path) -> None:
    wanted = built(tmp_path, (*FEATURES, *OTHERS))
    mine = ("-k", str(tmp_path / "mine"))

    lab.kubectl("apply", "--server-side", "--validate=strict", *mine)

    found = lab.kubectl("get", *mine, "--output=name").stdout.splitlines()
    assert len(found) == len(wanted) + 1, "all objects, and the namespace"
    for program in ("webhook", "controllers"):
        status = ("rollout", "status", f"deployment/{chart.NAME}-{program}", at_most(SECONDS))
        lab.kubectl("--namespace", chart.NAMESPACE, *status)
