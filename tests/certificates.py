"""A cluster as the keeper of certificates sees it: a Secret, two webhook configurations, and time."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509

from certs.bundle import certificates_in, pem_of
from certs.issue import Pair, new_ca, new_leaf
from certs.plan import Rules
from certs.secret import Held
from controllers.certificates.keeper import Keeper
from controllers.certificates.site import CONFIGURATIONS, SECRETS, Site
from kube.client import Resource
from kube.errors import AlreadyExists, Conflict, NotFound
from tests.fakes import FakeRecorder

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAME = "drawbridge-webhook.gate.svc"
SECRET, CONFIGURATION, NAMESPACE = "drawbridge-webhook-tls", "drawbridge", "gate"
SECOND = timedelta(seconds=1)
RULES = Rules(
    NAME,
    ca_validity=100 * SECOND,
    leaf_validity=40 * SECOND,
    renew_before=15 * SECOND,
    overlap=6 * SECOND,
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


class FakeClient:
    """Objects with resourceVersions; *before_write* may raise, and so end a process between two writes."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.before_write: Callable[[], None] = lambda: None
        self.written: Callable[[], None] = lambda: None
        self._version = 0

    def get(self, resource: Resource, name: str, _namespace: str | None = None) -> dict[str, Any]:
        if (resource.plural, name) not in self.objects:
            raise NotFound(404, "NotFound", name)
        return copy.deepcopy(self.objects[resource.plural, name])

    def create(self, resource: Resource, body: dict[str, Any], _namespace: str | None = None) -> None:
        self.before_write()
        if (resource.plural, body["metadata"]["name"]) in self.objects:
            raise AlreadyExists(409, "AlreadyExists", body["metadata"]["name"])
        self.put(resource, body)

    def replace(
        self, resource: Resource, name: str, body: dict[str, Any], _namespace: str | None = None
    ) -> None:
        self.before_write()
        current = self.get(resource, name)
        if current["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            raise Conflict(409, "Conflict", name)
        self.put(resource, body)

    def put(self, resource: Resource, body: dict[str, Any]) -> None:
        """Place it as anybody would."""
        self._version += 1
        metadata = body["metadata"] | {"resourceVersion": str(self._version)}
        self.objects[resource.plural, metadata["name"]] = copy.deepcopy(body | {"metadata": metadata})
        self.written()

    def register(self, webhooks: int = 1) -> None:
        """As Helm does: without bundles."""
        entries = [{"name": f"{each}.example", "clientConfig": {"service": {}}} for each in range(webhooks)]
        for resource in CONFIGURATIONS:
            self.put(resource, {"metadata": {"name": CONFIGURATION}, "webhooks": entries})

    @property
    def data(self) -> dict[str, str]:
        found = self.objects.get((SECRETS.plural, SECRET), {})
        data: dict[str, str] = found.get("data", {})
        return data


class Moment:
    """The time of one process, in whole seconds since NOW, as certificates have it."""

    def __init__(self) -> None:
        self.seconds = 0

    def now(self, skew: int = 0) -> datetime:
        return NOW + timedelta(seconds=self.seconds + skew)


def keeper(
    client: FakeClient,
    moment: Moment,
    recorder: FakeRecorder | None = None,
    *,
    rules: Rules = RULES,
    skew: int = 0,
) -> tuple[Site, Keeper]:
    site = Site(client, NAMESPACE, SECRET, CONFIGURATION, lambda: None)  # type: ignore[arg-type]
    return site, Keeper(
        site,
        lambda: rules,
        recorder or FakeRecorder(),  # type: ignore[arg-type]
        now=lambda: moment.now(skew),
        clock=lambda: float(moment.seconds),
    )
