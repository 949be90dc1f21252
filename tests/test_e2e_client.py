"""The client of the end-to-end scenes tells what failed from what it did not send, or not in time."""

from __future__ import annotations

import http.server
import itertools
import threading
from collections import Counter
from typing import Any

import pytest

from lab.waiting import until
from tests.e2e.client import STALLED_SECONDS, Report, Sender
from tests.e2e.traffic import requests

STALLED = Report(Counter({"200": 900, "TimeoutError": 100}), stalled=STALLED_SECONDS + 1)


class Server(http.server.BaseHTTPRequestHandler):
    """Refuses each tenth request."""

    served = itertools.count(1)

    def do_GET(self) -> None:
        self.send_response(503 if next(self.served) % 10 == 0 else 200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def test_it_counts_the_answers() -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever).start()
        with requests(server.server_port) as reports:
            until(lambda: next(Server.served) > 50, 60, "some requests to be served", every=0.2)
        server.shutdown()

    [report] = reports
    assert report.answers.keys() == {"200", "503"}
    assert 0 < report.failed == report.answers["503"] < report.answers["200"]


def sent(*moments: float) -> list[int]:
    sender = Sender(0)
    return [sender.due(now) for now in moments]


@pytest.mark.parametrize(
    ("report", "fault"),
    [
        pytest.param(Report(Counter({"200": 1000})), "", id="all was sent, and in time"),
        pytest.param(Report(Counter({"503": 1000})), "", id="what fails is not its fault"),
        pytest.param(Report(Counter({"200": 950}), omitted=50), "", id="a few were omitted"),
        pytest.param(
            Report(Counter({"200": 800}), omitted=200),
            "the client sent 800 of 1000 requests: the machine is too busy for more",
            id="many were omitted",
        ),
        pytest.param(STALLED, "the client did not run for 3.0 s", id="it did not run"),
    ],
)
def test_it_says_when_it_has_not_measured(report: Report, fault: str) -> None:
    assert report.own_fault == fault
