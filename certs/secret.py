"""The Secret of our authorities and the leaf, as values and as data."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from cryptography import x509

from certs.ca_bundle import certificates_in, decoded, pem_of
from certs.issue import Pair, belongs

CERTIFICATE, KEY = "tls.crt", "tls.key"
AUTHORITIES, AUTHORITY_KEY = "ca.crt", "ca.key"
NOTHING = Pair(b"", b"")


@dataclass(frozen=True)
class Held:
    """The content, valid or not: authorities, the key of the newest one, and the leaf."""

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
