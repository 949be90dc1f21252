"""The fake API server answers as the real one does."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import unified_diff
from pathlib import Path
from pprint import pformat

import pytest

from api.ingress_daemonset import INGRESS_DAEMONSETS
from dev.fake_api import FakeAPI
from dev.lab import faults
from dev.lab.session import Lab
from dev.lab.waiting import until
from kube.resources import NAMESPACES
from tests.api_scenarios import SCENARIOS, Outcome, run
from tests.cluster.elasticity import await_account

CRD = Path(__file__).parent.parent.parent / "charts/drawbridge/files/ingressdaemonsets.yaml"


@pytest.fixture(scope="module")
def server(bare_lab: Lab) -> Lab:
    """The lab's API server, with the CRD of IngressDaemonSets, which other tests of this lab apply as well."""
    bare_lab.kubectl("apply", "--server-side", "-f", str(CRD))
    until(lambda: bare_lab.client.serves(INGRESS_DAEMONSETS), 60, "the CRD to be served")
    return bare_lab


@contextmanager
def namespace(lab: Lab) -> Iterator[str]:
    name = f"t{secrets.token_hex(4)}"
    lab.client.create(NAMESPACES, {"metadata": {"name": name}})
    await_account(lab, name)
    with faults.frozen(lab, "kube-controller-manager"), faults.frozen(lab, "kube-scheduler"):
        yield name
    lab.kubectl("delete", "namespace", name, "--wait=false")


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_fake_answers_as_the_real_one(scenario: str, server: Lab) -> None:
    fake = FakeAPI()
    steps = SCENARIOS[scenario]
    with namespace(server) as name:
        fake.put(NAMESPACES, {"metadata": {"name": name}})
        expected = run(server.client, name, steps)
    found = run(fake.client(), name, steps)

    differences = [
        f"step {number}, {step.verb} {step.resource.plural} {step.name}:\n{_difference(ours, real)}"
        for number, (step, ours, real) in enumerate(zip(steps, found, expected, strict=True), 1)
        if ours != real
    ]
    assert not differences, "\n".join(differences)


def _difference(ours: Outcome, real: Outcome) -> str:
    lines = (pformat(each, width=100).splitlines() for each in (real, ours))
    return "\n".join(unified_diff(*lines, "real", "fake", lineterm="", n=1))
