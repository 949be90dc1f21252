"""Who trusts which certificates in a lab, and whether all admissions succeed meanwhile."""

from __future__ import annotations

import signal
import socket
import ssl
import threading
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product

from cryptography import x509

from certs.issue import is_issued_by
from certs.rotation import Held, bundles_in, certificates_in, held_in
from controllers.certificates.controller import CONFIGURATIONS, SECRETS
from dev.lab import faults, processes
from dev.lab.errors import LabError
from dev.lab.session import Lab
from dev.lab.waiting import stretch, until
from kube.errors import KubeError, NotFound
from tests.chaos import programs
from tests.cluster.workloads import evict_absent

NAME = "drawbridge-webhook.drawbridge.svc"
SECRET, NAMESPACE = "drawbridge-webhook-tls", "drawbridge"
REPLICAS, THREADS = 3, 5


def stored(lab: Lab, secret: str = SECRET, key: str = "tls.crt") -> list[x509.Certificate]:
    """The certificates in a Secret of the release's namespace; none when it is not there."""
    return certificates_in(b64decode(data_of(lab, secret).get(key, "")))


def data_of(lab: Lab, secret: str) -> dict[str, str]:
    found = lab.client.find(SECRETS, secret, NAMESPACE) or {}
    return found.get("data") or {}


def bundles(lab: Lab) -> list[bytes]:
    """What API servers trust, for each webhook."""
    found = [lab.client.find(resource, f"drawbridge{suffix}") for resource, suffix in CONFIGURATIONS]
    return [bundle for each in found if each for bundle in bundles_in(each)]


def trusted(lab: Lab) -> list[list[x509.Certificate]]:
    return [certificates_in(bundle) for bundle in bundles(lab)]


def addresses(lab: Lab) -> list[str]:
    """Of the webhook servers."""
    pods = programs.pods(lab, "webhook").values()
    return [pod["status"]["podIP"] for pod in pods if pod["status"].get("podIP")]


class Admissions:
    """Evictions of a pod that does not exist: the API server has each reviewed, and then finds no pod.

    An API server keeps its connections, so every server is also called on new ones all the time.
    """

    def __init__(self, lab: Lab, namespace: str) -> None:
        self._lab, self._namespace = lab, namespace
        self.failed: list[str] = []
        self.reviewed = 0
        self.distrusted: list[str] = []
        self.trusted = 0

    def ask(self) -> None:
        try:
            evict_absent(self._lab.client, self._namespace)
        except NotFound:
            self.reviewed += 1
        except KubeError as error:
            self.failed.append(str(error))

    def meet(self) -> None:
        """As an API server would, with what it trusts just then."""
        covers = bundles(self._lab)
        for address, bundle in product(addresses(self._lab), covers):
            try:
                shown(address, bundle)
                self.trusted += 1
            except ssl.SSLCertVerificationError as error:
                self.distrusted.append(f"{address}: {error}")
            except OSError:
                continue  # it is just coming or going

    def go_on(self) -> None:
        """Wait until some more have succeeded, of both kinds."""
        reviews, handshakes = self.reviewed + 20, self.trusted + 2 * REPLICAS
        try:
            until(lambda: self.reviewed >= reviews and self.trusted >= handshakes, 60, "admissions to go on")
        except LabError as error:
            raise AssertionError(f"{error}: {self.failed[-1:]}, {self.distrusted[-1:]}") from error


@contextmanager
def succeeding_admissions(lab: Lab, namespace: str) -> Iterator[Admissions]:
    """About fifty admissions a second, from before the block until after it; none fails."""
    admissions, stop = Admissions(lab, namespace), threading.Event()

    def repeat(task: Callable[[], None]) -> None:
        while not stop.wait(0.1):
            task()

    tasks = [admissions.ask] * THREADS + [admissions.meet]
    askers = [threading.Thread(target=repeat, args=(task,)) for task in tasks]
    for each in askers:
        each.start()
    try:
        admissions.go_on()
        yield admissions
        admissions.go_on()
    finally:
        stop.set()
        for each in askers:
            each.join()
    assert (admissions.failed, admissions.distrusted) == ([], [])


@contextmanager
def late_kubelets(lab: Lab) -> Iterator[None]:
    """While the block runs, no server gets a change of its Secret: kubelets may take a minute and a half."""
    # A child of it has its words until it runs a program of its own.
    [pid] = lab.wait(lambda: found if len(found := _kubelets(lab)) == 1 else [], 10, "its kubelet alone")
    processes.send(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        processes.send(pid, signal.SIGCONT)


def _kubelets(lab: Lab) -> list[int]:
    return faults.processes_of(lab, "dev.lab.kubelet")


def shown(address: str, trusted: bytes) -> x509.Certificate:
    """What a server shows; raises OSError: SSLCertVerificationError when *trusted* does not cover it."""
    context = ssl.create_default_context(cadata=trusted.decode())
    with (
        socket.create_connection((address, 9443), timeout=5 * stretch()) as plain,
        context.wrap_socket(plain, server_hostname=NAME) as connection,
    ):
        return x509.load_der_x509_certificate(connection.getpeercert(binary_form=True) or b"")


def all_show(lab: Lab, leaf: x509.Certificate) -> bool:
    """Whether as many servers as there should be show this very leaf, to all that trust them."""
    servers, covers = addresses(lab), bundles(lab)
    return (
        bool(covers)
        and len(servers) == len(programs.ready(lab, "webhook")) == REPLICAS
        and all(_shows(address, bundle, leaf) for address, bundle in product(servers, covers))
    )


def await_shown(lab: Lab) -> x509.Certificate:
    """The leaf in the Secret, when all servers show it."""

    def settled() -> x509.Certificate | None:
        leaves = stored(lab)
        return leaves[0] if leaves and all_show(lab, leaves[0]) else None

    return lab.wait(settled, 120, "all servers to show the certificate in the Secret, and all to trust it")


def await_new_server(lab: Lab) -> None:
    """A server ends and another one comes: API servers connect to all of them again."""
    old = programs.ready(lab, "webhook")[0]
    programs.delete(lab, old)
    lab.wait(lambda: old not in programs.all_pods(lab), 90, f"{old} to be gone")
    programs.await_ready(lab, "webhook", REPLICAS)


def held(lab: Lab) -> Held:
    """What the Secret is to the controllers."""
    return held_in(data_of(lab, SECRET))


def rotated(lab: Lab, since: Held) -> bool:
    """Whether a leaf of another authority of the controllers is there."""
    now = held(lab)
    return now.signer not in (None, since.signer) and is_issued_by(now.leaf.certificate, now.signer)


def _shows(address: str, bundle: bytes, leaf: x509.Certificate) -> bool:
    try:
        return shown(address, bundle) == leaf
    except OSError:
        return False
