"""Probes: what follows from a row of results, and how one result is had."""

from __future__ import annotations

import http.client
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

EAGER = 0.5

Check = Callable[[float], bool]  # given seconds to take at most


class Probe(msgspec.Struct, frozen=True, rename="camel"):
    """The settings of one probe, with the defaults of the API."""

    initial_delay_seconds: float = 0.0
    period_seconds: float = 10.0
    timeout_seconds: float = 1.0
    success_threshold: int = 1
    failure_threshold: int = 3


@dataclass(frozen=True)
class Verdict:
    """What stands, and how many results in a row spoke against it."""

    good: bool
    against: int = 0


def parse(probe: Mapping[str, Any]) -> Probe:
    return msgspec.convert(probe, Probe)


def judge(verdict: Verdict, succeeded: bool, probe: Probe) -> Verdict:
    """The verdict after one more result."""
    if succeeded == verdict.good:
        return replace(verdict, against=0)
    against = verdict.against + 1
    needed = probe.success_threshold if succeeded else probe.failure_threshold
    return Verdict(succeeded) if against >= needed else replace(verdict, against=against)


def follow(
    probe: Probe,
    check: Check,
    stop: threading.Event,
    report: Callable[[bool], None],
    *,
    eager: bool = False,
    until_success: bool = False,
) -> None:
    """Check once a period until stopped, or until success.

    What waits for a first success is tried in between, too, and only success counts there. So a lab is ready
    as soon as its programs are, while the thresholds keep their meaning.
    """
    waits = eager or until_success
    stop.wait(probe.initial_delay_seconds)
    while not stop.is_set():
        due = time.monotonic() + probe.period_seconds
        succeeded = check(probe.timeout_seconds)
        if not stop.is_set():
            report(succeeded)
        if waits and not succeeded and _succeeds_before(due, probe, check, stop):
            report(succeeded := True)
        waits = waits and not succeeded
        if until_success and succeeded:
            return
        stop.wait(max(0.0, due - time.monotonic()))


def _succeeds_before(due: float, probe: Probe, check: Check, stop: threading.Event) -> bool:
    while not stop.wait(min(EAGER, max(0.0, due - time.monotonic()))) and time.monotonic() < due:
        if check(min(probe.timeout_seconds, due - time.monotonic())):
            return not stop.is_set()
    return False


def http_check(probe: Mapping[str, Any], container: Mapping[str, Any], address: str) -> Check:
    action = probe["httpGet"]
    host, port = action.get("host") or address, port_number(action["port"], container)
    tls, path = action.get("scheme") == "HTTPS", action.get("path", "/")
    return lambda timeout: http_get(host, port, path, tls=tls, timeout=timeout)


def port_number(port: int | str, container: Mapping[str, Any]) -> int:
    """A port given by number, or by the name that the container gives it; 0 when it gives none such."""
    if isinstance(port, int) or port.isdecimal():
        return int(port)
    return next((each["containerPort"] for each in container.get("ports", ()) if each.get("name") == port), 0)


def http_get(host: str, port: int, path: str, *, tls: bool, timeout: float) -> bool:
    """Whether the answer is from 200 to 399; a certificate is not verified, as in the real kubelet."""
    connection = (
        http.client.HTTPSConnection(host, port, timeout=timeout, context=_unverified())
        if tls
        else http.client.HTTPConnection(host, port, timeout=timeout)
    )
    try:
        connection.request("GET", path, headers={"User-Agent": "kube-probe/lab"})
        return 200 <= connection.getresponse().status < 400
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
