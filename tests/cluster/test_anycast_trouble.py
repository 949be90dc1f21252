"""What is missing or wrong around anycast IPs is reported, waited for and made up for, and harms nothing else."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from api.anycast_ip import is_tainted
from controllers.anycast_ip import egress
from controllers.anycast_ip.claim import INSTANCE_LABEL
from dev.lab.nodes import NODES
from dev.lab.session import Lab
from kube.client import Resource
from kube.types import Node, Pod
from settings.anycast_ip import NEED_LABEL
from tests.cluster import anycast, workloads
from tests.cluster.anycast import DRAWBRIDGE, Fleet

SECRETS = Resource("", "v1", "secrets")
KEYS = "drawbridge-cloud"
WRONG = "not-the-key"


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


@pytest.mark.promise
def test_a_node_opens_when_a_service_sees_its_address_and_not_before(cloud_lab: Lab, fleet: Fleet) -> None:
    """On a node of the lab's kubelet, which runs the program, of the image that the policy engine puts in."""
    client, labels = cloud_lab.client, {NEED_LABEL: "true", INSTANCE_LABEL: fleet.instance_of("real")}
    with answering() as service, checking_egress(cloud_lab, service.url):
        try:
            client.patch(NODES, REAL, {"metadata": {"labels": labels}})
            fleet.wait(lambda: service.asked >= 2, "the service to be asked twice")
            assert is_tainted(client.get(NODES, REAL, type=Node))
            (address,) = fleet.on("real")
            service.answer = address["ip"]
            fleet.wait(lambda: anycast.is_open(client.get(NODES, REAL, type=Node)), "the node to open")
            fleet.wait(lambda: checks(cloud_lab) == [], "its pod to be deleted")
        finally:
            client.patch(NODES, REAL, {"metadata": {"labels": dict.fromkeys(labels)}})
            fleet.wait(lambda: fleet.addresses() == [], "the address to be released")


def test_a_node_whose_traffic_leaves_otherwise_stays_closed_until_a_check_passes(
    cloud_lab: Lab, fleet: Fleet
) -> None:
    """The nodes of kwok run nothing: this test writes how their pods end."""
    with checking_egress(cloud_lab, "https://ip.example.com/"):
        fleet.join("a")
        first = end_of_check(cloud_lab, fleet, "a", code=1, message="seen as 203.0.113.9")
        assert "seen as 203.0.113.9" in fleet.await_event("a", "AnycastIpEgressFailed")
        fleet.wait(lambda: fleet.condition("a").get("reason") == "AnycastIpEgressFailed", "the condition")
        assert is_tainted(fleet.node("a"))
        second = end_of_check(cloud_lab, fleet, "a", code=0)
        fleet.await_open("a")
        fleet.wait(lambda: checks(cloud_lab) == [], "its pods to be deleted")
        assert first != second
        fleet.join("b")
        fleet.wait(lambda: checks(cloud_lab) != [], "a check")
        fleet.leave("b")
        fleet.wait(lambda: checks(cloud_lab) == [], "the pod of a node that has gone to go")


REAL = "lab-0"


@contextmanager
def checking_egress(lab: Lab, url: str) -> Iterator[None]:
    image = lab.client.list(workloads.PODS, DRAWBRIDGE).items[0]["spec"]["containers"][0]["image"]
    check = {"url": url, "image": image}
    with anycast.configured(lab, egressCheck=check, releaseOnLabelRemoval=True):
        yield


def checks(lab: Lab) -> list[str]:
    """The names of their pods."""
    found = lab.client.list(workloads.PODS, DRAWBRIDGE, label_selector=egress.SELECTED).items
    return [each["metadata"]["name"] for each in found]


def end_of_check(lab: Lab, fleet: Fleet, name: str, *, code: int, message: str = "") -> str:
    """The name of the next pod on that node, which has ended so: when kwok has written that it runs, and no more."""

    def running() -> Pod | None:
        listed = lab.client.list(workloads.PODS, DRAWBRIDGE, label_selector=egress.SELECTED, type=Pod)
        here = (each for each in listed.items if each.spec.node_name == fleet.name_of(name))
        return next((each for each in here if each.status.phase == "Running"), None)

    pod = fleet.wait(running, f"a check of {name}")
    terminated = {"exitCode": code, "message": message, "reason": "Completed"}
    container = {
        "name": "egress-check",
        "image": "",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": {"terminated": terminated},
    }
    phase = "Failed" if code else "Succeeded"
    workloads.patch_status(lab, pod, phase=phase, containerStatuses=[container])
    return pod.metadata.name


class Service:
    """Answers with *answer*, which a test may change."""

    def __init__(self) -> None:
        self.answer, self.asked, self.url = "203.0.113.9", 0, ""


@contextmanager
def answering() -> Iterator[Service]:
    service = Service()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            service.asked += 1
            self.send_response(200)
            self.end_headers()
            self.wfile.write(service.answer.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    service.url = f"http://127.0.0.1:{server.server_port}/"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
