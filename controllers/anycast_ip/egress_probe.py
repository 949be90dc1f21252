"""See which address a service has the traffic of this node from: a program, run once in a pod on the node.

Run as ``python -m controllers.anycast_ip.egress_probe URL ADDRESS SECONDS``. It asks until the service answers with
ADDRESS, or until SECONDS have passed: a new binding may not carry traffic at once. The exit code is the result, and the
termination message is what was seen last.
"""

from __future__ import annotations

import os
import re
import ssl
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from runtime import time

SEEN, ANOTHER, NO_ANSWER = 0, 3, 4
"""Exit codes: the service sees the address, or another one, or does not answer with one. Python itself ends with 1 or 2
when it cannot run this, as in another image."""
PAUSE = 1.0
PATIENCE = 5.0
"""Seconds for one answer."""
IPV4 = ("0.0.0.0", 0)
LONGEST = 4096
"""Bytes of an answer that are read."""
TERMINATION_LOG = Path("/dev/termination-log")
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_WORD = re.compile(rb"[0-9a-fA-F.:]{2,45}")


@dataclass(frozen=True)
class Seen:
    """*address* is empty when there was no answer with one, and *problem* says why."""

    address: str = ""
    problem: str = ""


def probe(
    ask: Callable[[], Seen],
    expected: str,
    seconds: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> Seen:
    """The first answer with *expected*, or the last one."""
    deadline = clock() + seconds
    while True:
        seen = ask()
        if seen.address == expected or clock() + PAUSE >= deadline:
            return seen
        sleep(PAUSE)


def ask(url: str) -> Seen:
    """Over IPv4, straight to the host, without a proxy; a redirect is no answer."""
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if parts.scheme == "http":
        connection = HTTPConnection(parts.netloc, timeout=PATIENCE, source_address=IPV4)
    else:
        trusted = str(CERTIFICATES) if CERTIFICATES.exists() else None
        context = ssl.create_default_context(cafile=trusted)
        connection = HTTPSConnection(parts.netloc, timeout=PATIENCE, source_address=IPV4, context=context)
    try:
        connection.request("GET", target, headers={"Cache-Control": "no-cache", "Connection": "close"})
        response = connection.getresponse()
        return seen_in(response.status, response.read(LONGEST))
    except (OSError, HTTPException, ValueError) as error:  # the last one for a host that cannot be looked up
        return Seen(problem=f"{type(error).__name__}: {error}")
    finally:
        connection.close()


def seen_in(status: int, body: bytes) -> Seen:
    """The one address in *body*, which may be plain text or JSON."""
    if status != 200:
        return Seen(problem=f"it answered {status}")
    found = {address for word in _WORD.findall(body) if (address := _address(word))}
    if len(found) != 1:
        return Seen(problem=f"its answer has {len(found)} addresses: {body[:100].decode(errors='replace')!r}")
    return Seen(found.pop())


def _address(word: bytes) -> str:
    try:
        return str(ip_address(word.decode()))
    except ValueError:
        return ""


def main(words: Sequence[str]) -> int:
    """The exit code."""
    url, expected, seconds = words
    seen = probe(lambda: ask(url), expected, float(seconds))
    code = SEEN if seen.address == expected else ANOTHER if seen.address else NO_ANSWER
    message = f"seen as {seen.address}" if seen.address else f"no answer: {seen.problem}"
    print(message)
    with suppress(OSError):  # where there is none, the exit code says enough
        descriptor = os.open(TERMINATION_LOG, os.O_WRONLY | os.O_TRUNC)
        with os.fdopen(descriptor, "w") as log:
            log.write(message)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
