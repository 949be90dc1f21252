"""What is missing or wrong around anycast IPs is reported, waited for and made up for, and harms nothing else."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

from kube.client import Resource
from kube.types import Node
from lab import admission
from lab.nodes import NODES
from lab.session import Lab
from tests.cluster import anycast, workloads
from tests.cluster.anycast import DRAWBRIDGE, REGISTRATIONS, Fleet
from tests.cluster.gate import watched
from webhook.anycast_ip import is_tainted

SECRETS = Resource("", "v1", "secrets")
KEYS = "drawbridge-cloud"
WRONG = "not-the-key"


@contextmanager
def without_registration(lab: Lab) -> Iterator[None]:
    """The API server asks nobody about nodes, for the length of a block."""
    body = lab.client.get(REGISTRATIONS, DRAWBRIDGE)
    metadata = {key: body["metadata"][key] for key in ("name", "labels", "annotations")}
    lab.client.delete(REGISTRATIONS, DRAWBRIDGE)
    try:
        yield
    finally:
        # As Helm does: its next upgrade would meet fields that are somebody else's.
        again = json.dumps(body | {"metadata": metadata})
        lab.kubectl("apply", "--server-side", "--field-manager=helm", "-f", "-", stdin=again)
        admission.await_gate(lab.client)


def is_born_tainted(fleet: Fleet) -> bool:
    query = {"dryRun": "All"}
    return is_tainted(
        fleet.client.request("POST", NODES.path(), body=fleet.body("probe"), query=query, type=Node)
    )


def test_a_node_that_admission_let_through_is_closed_by_the_controller(fleet: Fleet) -> None:
    with without_registration(fleet.lab), watched(fleet.lab) as gate:
        fleet.wait(lambda: not is_born_tainted(fleet), "the API server to ask nobody any more")
        fleet.join("a")
        fleet.await_open("a")

        fleet.wait(lambda: gate.course(fleet.name_of("a")) == [True, False, True], "it to be seen open again")


def test_without_permissions_and_with_wrong_keys_it_says_so_tries_seldom_and_goes_on_when_that_is_set_right(
    cloud_lab: Lab, fleet: Fleet
) -> None:
    lab, processes = cloud_lab, anycast.processes(cloud_lab)
    begun, before = time.monotonic(), refusals(lab)
    with lab.cloud.turned(denied=["AllocateAddresses"]):
        fleet.join("a")
        fleet.join("b")
        missing = "not authorized to perform the operation `AllocateAddresses`"
        fleet.wait(lambda: has_event(fleet, missing), "an Event about the missing permission")
        with other_keys(lab):
            fleet.join("c")
            fleet.wait(lambda: has_event(fleet, "AuthFailure.SignatureFailure"), "an Event about the keys")
            assert_reserves(lab, f"t-rights-{fleet.token}")
    assert "AuthFailure.SignatureFailure" in log(lab)
    assert WRONG not in log(lab)

    fleet.await_open("a", "b", "c")
    assert anycast.processes(lab) == processes
    # Two are refused together, and then one tries for all, every ten seconds or more.
    assert refusals(lab) - before <= 2 + (time.monotonic() - begun) / 10


def has_event(fleet: Fleet, text: str) -> bool:
    """On one of the nodes: what stands in the way of all is tried with one of them."""
    return any(text in fleet.events(name).get("FailedAllocateAnycastIp", "") for name in ("a", "b", "c"))


def log(lab: Lab) -> str:
    """Of the controllers, all that were."""
    return "".join(path.read_text() for path in lab.directory.glob("pods/*-controllers-*/*/*.log"))


def refusals(lab: Lab) -> int:
    """Of orders, for whichever reason."""
    outcomes = lab.cloud.state()["calls"].get("AllocateAddresses", {})
    return sum(count for code, count in outcomes.items() if code.startswith("AuthFailure"))


@contextmanager
def other_keys(lab: Lab) -> Iterator[None]:
    """A Secret that opens nothing has reached the controllers, for the length of a block."""
    right = lab.client.get(SECRETS, KEYS, DRAWBRIDGE)["data"]
    wrong = {**right, "secretKey": base64.b64encode(WRONG.encode()).decode()}
    lab.client.patch(SECRETS, KEYS, {"data": wrong}, DRAWBRIDGE)
    try:
        mounted = "volumes/*/*/secretKey"
        lab.wait(
            lambda: WRONG in [path.read_text() for path in lab.directory.glob(mounted)],
            anycast.SECONDS,
            "the Secret to be mounted",
        )
        yield
    finally:
        lab.client.patch(SECRETS, KEYS, {"data": right}, DRAWBRIDGE)


def assert_reserves(lab: Lab, namespace: str) -> None:
    """The other feature is at its work."""
    workloads.reserved_namespace(lab.client, namespace)
    pod = workloads.running_pod(lab, namespace, "a")
    workloads.evict(lab, pod)
    assert pod.metadata.uid in workloads.records(lab, "v3")
    lab.client.delete(workloads.NAMESPACES, namespace)
