"""The leader's own certificates, from a cold start, and while they are rotated as fast as can be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from certs.rotation import NOTHING
from controllers.certificates.controller import SECRETS
from dev.lab import install
from dev.lab.bootstrap import running
from dev.lab.session import Lab
from tests.chaos import programs
from tests.cluster import workloads
from tests.cluster.certificates import (
    NAMESPACE,
    REPLICAS,
    SECRET,
    await_shown,
    bundles,
    held,
    rotated,
    shown,
    succeeding_admissions,
)

pytestmark = pytest.mark.nightly

VALUES: dict[str, Any] = {
    "replicaCount": REPLICAS,
    # A CA signs for 25 s; what it signed is good for 50 s longer, which is the time that a busy machine has.
    "certs": {
        "mode": "self-managed",
        "existingSecret": "",
        "caBundle": "",
        "selfManaged": {
            "caValidity": "75s",
            "leafValidity": "65s",
            "renewBefore": "50s",
            "overlap": "10s",
        },
    },
    "controllers": {"leaseDuration": "6s"},
}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """``helm install`` and nothing else: neither a Secret nor a CA is there before."""
    with running(values=VALUES, kwok_nodes=0, nodes=2) as up:
        yield up


@pytest.fixture(scope="module")
def namespace(lab: Lab) -> str:
    return workloads.reserved_namespace(lab.client, "certificates")


@pytest.mark.promise
def test_several_servers_come_up_from_nothing_without_a_single_restart(lab: Lab) -> None:
    servers = programs.pods(lab, "webhook")

    assert len(servers) == REPLICAS
    for pod in servers.values():
        assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
        assert all(shown(pod["status"]["podIP"], bundle) for bundle in bundles(lab))
    # The leader, which rotates every 25 s, writes one configuration after the other.
    lab.wait(lambda: len(set(bundles(lab))) == 1, 60, "the same bundle for all webhooks")


@pytest.mark.promise
def test_rotations_when_they_are_due_cost_no_admission_whatever_else_happens(
    lab: Lab, namespace: str
) -> None:
    with succeeding_admissions(lab, namespace):
        first = held(lab)
        # Between the write of a new authority and that of its first leaf.
        lab.wait(lambda: held(lab).signer not in (None, first.signer), 90, "a new authority")
        programs.kill(lab, programs.another_leader(lab, than=""))
        lab.wait(lambda: rotated(lab, first), 90, "the first rotation to end under another leader")
        second = held(lab)
        install.upgrade(
            lab, {"ipReservation": {"advanced": {"timeout": "9s"}}, "logging": {"level": "debug"}}
        )
        assert held(lab).leaf != NOTHING
        lab.wait(lambda: rotated(lab, second), 90, "the second rotation")
        lost = held(lab)
        lab.client.delete(SECRETS, SECRET, NAMESPACE)
        lab.wait(lambda: rotated(lab, lost), 90, "a leaf after the Secret was lost")
        await_shown(lab)
