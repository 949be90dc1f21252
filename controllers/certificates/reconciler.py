"""Look, decide and write once, again and again: whoever leads goes on where the last leader was."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import structlog
from cryptography import x509
from prometheus_client import Counter, Gauge

from certs.ca_bundle import certificates_in
from certs.rotation import Inject, NewAuthority, NewLeaf, Rules, has_new_authority, has_new_leaf, plan
from certs.secret import Held
from controllers.certificates.store import Seen, Site
from kube.errors import AlreadyExists, Conflict, KubeError
from kube.event_recorder import EventRecorder

NOT_AFTER = Gauge(
    "drawbridge_certificate_not_after_timestamp_seconds",
    "When the certificate in the Secret of the leader ends, as a Unix time: kind ca or leaf.",
    ["kind"],
)
ISSUED = Counter("drawbridge_certificates_issued", "Certificates that the leader issued.", ["kind"])

LOOK_EVERY = 5.0
"""Seconds: a registration that comes back, or is changed by hand, is not trusted for longer than that."""
RETRY_AFTER = 1.0

log = structlog.get_logger(__name__)


class Keeper:
    """Remembers since when it has seen the signer in all bundles, by its own clock: others' clocks may be wrong."""

    def __init__(
        self,
        site: Site,
        rules: Callable[[], Rules],
        recorder: EventRecorder,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._site, self._rules, self._recorder = site, rules, recorder
        self._now, self._clock = now, clock
        self._trusted: tuple[x509.Certificate, float] | None = None

    def reconcile(self, _key: str) -> float:
        """One look, and one step; seconds until the next."""
        try:
            return self.act(self._site.look())
        except (Conflict, AlreadyExists):
            return RETRY_AFTER  # somebody was faster: what they left is looked at anew
        except KubeError as error:
            log.warning("the certificate is not looked after", error=str(error))
            self._recorder.event(
                self._site.regarding, "CertificateNotKept", f"It is tried again: {error}", type="Warning"
            )
            return RETRY_AFTER

    def act(self, seen: Seen) -> float:
        """Take the next step from what was *seen*; seconds until the next look."""
        rules, now, held = self._rules(), self._now(), seen.held
        _report(held)
        step = plan(held, seen.bundles, self._trusted_for(seen), rules, now)
        match step:
            case None:
                return min(LOOK_EVERY, rules.overlap.total_seconds() / 2)
            case NewAuthority():
                self._store(seen, has_new_authority(held, step, rules, now), step)
            case NewLeaf():
                self._store(seen, has_new_leaf(held, step, rules, now), step)
            case Inject():
                self._site.inject(seen, step.bundle)
                log.info("trusted authorities written", count=len(certificates_in(step.bundle)))
        return 0.0

    def _trusted_for(self, seen: Seen) -> timedelta:
        signer, clock = seen.held.signer, self._clock()
        if signer is None or any(signer not in certificates_in(bundle) for bundle in seen.bundles):
            self._trusted = None
        elif self._trusted is None or self._trusted[0] != signer:
            self._trusted = (signer, clock)
        return timedelta(seconds=clock - self._trusted[1] if self._trusted else 0)

    def _store(self, seen: Seen, held: Held, step: NewAuthority | NewLeaf) -> None:
        self._site.store(seen, held)
        kind = "ca" if isinstance(step, NewAuthority) else "leaf"
        ISSUED.labels(kind).inc()
        log.info("certificate issued", kind=kind, why=step.why)
        if (seen.secret or {}).get("data") and isinstance(step, NewAuthority) and seen.held.signer is None:
            self._recorder.event(
                self._site.regarding,
                "CertificateSecretReplaced",
                f"What it held could not be used, and a new CA was issued: {step.why}",
                type="Warning",
            )
        else:
            self._recorder.event(
                self._site.regarding, "CertificateIssued", f"A new {kind} was issued: {step.why}"
            )


def _report(held: Held) -> None:
    leaves = certificates_in(held.leaf.certificate)[:1]
    for kind, found in (("ca", held.signer), ("leaf", next(iter(leaves), None))):
        NOT_AFTER.labels(kind).set(found.not_valid_after_utc.timestamp() if found else 0.0)
