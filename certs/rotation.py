"""The next write of a rotation, such that API servers trust each served leaf all the time.

A new authority goes into the Secret first, then into the bundles; when it has been in all of them for the overlap, it
signs a leaf. An old authority stays in the bundles until it and its leaves have expired, so it does not matter when
the last server reads the new leaf. Each step is one write that leaves a good state behind.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from certs.issue import COMMON_NAME_LENGTH, Pair, belongs, check, is_issued_by, new_ca, new_leaf

CERTIFICATE, KEY = "tls.crt", "tls.key"
AUTHORITIES, AUTHORITY_KEY = "ca.crt", "ca.key"
NOTHING = Pair(b"", b"")
CLOCK_SKEW = timedelta(hours=1)
"""How far the clock of an API server may be behind ours."""
MOST_TRUSTED = 50
"""Authorities, of which the oldest go: whatever empties the Secret again and again, configurations stay small."""


@dataclass(frozen=True)
class Held:
    """What the Secret has, valid or not: authorities, the key of the newest one, and the leaf."""

    authorities: tuple[x509.Certificate, ...] = ()
    authority_key: bytes = b""
    leaf: Pair = NOTHING

    @cached_property
    def signer(self) -> x509.Certificate | None:
        """The authority whose key we have, if any."""
        return next((each for each in self.authorities if belongs(self.authority_key, each)), None)


def held_in(data: Mapping[str, str]) -> Held:
    """What can be decoded of a Secret's data."""
    return Held(
        tuple(certificates_in(decoded(data.get(AUTHORITIES)))),
        decoded(data.get(AUTHORITY_KEY)),
        Pair(decoded(data.get(CERTIFICATE)), decoded(data.get(KEY))),
    )


def data_with(held: Held, before: Mapping[str, str]) -> dict[str, str]:
    """*before* with our keys replaced; an empty value has no key, so that no pod can mount it."""
    ours = {
        AUTHORITIES: pem_of(held.authorities),
        AUTHORITY_KEY: held.authority_key,
        CERTIFICATE: held.leaf.certificate,
        KEY: held.leaf.key,
    }
    others = {name: value for name, value in before.items() if name not in ours}
    return others | {name: b64encode(value).decode() for name, value in ours.items() if value}


@dataclass(frozen=True)
class Rules:
    """The name in the certificates, and how long they last."""

    server_name: str
    ca_validity: timedelta
    leaf_validity: timedelta
    renew_before: timedelta
    overlap: timedelta

    @property
    def authority_name(self) -> str:
        return f"{self.server_name} CA"


@dataclass(frozen=True)
class NewAuthority:
    """Issue an authority, and keep *others*."""

    others: tuple[x509.Certificate, ...]
    why: str
    kind: str = "ca"

    def on(self, held: Held, rules: Rules, now: datetime) -> Held:
        """The Secret after this step; the key of the last authority is dropped."""
        made = new_ca(rules.authority_name, now - CLOCK_SKEW, now + rules.ca_validity)
        is_pair = any(belongs(held.leaf.key, each) for each in certificates_in(held.leaf.certificate)[:1])
        leaf = held.leaf if is_pair else NOTHING
        return Held((*certificates_in(made.certificate), *self.others), made.key, leaf)


@dataclass(frozen=True)
class NewLeaf:
    """Issue a leaf by *signer*."""

    signer: x509.Certificate
    why: str
    kind: str = "leaf"

    def on(self, held: Held, rules: Rules, now: datetime) -> Held:
        """The Secret after this step; a leaf does not outlive its authority."""
        end = min(now + rules.leaf_validity, self.signer.not_valid_after_utc)
        ca = Pair(pem_of([self.signer]), held.authority_key)
        leaf = new_leaf(ca, [rules.server_name], [], now - CLOCK_SKEW, end)
        return Held(held.authorities, held.authority_key, leaf)


@dataclass(frozen=True)
class Inject:
    """Make *bundle* that of every webhook."""

    bundle: bytes


Step = NewAuthority | NewLeaf | Inject


def plan(
    held: Held, bundles: Sequence[bytes], trusted_for: timedelta, rules: Rules, now: datetime
) -> Step | None:
    """The next write, or None; *trusted_for* is how long the signer has been seen in all *bundles*."""
    trusted = to_trust(held, bundles, rules, now)
    if (signer := held.signer) is None:
        return NewAuthority(trusted, "there is none with a key that fits")
    if now < signer.not_valid_before_utc:  # as a leader's clock was ahead: no leaf of it would be good
        return NewAuthority(trusted, f"the last one begins on {signer.not_valid_before_utc.isoformat()} only")
    if now >= signer.not_valid_after_utc - rules.renew_before:
        return NewAuthority(trusted, f"the last one ends on {signer.not_valid_after_utc.isoformat()}")
    why = _why_renew(held.leaf, signer, rules, now)
    # API servers trust the signer already when it signed the last leaf, or is the only authority.
    is_trusted = trusted == (signer,) or is_issued_by(held.leaf.certificate, signer)
    if why and (is_trusted or trusted_for >= rules.overlap):
        return NewLeaf(signer, why)
    bundle = pem_of(trusted)
    return Inject(bundle) if any(each != bundle for each in bundles) else None


def to_trust(
    held: Held, bundles: Sequence[bytes], rules: Rules, now: datetime
) -> tuple[x509.Certificate, ...]:
    """The signer, and all other authorities of ours that have not expired, in the Secret or in a bundle.

    When the Secret is lost, the servers still have leaves of the authorities in the bundles.
    """
    seen = {each for bundle in bundles for each in certificates_in(bundle)}
    known = {each for each in seen if is_authority(each, rules.authority_name)} | {*held.authorities}
    lasting = [each for each in known if now - rules.overlap < each.not_valid_after_utc]

    def newest_first(each: x509.Certificate) -> tuple[bool, float, bytes]:
        return each != held.signer, -each.not_valid_after_utc.timestamp(), pem_of([each])

    return tuple(sorted(lasting, key=newest_first)[:MOST_TRUSTED])


def _why_renew(leaf: Pair, signer: x509.Certificate, rules: Rules, now: datetime) -> str | None:
    if leaf == NOTHING:
        return "there is none"
    moments = (now, now + rules.renew_before)
    return next(filter(None, (check(leaf, signer, rules.server_name, at) for at in moments)), None)


_BLOCK = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def certificates_in(pem: bytes) -> list[x509.Certificate]:
    """Skips what cannot be parsed."""
    found = []
    for block in _BLOCK.findall(pem):
        with suppress(ValueError, x509.InvalidVersion):
            found.append(x509.load_pem_x509_certificate(block))
    return found


def pem_of(certificates: Iterable[x509.Certificate]) -> bytes:
    return b"".join(each.public_bytes(Encoding.PEM) for each in certificates)


def is_authority(certificate: x509.Certificate, common_name: str) -> bool:
    """Whether it may sign, and has our authorities' name."""
    try:
        basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        names = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    except (ValueError, x509.ExtensionNotFound):
        return False
    return basic.ca and [each.value for each in names] == [common_name[:COMMON_NAME_LENGTH]]


def bundles_in(configuration: dict[str, Any]) -> list[bytes]:
    """The bundle of each webhook as PEM; empty where it cannot be decoded."""
    return [decoded(webhook["clientConfig"].get("caBundle")) for webhook in _webhooks(configuration)]


def with_bundle(configuration: dict[str, Any], pem: bytes) -> dict[str, Any]:
    """The configuration with *pem* as the bundle of each webhook."""
    bundle = {"caBundle": b64encode(pem).decode()}
    webhooks = [each | {"clientConfig": each["clientConfig"] | bundle} for each in _webhooks(configuration)]
    return configuration | {"webhooks": webhooks}


def _webhooks(configuration: dict[str, Any]) -> list[dict[str, Any]]:
    return configuration.get("webhooks") or []


def decoded(base64: str | None) -> bytes:
    """Empty when it cannot be decoded."""
    try:
        return b64decode(base64 or "")
    except ValueError:
        return b""
