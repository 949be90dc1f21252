"""Who trusts which certificates in a lab, and whether all admissions succeed meanwhile."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from certs.bundle import bundles_in
from controllers.certificates.site import CONFIGURATIONS
from kube.errors import ApiError, NotFound
from lab.session import Lab
from tests.chaos import programs
from tests.cluster.workloads import PODS

NAME = "drawbridge-webhook.drawbridge.svc"
REPLICAS = 3


def bundles(lab: Lab) -> list[bytes]:
    """What API servers trust, for each webhook."""
    found = []
    for resource in CONFIGURATIONS:
        try:
            found += bundles_in(lab.client.get(resource, "drawbridge"))
        except NotFound:
            continue
    return found


class Admissions:
    """Evictions of nobody: each is reviewed, and then not found, by an API server that must not go on without."""

    def __init__(self, lab: Lab, namespace: str) -> None:
        self._lab, self._path = lab, PODS.path(namespace, "nobody", "eviction")
        self.failed: list[str] = []
        self.reviewed = 0

    def ask(self, stop: threading.Event) -> None:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "nobody"}}
        while not stop.wait(0.1):
            try:
                self._lab.client.request("POST", self._path, body=body, timeout=60)
            except NotFound:
                self.reviewed += 1
            except ApiError as error:
                self.failed.append(str(error))


@contextmanager
def asking(lab: Lab, namespace: str, threads: int = 4) -> Iterator[Admissions]:
    admissions, stop = Admissions(lab, namespace), threading.Event()
    askers = [threading.Thread(target=admissions.ask, args=(stop,)) for _ in range(threads)]
    for each in askers:
        each.start()
    try:
        yield admissions
    finally:
        stop.set()
        for each in askers:
            each.join()


def serves(address: str, trusted: bytes) -> bool:
    """Whether a server is there, and shows a certificate for our Service that *trusted* covers."""
    context = ssl.create_default_context(cadata=trusted.decode())
    try:
        with (
            socket.create_connection((address, 9443), timeout=5) as plain,
            context.wrap_socket(plain, server_hostname=NAME),
        ):
            return True
    except OSError:
        return False


def all_serve(lab: Lab) -> bool:
    servers = programs.pods(lab, "webhook")
    return len(programs.ready(lab, "webhook")) == REPLICAS and all(
        serves(pod["status"]["podIP"], bundle) for pod in servers.values() for bundle in bundles(lab)
    )
