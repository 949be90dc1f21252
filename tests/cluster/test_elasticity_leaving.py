"""Switched off or uninstalled while pods are created, the feature leaves none gated; tests/chaos does it ten times."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.begin import running
from lab.session import Lab
from tests.cluster import elasticity_leaving as leaving
from tests.cluster.elasticity import Shop, template
from webhook.elasticity import GATE, REASON


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """Where the controllers open gates while the feature is off."""
    with running(values=leaving.VALUES, calico=None, nodes=2) as up:
        yield up


def test_while_the_feature_is_off_the_controllers_open_gates_if_they_are_to(lab: Lab) -> None:
    shop = Shop(lab)
    shop.run("waits", template(schedulingGates=[{"name": GATE}]))

    shop.await_home("waits")
    assert "switched off" in shop.pod("waits").metadata.annotations[REASON]


def test_switched_off_while_pods_are_created_it_leaves_none_gated(lab: Lab) -> None:
    leaving.switched_off(lab)


def test_uninstalled_while_pods_are_created_it_leaves_none_gated(lab: Lab) -> None:
    leaving.uninstalled(lab)
