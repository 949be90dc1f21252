"""Call a webhook server as the API server does, and print one line for each path: `helm test` runs this.

It has no client certificate. Where the server requires one, it checks that the server refuses it.
"""

from __future__ import annotations

import argparse
import os
import ssl
import sys
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec
import urllib3

from runtime import time, uuid4
from webhook.admission import API_VERSION, KIND

PORT = 443
CERTIFICATE_REQUIRED = "TLSV13_ALERT_CERTIFICATE_REQUIRED"
ATTEMPT, AGAIN = 5.0, 1.0
"""Seconds for one attempt, and between two."""
JSON = {"Content-Type": "application/json"}

Ask = Callable[[str, bytes], tuple[int, bytes]]
"""Post to a path; the status and the body that come back. Raises OSError or HTTPError."""


class Response(msgspec.Struct):
    uid: str = ""
    allowed: bool = False


class Answer(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    response: Response = msgspec.field(default_factory=Response)


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """The exit code: 0 when every path answers well, else 1; 2 when the CA cannot be used."""
    given = _parser().parse_args(arguments)
    try:
        pem = (
            Path(given.ca_file).read_text()
            if given.ca_file
            else b64decode(given.ca_base64, validate=True).decode()
        )
        context = ssl.create_default_context(cadata=pem)
    except (OSError, ValueError) as error:
        print(f"the CA cannot be used: {error}", file=sys.stderr)
        return 2
    host, port = address_of(given.server, environ)
    ask = partial(
        post, urllib3.HTTPSConnectionPool(host, port, ssl_context=context, server_hostname=given.server)
    )
    attempts = {path: partial(call, ask, path) for path in given.paths}
    if given.refused:
        attempts = {" refuses clients without a certificate": partial(refusal, ask, given.paths[0])}
    end = time.monotonic() + given.seconds
    found = {what: outcome(attempt, end) for what, attempt in attempts.items()}
    for what, problem in found.items():
        print(f"{'FAILED' if problem else 'ok'} {given.server}{what}{': ' if problem else ''}{problem}")
    return 1 if any(found.values()) else 0


def outcome(attempt: Callable[[], str], end: float) -> str:
    """The last problem of *attempt*; empty when it has none before *end*."""
    while True:
        try:
            problem = attempt()
        except (OSError, urllib3.exceptions.HTTPError) as error:
            problem = str(error) or type(error).__name__
        if not problem or time.monotonic() + AGAIN >= end:
            return problem
        time.sleep(AGAIN)


def call(ask: Ask, path: str) -> str:
    """The problem of *path*, or nothing."""
    uid = str(uuid4())
    return fault(*ask(path, review(uid)), uid)


def refusal(ask: Ask, path: str) -> str:
    """The problem of a server that should refuse us for want of a certificate, or nothing."""
    try:
        status, _ = ask(path, review(str(uuid4())))
    except urllib3.exceptions.SSLError as error:
        if CERTIFICATE_REQUIRED in str(error):
            return ""
        raise
    return f"it answers with HTTP {status}"


def review(uid: str) -> bytes:
    """A dry run without an object: no feature acts on it."""
    request = {"uid": uid, "operation": "CREATE", "dryRun": True}
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": KIND, "request": request})


def fault(status: int, body: bytes, uid: str) -> str:
    """The problem of the answer to the review *uid*, or nothing."""
    if status != 200:
        return f"HTTP {status}: {body[:200].decode(errors='replace').strip()}"
    try:
        answer = msgspec.json.decode(body, type=Answer)
    except msgspec.MsgspecError as error:
        return f"the answer is no {KIND}: {error}"
    if (answer.api_version, answer.kind, answer.response.uid) != (API_VERSION, KIND, uid):
        return f"the answer is a {answer.kind} of {answer.api_version} to {answer.response.uid!r}, not to {uid!r}"
    return "" if answer.response.allowed else "a review without an object was refused"


def address_of(server: str, environ: Mapping[str, str]) -> tuple[str, int]:
    """The Service's address in the environment that the kubelet sets, else its name."""
    name = server.partition(".")[0].upper().replace("-", "_")
    host = environ.get(f"{name}_SERVICE_HOST", server)
    return host, int(environ.get(f"{name}_SERVICE_PORT", PORT))


def post(pool: urllib3.HTTPSConnectionPool, path: str, body: bytes) -> tuple[int, bytes]:
    answer = pool.request(
        "POST", f"{path}?timeout=5s", body=body, headers=JSON, timeout=ATTEMPT, retries=False
    )
    return answer.status, answer.data


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m webhook.smoke_check", description=__doc__)
    parser.add_argument("--server", required=True, help="the name in its certificate: SERVICE.NAMESPACE.svc")
    trust = parser.add_mutually_exclusive_group(required=True)
    trust.add_argument("--ca-file", default="", help="the CA that signed it, as PEM")
    trust.add_argument("--ca-base64", default="", help="the same, as in a webhook configuration")
    parser.add_argument(
        "--refused", action="store_true", help="expect that clients without a certificate are refused"
    )
    parser.add_argument("--seconds", type=float, default=30, help="how long to try (default: %(default)s)")
    parser.add_argument("paths", nargs="+", metavar="PATH", help="path of a feature")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
