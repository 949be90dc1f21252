"""The next write of a rotation, such that API servers trust each served leaf all the time.

A new authority goes into the Secret first, then into the bundles; when it has been in all of them for the overlap, it
signs a leaf. An old authority stays in the bundles until it and its leaves have expired, so it does not matter when
the last server reads the new leaf. Each step is one write that leaves a good state behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509

from certs.ca_bundle import certificates_in, is_authority, pem_of
from certs.issue import Pair, belongs, check, is_issued_by, new_ca, new_leaf
from certs.secret import NOTHING, Held

CLOCK_SKEW = timedelta(hours=1)
"""How far the clock of an API server may be behind ours."""


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


@dataclass(frozen=True)
class NewLeaf:
    """Issue a leaf by *signer*."""

    signer: x509.Certificate
    why: str


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
    if now >= signer.not_valid_after_utc - rules.renew_before:
        return NewAuthority(trusted, f"the last one ends on {signer.not_valid_after_utc.isoformat()}")
    why = _why_renew(held.leaf, signer, rules, now)
    if why and (_signed_before(held, trusted) or trusted_for >= rules.overlap):
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
    lasting = [each for each in known if now < each.not_valid_after_utc + rules.overlap]
    return tuple(sorted(lasting, key=lambda each: (each != held.signer, -_end(each), pem_of([each]))))


def has_new_authority(held: Held, step: NewAuthority, rules: Rules, now: datetime) -> Held:
    """The Secret after that step; the key of the last authority is dropped."""
    begin, end = now - CLOCK_SKEW, now + rules.ca_validity
    made = new_ca(rules.authority_name, begin, end)
    leaf = held.leaf if _is_pair(held.leaf) else NOTHING
    return Held((*certificates_in(made.certificate), *step.others), made.key, leaf)


def has_new_leaf(held: Held, step: NewLeaf, rules: Rules, now: datetime) -> Held:
    """The Secret after that step; a leaf does not outlive its authority."""
    end = min(now + rules.leaf_validity, step.signer.not_valid_after_utc)
    ca = Pair(pem_of([step.signer]), held.authority_key)
    leaf = new_leaf(ca, [rules.server_name], [], now - CLOCK_SKEW, end)
    return Held(held.authorities, held.authority_key, leaf)


def _why_renew(leaf: Pair, signer: x509.Certificate, rules: Rules, now: datetime) -> str | None:
    if leaf == NOTHING:
        return "there is none"
    at_renewal = now + rules.renew_before
    return check(leaf, Pair(pem_of([signer]), b""), rules.server_name, now) or (
        check(leaf, Pair(pem_of([signer]), b""), rules.server_name, at_renewal)
    )


def _signed_before(held: Held, trusted: Sequence[x509.Certificate]) -> bool:
    """Whether API servers trust the signer already: it signed the last leaf, or is the only authority."""
    signer = held.signer
    return [*trusted] == [signer] or (signer is not None and is_issued_by(held.leaf.certificate, signer))


def _is_pair(leaf: Pair) -> bool:
    return any(belongs(leaf.key, each) for each in certificates_in(leaf.certificate)[:1])


def _end(certificate: x509.Certificate) -> float:
    return certificate.not_valid_after_utc.timestamp()
