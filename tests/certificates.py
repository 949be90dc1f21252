"""A cluster as the reconciler of certificates sees it: a Secret, webhook configurations, and time."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509

from certs.issue import Pair, new_ca, new_leaf
from certs.rotation import Held, Rules, certificates_in, pem_of
from controllers.certificates.controller import CONFIGURATIONS, SECRETS, Reconciler, Store
from controllers.controller import Clock
from dev.fake_api import NAMESPACES, FakeAPI, Reply, Request
from kube.client import Resource
from tests.fakes import FakeRecorder

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAME = "drawbridge-webhook.gate.svc"
SECRET, CONFIGURATION, NAMESPACE = "drawbridge-webhook-tls", "drawbridge", "gate"
SECOND = timedelta(seconds=1)
RULES = Rules(
    NAME, ca_validity=100 * SECOND, leaf_validity=40 * SECOND, renew_before=15 * SECOND, overlap=6 * SECOND
)


def authority(
    end: timedelta = RULES.ca_validity, name: str = RULES.authority_name
) -> tuple[x509.Certificate, Pair]:
    pair = new_ca(name, NOW - timedelta(hours=1), NOW + end)
    return certificates_in(pair.certificate)[0], pair


def leaf(ca: Pair, end: timedelta = RULES.leaf_validity, name: str = NAME) -> Pair:
    return new_leaf(ca, [name], [], NOW - timedelta(hours=1), NOW + end)


def held(*authorities: tuple[x509.Certificate, Pair], leaf: Pair) -> Held:
    """The first one signs."""
    return Held(tuple(each for each, _ in authorities), authorities[0][1].key, leaf)


def bundle(*authorities: tuple[x509.Certificate, Pair]) -> bytes:
    return pem_of(each for each, _ in authorities)


class Cluster:
    """A Secret and all webhook configurations; *before_write* may raise, and so end a process between two writes.

    *written* is called after each write by any client.
    """

    def __init__(self) -> None:
        self.api = FakeAPI()
        self.client = self.api.client()
        self.before_write: Callable[[], None] = lambda: None
        self.written: Callable[[], None] = lambda: None
        self.api.fault, self.api.after = self._asked, self._answered
        self.api.put(NAMESPACES, {"metadata": {"name": NAMESPACE}})

    def secret(self) -> dict[str, Any] | None:
        return self.api.find(SECRETS, SECRET, NAMESPACE)

    def configuration(self, which: tuple[Resource, str]) -> dict[str, Any] | None:
        """One of CONFIGURATIONS."""
        resource, suffix = which
        return self.api.find(resource, f"{CONFIGURATION}{suffix}")

    def put(self, resource: Resource, body: dict[str, Any]) -> None:
        """Place it as another client would."""
        home = {"namespace": NAMESPACE} if resource.namespaced else {}
        self.api.put(resource, body | {"metadata": home | body["metadata"]})
        self.written()

    def lose_secret(self) -> None:
        self.api.remove(SECRETS, SECRET, NAMESPACE)

    def register(self, webhooks: int = 1) -> None:
        """As Helm does: without bundles."""
        entries = [{"name": f"{each}.example", "clientConfig": {"service": {}}} for each in range(webhooks)]
        for resource, suffix in CONFIGURATIONS:
            self.put(resource, {"metadata": {"name": f"{CONFIGURATION}{suffix}"}, "webhooks": entries})

    def unregister(self) -> None:
        for resource, suffix in CONFIGURATIONS:
            self.api.remove(resource, f"{CONFIGURATION}{suffix}")

    @property
    def data(self) -> dict[str, str]:
        data: dict[str, str] = (self.secret() or {}).get("data", {})
        return data

    def _asked(self, call: Request) -> None:
        if call.method != "GET":
            self.before_write()

    def _answered(self, call: Request, reply: Reply) -> None:
        if call.method != "GET" and reply.status < 400:
            self.written()


class Moment:
    """The time of one process, in whole seconds since NOW, as certificates have it."""

    def __init__(self) -> None:
        self.seconds = 0

    def now(self, skew: int = 0) -> datetime:
        return NOW + timedelta(seconds=self.seconds + skew)


def reconciler(
    cluster: Cluster,
    moment: Moment,
    recorder: FakeRecorder | None = None,
    *,
    rules: Rules = RULES,
    skew: int = 0,
) -> tuple[Store, Reconciler]:
    store = Store(cluster.client, NAMESPACE, SECRET, CONFIGURATION)
    return store, Reconciler(
        store,
        lambda: rules,
        recorder or FakeRecorder(),  # type: ignore[arg-type]
        Clock(lambda: moment.now(skew), lambda: float(moment.seconds)),
    )


def of_version(pem: str, version: int) -> str:
    """The certificate with another number of its version, which comes after the bytes A0 03 02 01."""
    number = b"\xa0\x03\x02\x01"
    raw = ssl.PEM_cert_to_DER_cert(pem).replace(number + b"\x02", number + bytes([version]), 1)
    return ssl.DER_cert_to_PEM_cert(raw)
