"""The leader's own certificates, from a cold start, and while they are rotated as fast as can be."""

from __future__ import annotations

import signal
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509

from certs.rotation import NOTHING
from controllers.certificates.store import CONFIGURATIONS, SECRETS
from dev.lab import install
from dev.lab.bootstrap import running
from dev.lab.session import Lab
from dev.lab.waiting import stretch
from kube.errors import NotFound
from tests.chaos import programs
from tests.cluster import workloads
from tests.cluster.certificates import (
    NAMESPACE,
    REPLICAS,
    SECRET,
    Admissions,
    await_shown,
    bundles,
    held,
    late_kubelets,
    rotated,
    shown,
    stored,
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
    "leaderElection": {"leaseDuration": "6s", "renewDeadline": "4s", "retryPeriod": "1s"},
}
UNHURRIED: dict[str, Any] = {
    "certs": {"selfManaged": {"caValidity": "4h", "leafValidity": "3h", "renewBefore": "2h", "overlap": "5s"}}
}
"""Nothing is due by itself."""
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """``helm install`` and nothing else: neither a Secret nor a CA is there before."""
    with running(values=VALUES, kwok_nodes=0, nodes=2) as up:
        yield up


@pytest.fixture(scope="module")
def namespace(lab: Lab) -> str:
    return workloads.reserved_namespace(lab.client, "certificates")


def take_key_away(lab: Lab) -> None:
    """Have all rotated, as the manual says; back when the Secret has a leaf of a new authority."""
    before = held(lab)
    remove = '[{"op": "remove", "path": "/data/ca.key"}]'
    lab.kubectl("-n", NAMESPACE, "patch", "secret", SECRET, "--type=json", "-p", remove)
    lab.wait(lambda: rotated(lab, before), 90, "a leaf of a new authority")


def settled(lab: Lab, admissions: Admissions) -> x509.Certificate:
    """The leaf, when all servers show it and admissions have gone on."""
    leaf = await_shown(lab)
    admissions.go_on()
    return leaf


def lasts(lab: Lab) -> bool:
    return any(each.not_valid_after_utc > datetime.now(UTC) + HOUR for each in stored(lab))


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
        install.upgrade(lab, {"ipReservation": {"timeoutSeconds": 9}, "logging": {"level": "debug"}})
        assert held(lab).leaf != NOTHING
        lab.wait(lambda: rotated(lab, second), 90, "the second rotation")
        lost = held(lab)
        lab.client.delete(SECRETS, SECRET, NAMESPACE)
        lab.wait(lambda: rotated(lab, lost), 90, "a leaf after the Secret was lost")
        await_shown(lab)


def test_two_rotations_within_a_minute_cost_no_admission_though_replicas_end_in_between(
    lab: Lab, namespace: str
) -> None:
    install.upgrade(lab, UNHURRIED)
    lab.wait(lambda: lasts(lab), 90, "a certificate that nothing is due to")
    await_shown(lab)
    with succeeding_admissions(lab, namespace) as admissions:
        with late_kubelets(lab):
            take_key_away(lab)
            admissions.go_on()
        first = settled(lab, admissions)
        programs.kill(lab, programs.another_leader(lab, than=""))
        programs.delete(lab, programs.ready(lab, "webhook")[0])
        take_key_away(lab)
        second = settled(lab, admissions)

    # Both begin as long before they were issued.
    assert second.not_valid_before_utc - first.not_valid_before_utc < MINUTE * stretch()


def test_a_server_that_is_killed_in_a_rotation_loses_only_its_open_requests(lab: Lab, namespace: str) -> None:
    with succeeding_admissions(lab, namespace, server_killed=True) as admissions:
        programs.kill(lab, programs.ready(lab, "webhook")[0], signal.SIGKILL)
        take_key_away(lab)
        settled(lab, admissions)


def test_a_damaged_secret_and_a_removed_bundle_are_restored(lab: Lab, namespace: str) -> None:
    with succeeding_admissions(lab, namespace) as admissions:
        before = held(lab)
        secret = lab.client.get(SECRETS, SECRET, NAMESPACE)
        rubbish = dict.fromkeys(secret["data"], b64encode(b"rubbish").decode())
        lab.client.patch(SECRETS, SECRET, {"data": rubbish}, NAMESPACE)
        lab.wait(lambda: rotated(lab, before), 90, "a new certificate in place of rubbish")
        await_shown(lab)

    remove = '[{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]'
    lab.kubectl("patch", CONFIGURATIONS[0].plural, "drawbridge", "--type=json", "-p", remove)
    await_shown(lab)
    with succeeding_admissions(lab, namespace) as admissions:
        admissions.go_on()


def test_nothing_is_left_after_an_uninstallation(lab: Lab) -> None:
    lab.helm("uninstall", "drawbridge", "--namespace", NAMESPACE)
    lab.wait(lambda: not programs.all_pods(lab), 90, "all pods to end")

    assert bundles(lab) == []
    with pytest.raises(NotFound):
        lab.client.get(SECRETS, SECRET, NAMESPACE)
