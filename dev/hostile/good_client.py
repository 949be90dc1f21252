"""A client like the API server: a few connections that stay open, calls at a steady pace, a timeout for each."""

from __future__ import annotations

import http.client
import ssl
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field

from dev.hostile.attacks import RESERVE, Target, review

TIMEOUT = 5.0
"""Seconds: the chart's default for the webhook."""
PER_SECOND = 40
CONNECTIONS = 4
BODY = review(
    "Pod",
    "pods",
    operation="DELETE",
    namespace="default",
    oldObject={
        "metadata": {"name": "a", "namespace": "default", "uid": "u"},
        "spec": {"hostNetwork": True, "containers": []},
        "status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]},
    },
)


@dataclass
class Seen:
    """*latencies* of calls that were answered well, in seconds, and what went wrong with the others."""

    latencies: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def add(self, other: Seen) -> None:
        self.latencies += other.latencies
        self.failures += other.failures

    def p99(self) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))] if ordered else float("inf")


def calling(target: Target, seconds: float) -> Seen:
    """Call at PER_SECOND for so long; a connection that the server closed is opened again, as Go does."""
    seen, end = Seen(), time.monotonic() + seconds
    threads = [threading.Thread(target=_call, args=(target, seen, end)) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen


def _call(target: Target, seen: Seen, end: float) -> None:
    connection = _connection(target)
    while time.monotonic() < end:
        begin = time.monotonic()
        try:
            status, body = _post(connection)
        except (OSError, http.client.HTTPException) as error:
            seen.failures.append(repr(error))
            connection.close()
            connection = _connection(target)
        else:
            if status == 200 and b'"allowed":true' in body:
                seen.latencies.append(time.monotonic() - begin)
            else:
                seen.failures.append(f"{status}: {body[:100]!r}")
        time.sleep(max(0.0, CONNECTIONS / PER_SECOND - (time.monotonic() - begin)))
    connection.close()


def _post(connection: http.client.HTTPSConnection) -> tuple[int, bytes]:
    headers = {"Content-Type": "application/json"}
    try:
        connection.request("POST", f"{RESERVE}?timeout=5s", BODY, headers)
        response = connection.getresponse()
    except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
        if connection.sock is None:
            raise
        with suppress(OSError):
            connection.close()
        connection.request("POST", f"{RESERVE}?timeout=5s", BODY, headers)
        response = connection.getresponse()
    return response.status, response.read()


def _connection(target: Target) -> http.client.HTTPSConnection:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection(target.host, target.port, context=context, timeout=TIMEOUT)
