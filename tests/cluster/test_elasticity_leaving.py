"""Gates that no leader opens are opened when the feature is off; tests/chaos switches it off while pods are created."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from controllers.elasticity.open_gates import WHY
from lab.bootstrap import running
from lab.install import RELEASE
from lab.session import Lab
from tests.chaos import programs
from tests.cluster import elasticity_leaving as leaving
from tests.cluster.elasticity import Shop, keeping, template
from webhook.elasticity import GATE, REASON

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with running(values=leaving.VALUES, calico=None, nodes=2) as up:
        yield up


def test_while_the_feature_is_off_the_controllers_open_gates_if_they_are_to() -> None:
    # In a lab of its own: where the feature was ever on, its permissions would do as well.
    with running(values=leaving.VALUES, calico=None, nodes=2) as lab:
        shop = Shop(lab)
        shop.run("waits", template(schedulingGates=[{"name": GATE}]))

        shop.await_home("waits")
        assert "switched off" in shop.pod("waits").metadata.annotations[REASON]


def test_what_no_leader_places_is_opened_by_the_job(lab: Lab) -> None:
    leaving.switch(lab, leaving.ON)
    leaving.await_on(lab)
    lab.wait(
        lambda: {*programs.pods(lab, "controllers")} == {programs.leader(lab)}, 120, "the new leader alone"
    )
    shop = Shop(lab)
    programs.kill(lab, programs.leader(lab), signal.SIGSTOP)
    names = {f"waits-{number}" for number in range(5)}
    for name in sorted(names):
        shop.run(name, template(keeping(1)))
    assert shop.gated() == names

    leaving.switch(lab, leaving.OFF)

    assert "kind: Job" in lab.helm("get", "hooks", RELEASE, *leaving.WHERE).stdout
    assert leaving.gated(lab) == []
    shop.await_home(*names)
    assert {pod.metadata.annotations[REASON] for pod in shop.pods()} == {WHY}
