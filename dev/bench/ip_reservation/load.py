"""One server under a steady load: every connection asks again as soon as it is answered."""

from __future__ import annotations

import multiprocessing
import re
import selectors
import socket
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import msgspec

from dev.lab.errors import LabError

PROCESSES = 2
"""Of the client: so that its interpreter is not what is measured."""
PATIENCE = 30.0


@dataclass(frozen=True)
class Target:
    """A server's address and path; *bodies* are asked in turn."""

    host: str
    port: int
    path: str
    bodies: tuple[bytes, ...]


def deletion(number: int) -> bytes:
    """An AdmissionReview as the API server sends it for the deletion of a running pod, each of another pod."""
    name, uid = f"redis-{number}", f"6c1f3f0a-2b7e-4c57-9d0c-{number:012d}"
    address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    mount = {"name": "data", "mountPath": "/data"}
    container = {
        "name": "redis",
        "image": "redis:7",
        "args": ["--appendonly", "yes"],
        "volumeMounts": [mount],
    }
    metadata = {"name": name, "namespace": "storm", "uid": uid, "resourceVersion": "4711"}
    labels = {"app": "redis", "statefulset.kubernetes.io/pod-name": name}
    ready = [
        {"type": each, "status": "True"}
        for each in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    ]
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": ready}
    spec = {"nodeName": "node-1", "containers": [container], "terminationGracePeriodSeconds": 30}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata | {"labels": labels}, "spec": spec}
    return review(
        number,
        kind={"group": "", "version": "v1", "kind": "Pod"},
        resource={"group": "", "version": "v1", "resource": "pods"},
        name=name,
        namespace="storm",
        operation="DELETE",
        userInfo={"username": "kubernetes-admin", "groups": ["system:authenticated"]},
        oldObject=pod | {"status": status},
        options={"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"},
    )


def review(number: int, **request: Any) -> bytes:
    """An AdmissionReview as the API server sends it."""
    uid = f"6c1f3f0a-2b7e-4c57-9d0c-{number:012d}"
    asked = {"uid": uid, "object": None, "oldObject": None, "dryRun": False, **request}
    return msgspec.json.encode(
        {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": asked}
    )


def rate(target: Target, *, concurrency: int, requests: int) -> float:
    """Answers a second to *requests* over *concurrency* connections that are open before."""
    share = (target, concurrency // PROCESSES, requests // PROCESSES)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(PROCESSES, mp_context=context) as pool:
        spans = [each.result() for each in [pool.submit(_ask, *share) for _ in range(PROCESSES)]]
    begin, end = min(span[0] for span in spans), max(span[1] for span in spans)
    return PROCESSES * (requests // PROCESSES) / (end - begin)


def _ask(target: Target, connections: int, requests: int) -> tuple[float, float]:
    """The times of the first question and of the last answer, on a clock that processes share."""
    bodies = _in_turn(target)
    with selectors.DefaultSelector() as selector:
        opened = [_connect(target) for _ in range(connections)]
        for connection in opened:
            _exchange(connection, next(bodies))  # takes in the session tickets, too
            selector.register(connection, selectors.EVENT_READ, connection)
        begin = time.monotonic()
        for connection in opened:
            connection.sendall(next(bodies))
        _keep_asking(selector, bodies, requests, asked=connections)
        end = time.monotonic()
        for connection in opened:
            connection.close()
    return begin, end


def _keep_asking(
    selector: selectors.BaseSelector, bodies: Iterator[bytes], requests: int, *, asked: int
) -> None:
    answered = 0
    while answered < requests:
        ready = selector.select(PATIENCE)
        if not ready:
            raise LabError(f"the server gave no answer for {PATIENCE:g} s")
        for key, _ in ready:
            _check(_answer(key.data))
            answered += 1
            if asked < requests:
                key.data.sendall(next(bodies))
                asked += 1


def _in_turn(target: Target) -> Iterator[bytes]:
    requests = [_request(target, body) for body in target.bodies]
    while True:
        yield from requests


def _request(target: Target, body: bytes) -> bytes:
    head = f"POST {target.path}?timeout=10s HTTP/1.1\r\nHost: {target.host}\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def _connect(target: Target) -> ssl.SSLSocket:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # what is measured is not the client
    raw = socket.create_connection((target.host, target.port), timeout=PATIENCE)
    return context.wrap_socket(raw)


def _exchange(connection: ssl.SSLSocket, request: bytes) -> None:
    connection.sendall(request)
    _check(_answer(connection))


def _answer(connection: ssl.SSLSocket) -> bytes:
    """Head and body, which come one after the other."""
    answer = b""
    while not _is_whole(answer):
        more = connection.recv(1 << 16)
        if not more:
            raise LabError(f"the server hung up after {answer[:300]!r}")
        answer += more
    return answer


def _is_whole(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: *(\d+)", head.lower())
    return bool(end) and length is not None and len(body) >= int(length[1])


def _check(answer: bytes) -> None:
    if not answer.startswith(b"HTTP/1.1 200") or b'"allowed":true' not in answer.replace(b" ", b""):
        raise LabError(f"the server did not allow: {answer[:300]!r}")
