"""CA bundles of webhook configurations: functions of values."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from certs.issue import COMMON_NAME_LENGTH

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
