"""A client that causes warnings without end fills no log, and none of them is lost without a trace."""

from __future__ import annotations

from structlog.testing import CapturingLogger

from telemetry.logs import INTERVAL, SparingLogger
from tests.fakes import FakeClock


def test_one_warning_of_each_event_in_an_interval_counts_those_between() -> None:
    written, clock = CapturingLogger(), FakeClock()
    log = SparingLogger(written, clock)

    for _ in range(3):
        log.warning("TLS failed", client="10.0.0.1")
    log.warning("bad request", error="no JSON")
    clock.advance(INTERVAL)
    log.warning("TLS failed", client="10.0.0.2")
    log.warning("TLS failed", client="10.0.0.3")

    assert [(each.args, each.kwargs) for each in written.calls] == [
        (("TLS failed",), {"omitted": 0, "client": "10.0.0.1"}),
        (("bad request",), {"omitted": 0, "error": "no JSON"}),
        (("TLS failed",), {"omitted": 2, "client": "10.0.0.2"}),
    ]
