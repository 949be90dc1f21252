"""Clients that the server refuses are counted by reason; those that leave are none of them."""

from __future__ import annotations

import errno
import ssl
from collections.abc import Callable

import pytest

from tests.metrics import sample
from webhook.connection import report_failure, report_refusal
from webhook.inbox import Refused

REASONS = ("tls", "400", "503")


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (lambda: report_refusal("10.0.0.1", Refused("503 Service Unavailable", "try again")), {"503": 1}),
        (lambda: report_refusal("10.0.0.1", Refused("400 Bad Request", "larger records")), {"400": 1}),
        (lambda: report_failure("10.0.0.1", ssl.SSLError("no certificate")), {"tls": 1}),
        (lambda: report_failure("10.0.0.1", ssl.SSLEOFError("gone")), {}),
        (lambda: report_failure("10.0.0.1", ssl.SSLError(errno.ENOTCONN, "gone")), {}),
        (lambda: report_failure("10.0.0.1", ConnectionResetError()), {}),
    ],
    ids=["busy", "tiny records", "no certificate", "left in a handshake", "reset in a handshake", "reset"],
)
def test_refused_clients_are_counted_by_reason(report: Callable[[], None], expected: dict[str, int]) -> None:
    before = counted()
    report()

    assert {
        reason: count - before[reason] for reason, count in counted().items() if count != before[reason]
    } == expected


def counted() -> dict[str, float]:
    return {reason: sample("drawbridge_refused_connections_total", reason=reason) for reason in REASONS}
