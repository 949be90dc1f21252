"""A certificate authority and the leaves that it signs, as functions of names, begin and end."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# RFC 5280 bounds a common name; the names that count are the subject alternative names.
COMMON_NAME_LENGTH = 64


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key (ECDSA P-256), both PEM."""

    certificate: bytes
    key: bytes


def new_ca(common_name: str, begin: datetime, end: datetime) -> Pair:
    """A self-signed authority that signs leaves only."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(common_name)
    builder = (
        _certificate(name, name, key.public_key(), begin, end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
    )
    return _pair(builder, key, signed_by=key)


def new_leaf(
    ca: Pair,
    dns_names: Iterable[str],
    ip_addresses: Iterable[str],
    begin: datetime,
    end: datetime,
    purpose: x509.ObjectIdentifier = ExtendedKeyUsageOID.SERVER_AUTH,
) -> Pair:
    """A certificate of *ca* for these names, a server's by default; ValueError when there is none or a bad one."""
    names = [*map(x509.DNSName, dns_names), *(x509.IPAddress(ip_address(ip)) for ip in ip_addresses)]
    if not names:
        raise ValueError("a certificate needs at least one DNS name or IP address")
    issuer, key = x509.load_pem_x509_certificate(ca.certificate), ec.generate_private_key(ec.SECP256R1())
    authority_key = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        _certificate(_name(str(names[0].value)), issuer.subject, key.public_key(), begin, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(authority_key), critical=False
        )
    )
    return _pair(builder, key, signed_by=_private_key(ca))


def check(pair: Pair, ca: x509.Certificate, dns_name: str, at: datetime) -> str | None:
    """Why *pair* cannot serve *dns_name* at that time to clients that trust *ca*; None when it can."""
    try:
        leaf = x509.load_pem_x509_certificate(pair.certificate)
        if _private_key(pair).public_key() != leaf.public_key():
            return "the private key belongs to another certificate"
        leaf.verify_directly_issued_by(ca)
    except (InvalidSignature, TypeError, ValueError, UnsupportedAlgorithm) as error:
        return (
            f"the certificate is not one of this authority: {str(error) or 'its signature does not verify'}"
        )
    if problem := _outside("certificate", leaf, at) or _outside("authority", ca, at):
        return problem
    names = dns_names(leaf)
    return None if dns_name in names else f"the certificate is for {', '.join(names)}, not for {dns_name}"


def belongs(key: bytes, certificate: x509.Certificate) -> bool:
    """Whether this is the certificate's private key."""
    try:
        return _private_key(Pair(b"", key)).public_key() == certificate.public_key()
    except (TypeError, ValueError, UnsupportedAlgorithm):
        return False


def is_issued_by(certificate: bytes, ca: x509.Certificate) -> bool:
    """Whether *ca* signed the first certificate of a PEM file; its times do not matter."""
    try:
        x509.load_pem_x509_certificate(certificate).verify_directly_issued_by(ca)
    except (InvalidSignature, TypeError, ValueError, UnsupportedAlgorithm):
        return False
    return True


def not_after(certificate: bytes) -> datetime:
    """When the first certificate of a PEM file ends; raises ValueError when there is none."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def dns_names(certificate: x509.Certificate) -> list[str]:
    """Those by which clients know its server; they ask for no common name."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return names.get_values_for_type(x509.DNSName)


def _outside(what: str, certificate: x509.Certificate, at: datetime) -> str | None:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if at < begin:
        return f"the {what} begins on {begin.isoformat()} only"
    return f"the {what} ended on {end.isoformat()}" if at > end else None


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:COMMON_NAME_LENGTH])])


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, begin: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        # Not cut to whole seconds: one that ends too early would be renewed at once.
        .not_valid_after(end + timedelta(microseconds=-end.microsecond % 1_000_000))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _private_key(pair: Pair) -> ec.EllipticCurvePrivateKey:
    key = serialization.load_pem_private_key(pair.key, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError(f"the private key is a {type(key).__name__}, not an elliptic curve one")
    return key


def _pair(
    builder: x509.CertificateBuilder,
    key: ec.EllipticCurvePrivateKey,
    *,
    signed_by: ec.EllipticCurvePrivateKey,
) -> Pair:
    certificate = builder.sign(signed_by, hashes.SHA256())
    return Pair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    )
