"""Verify TC3-HMAC-SHA256 signatures as the vendor documents them."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from dev.lab.cloud.envelope import Fault
from dev.lab.cloud.request import Request

AGE = 300.0
ALGORITHM = "TC3-HMAC-SHA256"
AUTHORIZATION = re.compile(
    ALGORITHM + r"\s+Credential=([^/,\s]+)/(\d{4}-\d\d-\d\d)/(\w+)/tc3_request,\s*"
    r"SignedHeaders=([a-z0-9;-]+),\s*Signature=([0-9a-f]{64})"
)

Secrets = Callable[[str, str], str]
"""From secret id and session token to the secret key; raises Fault for unknown ones."""


@dataclass(frozen=True)
class Claim:
    """What the Authorization header says."""

    secret_id: str
    date: str
    service: str
    headers: tuple[str, ...]
    signature: str


def claim(request: Request) -> Claim:
    """Raises Fault when the header is missing or not of this algorithm."""
    header = request.headers.get("authorization")
    if header is None:
        raise Fault("MissingParameter", "The request is missing a required parameter `Authorization`.")
    found = AUTHORIZATION.fullmatch(header.strip())
    headers = tuple(found[4].split(";")) if found else ()
    if found is None or not {"content-type", "host"} <= set(headers):
        raise Fault(
            "AuthFailure.InvalidAuthorization",
            f"The `Authorization` header must be `{ALGORITHM} Credential=id/date/service/tc3_request, "
            "SignedHeaders=..., Signature=...` with content-type and host signed.",
        )
    return Claim(found[1], found[2], found[3], headers, found[5])


def verify(request: Request, said: Claim, secrets: Secrets, now: float) -> None:
    """Raises Fault unless *said* was signed by the owner of its key within the last five minutes."""
    timestamp = _timestamp(request)
    if abs(now - timestamp) > AGE:
        raise Fault(
            "AuthFailure.SignatureExpire",
            f"The signature expired: X-TC-Timestamp is {timestamp}, the server's time is {int(now)}.",
        )
    if utc_date(timestamp) != said.date:
        raise Fault(
            "AuthFailure.SignatureFailure",
            f"The date of the credential, {said.date}, is not that of X-TC-Timestamp, {utc_date(timestamp)}.",
        )
    key = secrets(said.secret_id, request.headers.get("x-tc-token", ""))
    if not hmac.compare_digest(sign(key, said, string_to_sign(request, said)), said.signature):
        raise Fault("AuthFailure.SignatureFailure", "The provided credentials could not be validated.")


def sign(key: str, said: Claim, text: str) -> str:
    digest = f"TC3{key}".encode()
    for part in (said.date, said.service, "tc3_request", text):
        digest = hmac.digest(digest, part.encode(), "sha256")
    return digest.hex()


def string_to_sign(request: Request, said: Claim) -> str:
    scope = f"{said.date}/{said.service}/tc3_request"
    hashed = hashlib.sha256(canonical(request, said.headers).encode()).hexdigest()
    return "\n".join([ALGORITHM, request.headers["x-tc-timestamp"], scope, hashed])


def canonical(request: Request, signed_headers: tuple[str, ...]) -> str:
    headers = "".join(f"{name}:{request.headers.get(name, '').strip().lower()}\n" for name in signed_headers)
    payload = hashlib.sha256(request.body).hexdigest()
    lines = [request.method, request.path, request.query, headers, ";".join(signed_headers), payload]
    return "\n".join(lines)


def utc_date(timestamp: float) -> str:
    return datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%d")


def _timestamp(request: Request) -> int:
    header = request.headers.get("x-tc-timestamp")
    if header is None:
        raise Fault("MissingParameter", "The request is missing a required parameter `X-TC-Timestamp`.")
    if not re.fullmatch(r"\d{1,11}", header):
        raise Fault("InvalidParameter", f"X-TC-Timestamp is `{header}`; it must be UNIX seconds.")
    return int(header)
