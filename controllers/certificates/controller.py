"""Keep the certificate: one worker reads the Secret and the webhook configurations, plans one step, and takes it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import structlog
from cryptography import x509
from prometheus_client import Counter, Gauge

from certs.ca_bundle import certificates_in
from certs.rotation import Held, Inject, NewAuthority, NewLeaf, Rules, plan
from controllers.certificates.store import Snapshot, Store
from controllers.clock import CLOCK, Clock
from controllers.controller import Controller
from controllers.manager import Context
from kube.errors import AlreadyExists, Backoff, Conflict, KubeError
from kube.event_recorder import EventRecorder
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

log = structlog.get_logger(__name__)


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
            return min(PERIOD, rules.overlap.total_seconds() / 2)
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
