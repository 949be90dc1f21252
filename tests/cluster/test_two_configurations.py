"""The webhooks of IngressDaemonSets are in a separate configuration, which outlives the other one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dev.lab import install
from dev.lab.bootstrap import running
from dev.lab.session import Lab
from kube.errors import ApiError, Invalid, NotFound
from kube.resources import VALIDATING_WEBHOOKS as VALIDATING
from tests.cluster.ingress_daemonset import INGRESS_DAEMONSETS
from tests.cluster.load import FAULTY, ingress_daemonset
from tests.cluster.workloads import counted_by_api_server, evict_absent

VALUES: dict[str, Any] = {
    "replicaCount": 1,
    "controllers": {"replicaCount": 1},
    "certs": {"mode": "self-managed", "existingSecret": "", "caBundle": ""},
    "ingressDaemonSet": {"enabled": True},
    "webhook": {"preStopSleep": "1s", "drainPeriod": "2s"},
}
NAMES = ["drawbridge", "drawbridge-ingress-daemonset"]


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with running(values=VALUES, nodes=1, kwok_nodes=1) as up:
        yield up


def configurations(lab: Lab) -> dict[str, dict[str, Any]]:
    listed = lab.client.list(VALIDATING).items
    return {each["metadata"]["name"]: each for each in listed}


def bundles(lab: Lab) -> set[str]:
    return {
        webhook["clientConfig"].get("caBundle", "")
        for each in configurations(lab).values()
        for webhook in each["webhooks"]
    }


def faulty(lab: Lab) -> str:
    """What becomes of an IngressDaemonSet that the schema takes, and the webhook refuses."""
    path = INGRESS_DAEMONSETS.path("default")
    try:
        lab.client.request("POST", path, body=ingress_daemonset(FAULTY), query={"dryRun": "All"}, timeout=60)
    except Invalid as refusal:
        return "refused" if "maxSurgedPodsPerNode" in refusal.message else refusal.message
    except ApiError as error:
        return error.message
    return "admitted"


def unreviewed(lab: Lab) -> int:
    """How many evictions the webhook let pass because it was not called with success."""
    return counted_by_api_server(lab, "fail_open_count", "ingress-daemonset-evictions")


def evict(lab: Lab) -> None:
    with pytest.raises(NotFound):
        evict_absent(lab.client, "default")


@contextmanager
def asked(lab: Lab) -> Iterator[list[str]]:
    """What became of each IngressDaemonSet, one after another, while the block runs."""
    found: list[str] = []
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            found.append(faulty(lab))
            evict(lab)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()


def test_each_feature_has_its_configuration_alone(lab: Lab) -> None:
    """Upgraded again, and with the CA that it had."""
    lab.wait(lambda: len(bundles(lab)) == 1 and bundles(lab) != {""}, 60, "the CA in both at first")
    [bundle] = bundles(lab)

    with asked(lab) as found:
        install.upgrade(lab, {"ipReservation": {"enabled": False}})
        assert [*configurations(lab)] == NAMES[1:]
        install.upgrade(lab, {})

    assert {*found} == {"refused"}
    assert sorted(configurations(lab)) == NAMES
    assert unreviewed(lab) == 0
    lab.wait(lambda: bundles(lab) == {bundle}, 60, "the CA in both")


def test_an_upgrade_and_a_rollback_keep_the_ca_that_the_controllers_wrote_last(lab: Lab) -> None:
    """Helm writes none, and so has none of before to restore, which it would refuse as a conflict."""
    [before] = bundles(lab)
    secret = ("secret", "drawbridge-webhook-tls", f"--namespace={install.NAMESPACE}")
    lab.kubectl("patch", *secret, "--type=merge", '--patch={"data": {"ca.key": null}}')
    lab.wait(lambda: len(bundles(lab)) == 1 and before not in bundles(lab), 60, "another CA in all of them")
    after = bundles(lab)

    with asked(lab) as found:
        install.upgrade(lab, {"logging": {"level": "debug"}})
        lab.helm("rollback", install.RELEASE, "--namespace", install.NAMESPACE, "--wait")

    assert {*found} == {"refused"}
    assert bundles(lab) == after
