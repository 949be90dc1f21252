"""A client in the cluster forges reviews: it reserves little, displaces nothing, and what it reserved is dropped."""

from __future__ import annotations

import json
import secrets
import ssl
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import Any

import pytest

from api.ip_reservation import PATH
from calico.segment import Record
from dev.lab.session import Lab
from kube.errors import NotFound
from kube.types import Pod
from tests.cluster import workloads
from tests.cluster.workloads import PODS, SECONDS, STORED_SOON
from webhook.ip_reservation.reads import MOST

REAL, FORGED = 4, 250
"""Pods, and reviews of two addresses each."""
WITHIN = 15
"""Seconds: a bookmark without any change of a pod would take a minute."""
DROPPED = 'drawbridge_reservations_released_total{cause="forged"}'


def review(namespace: str, uid: str, addresses: Sequence[str]) -> bytes:
    metadata = {
        "name": f"forged-{uid}",
        "namespace": namespace,
        "uid": uid,
        "annotations": {"drawbridge.io/reserve-ip": "true"},
    }
    status = {"phase": "Running", "podIPs": [{"ip": each} for each in addresses]}
    request = {
        "uid": secrets.token_hex(8),
        "operation": "DELETE",
        "namespace": namespace,
        "oldObject": {"metadata": metadata, "spec": {}, "status": status},
    }
    return json.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    ).encode()


def servers(lab: Lab) -> list[str]:
    """Their addresses."""
    pods = lab.client.list(PODS, "drawbridge", label_selector="app.kubernetes.io/component=webhook").items
    return [each["status"]["podIP"] for each in pods]


def forge(lab: Lab, reviews: Sequence[bytes]) -> list[dict[str, Any]]:
    """The answers of the webhook servers, which are asked in turn and without a client certificate."""
    urls = cycle(f"https://{each}:9443{PATH}?timeout=30s" for each in servers(lab))
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def send(server: str, body: bytes) -> Any:
        request = urllib.request.Request(server, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=SECONDS, context=context) as answer:
            return json.load(answer)["response"]

    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda each: send(*each), zip(urls, reviews, strict=False)))


def reviews(namespace: str, real: Sequence[Pod]) -> Iterator[bytes]:
    """Of pods that never existed, at free addresses and at those of *real* pods, and real ones at free addresses."""
    for pod in real:
        yield review(namespace, f"uid-of-none-{pod.metadata.uid}", pod.status.addresses)
        yield review(namespace, pod.metadata.uid, ["10.9.255.1"])
        yield review(namespace, pod.metadata.uid, pod.status.addresses)
    for number in range(FORGED):
        yield review(namespace, f"uid-{number}", [f"10.9.{number}.1", f"10.9.{number}.2"])


def held(lab: Lab, namespace: str) -> list[Record]:
    return [each for each in workloads.all_records(lab, "v3") if each.namespace == namespace]


def is_gone(lab: Lab, pod: Pod) -> bool:
    try:
        workloads.get_pod(lab, pod.metadata.namespace, pod.metadata.name)
    except NotFound:
        return True
    return False


def dropped(lab: Lab) -> float:
    lines = [line for each in workloads.metrics(lab, "controllers") for line in each.splitlines()]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(DROPPED))


@pytest.mark.promise
def test_forged_reviews_displace_no_reservation_and_what_they_reserved_is_dropped(lab_v3: Lab) -> None:
    lab, namespace = lab_v3, workloads.reserved_namespace(lab_v3.client, "t-forged")
    with workloads.configured(lab, config={"ipReserveMaxCount": REAL, "ipReserveTime": STORED_SOON}):
        real = [workloads.running_pod(lab, namespace, f"p{n}") for n in range(REAL)]
        living = workloads.running_pod(lab, namespace, "living")
        for pod in real:
            lab.client.delete(PODS, pod.metadata.name, namespace)
        lab.wait(lambda: all(is_gone(lab, pod) for pod in real), SECONDS, "the pods to be gone")
        ended = lab.wait(lambda: ends(lab, namespace, real), SECONDS, "their ends to be noted")
        before = dropped(lab)

        many = forge(lab, [review(namespace, "uid-many", [f"10.8.{n // 250}.{n % 250}" for n in range(500)])])
        answers = forge(lab, [*reviews(namespace, [*real, living])])

        assert all(each["allowed"] for each in [*answers, *many])
        assert many[0]["warnings"] == ["status.podIPs has 500 addresses: only the first 2 are reserved"]
        forged = [each for each in held(lab, namespace) if each.cidr.startswith("10.9.")]
        assert 0 < len(forged) <= len(servers(lab)) * MOST
        uids = {pod.metadata.uid for pod in [*real, living]}

        def are_forged_gone() -> bool:
            assert ends(lab, namespace, real) == ended, "a real reservation was displaced or prolonged"
            return {(each.uid in uids, each.cidr.startswith("10.9.")) for each in held(lab, namespace)} == {
                (True, False)
            }

        # Any change of a pod shows that the leader's informer has passed the forged records.
        workloads.create_pod(lab, namespace, "later")
        lab.wait(are_forged_gone, WITHIN, "what was forged to be dropped")
        assert ends(lab, namespace, real) == ended
        # The leader counts and reports what it has written.
        lab.wait(lambda: dropped(lab) - before >= len(forged), SECONDS, "what was dropped to be counted")
        lab.wait(lambda: workloads.events(lab, "default", "ForgedReservation"), SECONDS, "the Event")
        lab.wait(lambda: unconfirmed(lab) == 0, SECONDS, "nothing to be unconfirmed")
    lab.kubectl("delete", "namespace", namespace, "--wait=false")


def unconfirmed(lab: Lab) -> float:
    scrapes = workloads.metrics(lab, "controllers")
    return sum(workloads.sample(each, "drawbridge_unconfirmed_reservations") for each in scrapes)


def ends(lab: Lab, namespace: str, real: Sequence[Pod]) -> dict[str, object] | None:
    """When each of the *real* pods ended, by its uid; None until that is known of all."""
    found: dict[str, object] = {
        f"{each.uid} {each.cidr}": each.ended
        for each in held(lab, namespace)
        if each.ended and each.uid in {pod.metadata.uid for pod in real}
    }
    return found if len(found) == len(real) else None
