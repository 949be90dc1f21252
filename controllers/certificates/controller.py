"""Keep the certificate: one worker reads the Secret and the webhook configurations, plans one step, and takes it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import structlog
from cryptography import x509
from prometheus_client import Counter, Gauge

from certs.rotation import (
    CERTIFICATE,
    KEY,
    Held,
    Inject,
    NewAuthority,
    NewLeaf,
    Rules,
    bundles_in,
    certificates_in,
    data_with,
    held_in,
    plan,
    with_bundle,
)
from controllers.controller import CLOCK, Clock, Controller
from controllers.manager import Context
from kube.client import Client, Resource
from kube.errors import AlreadyExists, Backoff, Conflict, KubeError
from kube.event_recorder import EventRecorder, Regarding
from kube.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from settings import CertsSettings, Settings

NOT_AFTER = Gauge(
    "drawbridge_certificate_not_after_timestamp_seconds",
    "When the certificate in the Secret of the leader ends, as a Unix time: kind ca or leaf.",
    ["kind"],
)
ISSUED = Counter("drawbridge_certificates_issued", "Certificates that the leader issued.", ["kind"])

PERIOD = 5.0
"""Seconds within which a configuration that was replaced, or edited by hand, is trusted again."""
RETRY_AFTER = 1.0
PAUSES = Backoff(base=0.1, cap=15.0)
"""Failures are retried soon: a certificate ends at its time."""
SECRETS = Resource("", "v1", "secrets")
TLS = "kubernetes.io/tls"
OF_HELM = ("app.kubernetes.io/managed-by", "meta.helm.sh/")
CONFIGURATIONS = (
    (VALIDATING_WEBHOOKS, ""),
    (VALIDATING_WEBHOOKS, "-ingress-daemonset"),
    (MUTATING_WEBHOOKS, ""),
)
"""Each by its resource, and by what its name has after the configured one."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Snapshot:
    """The objects at one moment; None for a Secret that does not exist."""

    secret: dict[str, Any] | None
    configurations: tuple[tuple[Resource, dict[str, Any]], ...]

    @property
    def held(self) -> Held:
        return held_in((self.secret or {}).get("data") or {})

    @property
    def bundles(self) -> list[bytes]:
        return [bundle for _, each in self.configurations for bundle in bundles_in(each)]


@dataclass(frozen=True)
class Store:
    """Each write carries the resourceVersion of its snapshot; Conflict or AlreadyExists when that is outdated."""

    client: Client
    namespace: str
    secret_name: str
    configuration_name: str

    @property
    def regarding(self) -> Regarding:
        return Regarding("v1", "Secret", self.secret_name, self.namespace)

    def read(self) -> Snapshot:
        configurations = (
            (resource, self.client.find(resource, f"{self.configuration_name}{suffix}"))
            for resource, suffix in CONFIGURATIONS
        )
        found = tuple((resource, each) for resource, each in configurations if each is not None)
        return Snapshot(self.client.find(SECRETS, self.secret_name, self.namespace), found)

    def write_secret(self, snapshot: Snapshot, held: Held) -> None:
        before = snapshot.secret
        if before is None:
            metadata = {"name": self.secret_name, "namespace": self.namespace} | _release_metadata(snapshot)
            body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data_with(held, {})}
            self.client.create(SECRETS, body, self.namespace)
        else:
            # The API server refuses a Secret of cert-manager's type without these.
            required = {CERTIFICATE: "", KEY: ""} if before.get("type") == TLS else {}
            data = required | data_with(held, before.get("data") or {})
            body = before | {"metadata": _not_issued_by_others(before["metadata"]), "data": data}
            self.client.replace(SECRETS, self.secret_name, body, self.namespace)

    def write_bundles(self, snapshot: Snapshot, bundle: bytes) -> None:
        """Write *bundle* to each configuration; raise what was refused, by the objects' names, after all others."""
        refused: list[str] = []
        for resource, configuration in snapshot.configurations:
            if {*bundles_in(configuration)} <= {bundle}:
                continue
            name = configuration["metadata"]["name"]
            try:
                self.client.replace(resource, name, with_bundle(configuration, bundle))
            except Conflict:
                raise
            except KubeError as error:
                refused.append(f"{resource.plural}/{name}: {error}")
        if refused:
            raise KubeError("; ".join(refused))


def _not_issued_by_others(metadata: dict[str, Any]) -> dict[str, Any]:
    """Without cert-manager's annotations: they would keep it from issuing when it takes over again."""
    given: dict[str, str] = metadata.get("annotations") or {}
    left = {name: value for name, value in given.items() if not name.startswith("cert-manager.io/")}
    return metadata | {"annotations": left}


def _release_metadata(snapshot: Snapshot) -> dict[str, Any]:
    """What makes the Secret a part of its release, and nothing that an upgrade changes: Helm refuses to change ours."""
    given = snapshot.configurations[0][1]["metadata"] if snapshot.configurations else {}
    return {
        field: {name: value for name, value in (given.get(field) or {}).items() if name.startswith(OF_HELM)}
        for field in ("labels", "annotations")
    }


def run(context: Context, settings: Callable[[], Settings]) -> None:
    """Work until the context stops."""
    now = settings().certs
    store = Store(context.client, context.namespace, now.secret_name, now.configuration_name)
    reconciler = Reconciler(store, lambda: rules(settings().certs, context.namespace), context.recorder)
    context.run(Controller("certificates", reconciler.reconcile, first=["certificate"], rate=PAUSES))


def rules(settings: CertsSettings, namespace: str) -> Rules:
    """For the name by which API servers call a Service."""
    periods = settings.self_managed
    return Rules(
        f"{settings.service_name}.{namespace}.svc",
        ca_validity=timedelta(seconds=periods.ca_validity),
        leaf_validity=timedelta(seconds=periods.leaf_validity),
        renew_before=timedelta(seconds=periods.renew_before),
        overlap=timedelta(seconds=periods.overlap),
    )


class Reconciler:
    """Remembers since when it has seen the signer in all bundles, by its own clock: others' clocks may be wrong."""

    def __init__(
        self, store: Store, rules: Callable[[], Rules], recorder: EventRecorder, clock: Clock = CLOCK
    ) -> None:
        self._store, self._rules, self._recorder, self._clock = store, rules, recorder, clock
        self._trusted: tuple[x509.Certificate, float] | None = None

    def reconcile(self, _key: str) -> float:
        """Take one step; return the seconds until the next."""
        try:
            return self.act(self._store.read())
        except (Conflict, AlreadyExists):
            return RETRY_AFTER  # another client has written since
        except KubeError as error:
            log.warning("certificate not reconciled", error=str(error))
            self._warn("CertificateNotKept", f"It is tried again: {error}")
            return RETRY_AFTER

    def act(self, snapshot: Snapshot) -> float:
        rules, now, held = self._rules(), self._clock.now(), snapshot.held
        _report(held)
        step = plan(held, snapshot.bundles, self._trusted_for(snapshot), rules, now)
        if step is None:
            return min(PERIOD, max(RETRY_AFTER, rules.overlap.total_seconds() / 2))
        if isinstance(step, Inject):
            self._store.write_bundles(snapshot, step.bundle)
            log.info("CA bundle written", count=len(certificates_in(step.bundle)))
        else:
            self._store.write_secret(snapshot, step.on(held, rules, now))
            self._issued(snapshot, step)
        return 0.0

    def _trusted_for(self, snapshot: Snapshot) -> timedelta:
        signer, now = snapshot.held.signer, self._clock.monotonic()
        if signer is None or any(signer not in certificates_in(bundle) for bundle in snapshot.bundles):
            self._trusted = None
        elif self._trusted is None or self._trusted[0] != signer:
            self._trusted = (signer, now)
        return timedelta(seconds=now - self._trusted[1] if self._trusted else 0)

    def _issued(self, snapshot: Snapshot, step: NewAuthority | NewLeaf) -> None:
        ISSUED.labels(step.kind).inc()
        log.info("certificate issued", kind=step.kind, why=step.why)
        if (snapshot.secret or {}).get("data") and snapshot.held.signer is None:
            message = f"Its content could not be used, and a new CA was issued: {step.why}"
            self._warn("CertificateSecretReplaced", message)
        else:
            message = f"A new {step.kind} was issued: {step.why}"
            self._recorder.event(self._store.regarding, "CertificateIssued", message)

    def _warn(self, reason: str, message: str) -> None:
        self._recorder.event(self._store.regarding, reason, message, type="Warning")


def _report(held: Held) -> None:
    leaves = certificates_in(held.leaf.certificate)[:1]
    for kind, found in (("ca", held.signer), ("leaf", next(iter(leaves), None))):
        NOT_AFTER.labels(kind).set(found.not_valid_after_utc.timestamp() if found else 0.0)
