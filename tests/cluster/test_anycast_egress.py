"""A node opens when a pod of the real kubelet has seen the address with which its traffic leaves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

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
from tests.misbehaving_server import answers, serving


@pytest.mark.promise
def test_a_node_opens_when_a_service_sees_its_address_and_not_before(cloud_lab: Lab, fleet: Fleet) -> None:
    """On a node of the lab's kubelet, which runs the program, of the image that the policy engine puts in."""
    client, labels = cloud_lab.client, {NEED_LABEL: "true", INSTANCE_LABEL: fleet.instance_of("real")}
    with serving(lambda _: answers(b"203.0.113.9")) as service, checking_egress(cloud_lab, f"{service.url}/"):
        try:
            client.patch(NODES, REAL, {"metadata": {"labels": labels}})
            fleet.wait(lambda: len(service.asked) >= 2, "the service to be asked twice")
            assert is_tainted(client.get(NODES, REAL, type=Node))
            (address,) = fleet.on("real")
            service.answer = lambda _: answers(address["ip"].encode())
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
