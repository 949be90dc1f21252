"""The serving certificate: API servers must trust it, whatever is renewed, lost or replaced when."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from dev.judge.judge import Invariant
from dev.judge.observation import Observation, name

Raw = dict[str, Any]
SYNC = 90.0
"""Seconds for which servers may serve what the Secret had before: a kubelet updates a mounted Secret late."""
FORGIVEN = 10.0
"""Seconds for which calls may fail after another writer has written a CA bundle."""


class ServedIsTrusted(Invariant):
    """*disturbances* of "certificates" are other clients' writes; until the first certificate nothing can be served."""

    name = f"certificates: API servers trust what the Secret has, and what it had {SYNC:.0f} s ago"

    def __init__(self) -> None:
        self._served: dict[str, float] = {}
        """When each certificate was last in the Secret."""
        self._begun = False

    def look(self, seen: Observation) -> Iterator[str]:
        self._served |= dict.fromkeys(_leaves(seen), seen.at)
        self._served = {leaf: at for leaf, at in self._served.items() if seen.at - at <= SYNC}
        problem = next(self._distrusted(seen), "") if self._served else ""
        self._begun = self._begun or bool(self._served and not problem)
        if problem and self._begun and not seen.disturbances.within(FORGIVEN, seen.at, "certificates"):
            yield problem

    def rest(self, seen: Observation) -> Iterator[str]:
        if not _leaves(seen):
            yield "there is none"
        if any((each.get("data") or {}).get("tls.crt") == "" for each in seen.secrets):
            yield "an empty one is mounted"
        yield from self._distrusted(seen)

    def _distrusted(self, seen: Observation) -> Iterator[str]:
        for each in seen.webhook_configurations:
            for webhook in each.get("webhooks") or ():
                bundle = webhook["clientConfig"].get("caBundle") or ""
                for leaf in self._served:
                    if problem := why_distrusted(leaf, bundle, seen.now):
                        yield f"by {name(each)}: {problem}"


def _leaves(seen: Observation) -> Sequence[str]:
    found = [(each.get("data") or {}).get("tls.crt") for each in seen.secrets]
    return [each for each in found if each]


def why_distrusted(leaf: str, bundle: str, now: datetime) -> str:
    """Both are PEM in base64."""
    [served, *_], trusted = certificates(leaf), certificates(bundle)
    issuers = [each for each in trusted if _signed(each, served) and _is_valid(each, now)]
    if not issuers:
        return f"none of {len(trusted)} CAs has signed it, and is valid"
    return (
        "" if _is_valid(served, now) else f"it is valid from {served.not_valid_before_utc} only, or has ended"
    )


def _is_valid(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc


@lru_cache
def certificates(encoded: str) -> Sequence[x509.Certificate]:
    pem = b64decode(encoded)
    return x509.load_pem_x509_certificates(pem) if pem.strip() else []


@lru_cache
def _signed(issuer: x509.Certificate, leaf: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(issuer)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True
