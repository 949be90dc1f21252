"""A node opens when a pod of the real kubelet has seen the address with which its traffic leaves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from api.anycast_ip import is_tainted
from controllers.anycast_ip import egress
from controllers.anycast_ip.claim import INSTANCE_LABEL
from dev.lab.nodes import NODES
from dev.lab.session import Lab
from kube.resources import PODS
from kube.types import Node
from settings.anycast_ip import NEED_LABEL
from tests.cluster import anycast
from tests.cluster.anycast import DRAWBRIDGE, Fleet


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


REAL = "lab-0"


@contextmanager
def checking_egress(lab: Lab, url: str) -> Iterator[None]:
    image = lab.client.list(PODS, DRAWBRIDGE).items[0]["spec"]["containers"][0]["image"]
    repository, _, tag = image.rpartition(":")
    check = {"enabled": True, "url": url, "image": {"repository": repository, "tag": tag}}
    with anycast.configured(lab, egressCheck=check, releaseOnLabelRemoval=True):
        yield


def checks(lab: Lab) -> list[str]:
    """The names of their pods."""
    found = lab.client.list(PODS, DRAWBRIDGE, label_selector=egress.SELECTED).items
    return [each["metadata"]["name"] for each in found]


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
