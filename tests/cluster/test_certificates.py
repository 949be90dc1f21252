"""The leader's own certificates, from a cold start, and while they are rotated as fast as can be."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from certs.issue import is_issued_by
from certs.secret import NOTHING, Held, held_in
from controllers.certificates.site import SECRETS
from kube.errors import NotFound
from lab import install
from lab.begin import running
from lab.session import Lab
from tests.chaos import programs
from tests.cluster import workloads
from tests.cluster.certificates import REPLICAS, all_serve, asking, bundles, serves

SECRET, NAMESPACE = "drawbridge-webhook-tls", "drawbridge"
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
    "leaderElection": {"leaseDuration": "6s", "renewDeadline": "4s", "retryPeriod": "1s"},
}


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """``helm install`` and nothing else: neither a Secret nor a CA is there before."""
    with running(values=VALUES, kwok_nodes=0, nodes=2) as up:
        yield up


def held(lab: Lab) -> Held:
    try:
        return held_in(lab.client.get(SECRETS, SECRET, NAMESPACE).get("data") or {})
    except NotFound:
        return Held()


def rotated(lab: Lab, since: Held) -> bool:
    """Whether a leaf of another authority is there."""
    now = held(lab)
    return now.signer not in (None, since.signer) and is_issued_by(now.leaf.certificate, now.signer)


def test_several_servers_come_up_from_nothing_without_a_single_restart(lab: Lab) -> None:
    servers = programs.pods(lab, "webhook")

    assert len(servers) == REPLICAS
    for pod in servers.values():
        assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
        assert all(serves(pod["status"]["podIP"], bundle) for bundle in bundles(lab))
    assert len(bundles(lab)) == 1


def test_two_rotations_cost_no_admission_whoever_dies_in_between(lab: Lab) -> None:
    namespace = workloads.reserved_namespace(lab.client, "certificates")
    with asking(lab, namespace) as admissions:
        first = held(lab)
        # Between the write of a new authority and that of its first leaf.
        lab.wait(lambda: held(lab).signer not in (None, first.signer), 90, "a new authority")
        programs.kill(lab, programs.leader(lab), signal.SIGKILL)
        programs.delete(lab, programs.ready(lab, "webhook")[0])
        lab.wait(lambda: rotated(lab, first), 90, "the first rotation to end under another leader")
        second = held(lab)
        install.upgrade(lab, {"ipReservation": {"timeoutSeconds": 9}, "logging": {"level": "debug"}})
        assert held(lab).leaf != NOTHING
        lab.wait(lambda: rotated(lab, second), 90, "the second rotation")
        lost = held(lab)
        lab.client.delete(SECRETS, SECRET, NAMESPACE)
        lab.wait(lambda: rotated(lab, lost), 90, "a leaf after the Secret was lost")
        lab.wait(lambda: all_serve(lab), 90, "all servers to show certificates that are trusted")

    assert admissions.failed == []
    assert admissions.reviewed > 100


def test_nothing_is_left_after_an_uninstallation(lab: Lab) -> None:
    lab.helm("uninstall", "drawbridge", "--namespace", NAMESPACE)
    lab.wait(lambda: not programs.all_pods(lab), 90, "all pods to end")

    assert bundles(lab) == []
    with pytest.raises(NotFound):
        lab.client.get(SECRETS, SECRET, NAMESPACE)
