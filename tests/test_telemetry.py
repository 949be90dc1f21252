"""Logs, health and metrics as the cluster around the programs reads them."""

import io
import json
import logging
import os
import platform
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime
from ipaddress import IPv4Address
from typing import Any

import pytest
import structlog
from structlog.testing import CapturingLogger

from telemetry import logs
from telemetry.http import listen_address, serve_health, serve_metrics
from telemetry.logs import INTERVAL, SparingLogger
from tests.fakes import FakeClock
from tests.server import ROOT, get
from tests.test_controllers_main import logging_restored


@pytest.fixture
def lines() -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """The log lines so far."""
    stream = io.StringIO()
    with logging_restored():
        logs.configure("info", stream)
        yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_log_line_is_json_with_time_level_logger_event_and_values(lines: Callable) -> None:
    structlog.stdlib.get_logger("webhook.app").info("request denied", key="ns/pod", uid="u1")
    (line,) = lines()
    assert datetime.fromisoformat(line.pop("timestamp")).utcoffset() is not None
    assert line == {
        "level": "info", "logger": "webhook.app", "event": "request denied", "key": "ns/pod", "uid": "u1"
    }  # fmt: skip


def test_lines_of_other_libraries_look_the_same(lines: Callable) -> None:
    logging.getLogger("urllib3").warning("retry %d", 3, extra={"host": "a"})
    (line,) = lines()
    assert {"level": "warning", "logger": "urllib3", "event": "retry 3", "host": "a"}.items() <= line.items()


def test_an_exception_is_one_line_with_its_traceback(lines: Callable) -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        structlog.stdlib.get_logger("a").exception("failed")
        logging.getLogger("b").exception("failed")
    assert [line["exception"].splitlines()[-1] for line in lines()] == ["ValueError: broken"] * 2


def test_what_json_cannot_say_is_still_logged(lines: Callable) -> None:
    structlog.stdlib.get_logger("a").info("strange", value={1, 2}, error=ValueError("x"))
    assert lines()[0]["error"] == "ValueError('x')"


def test_the_level_can_change_while_running(lines: Callable) -> None:
    log = structlog.stdlib.get_logger("a")
    log.debug("unheard")
    logs.set_level("debug")
    log.debug("heard")
    logs.set_level("error")
    log.warning("unheard")
    assert [line["event"] for line in lines()] == ["heard"]


def test_configuring_twice_does_not_double_the_lines(lines: Callable) -> None:
    stream = io.StringIO()
    logs.configure("info", stream)
    structlog.stdlib.get_logger("a").info("once")
    assert len(stream.getvalue().splitlines()) == 1
    assert lines() == []


def test_warnings_of_python_are_logged(lines: Callable) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(False)
        logging.captureWarnings(True)
        warnings.warn("old ways", DeprecationWarning, stacklevel=1)
    assert "old ways" in lines()[0]["event"]


def test_one_warning_of_each_event_in_an_interval_counts_those_between() -> None:
    """A client that causes warnings without end fills no log, and none of them is lost without a trace."""
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


def broken() -> str | None:
    raise RuntimeError("no idea")


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        pytest.param("/healthz", (200, "ok\n"), id="alive"),
        pytest.param("/healthz?verbose", (200, "ok\n"), id="with a query"),
        pytest.param("/readyz", (503, "certificate not loaded\n"), id="not ready, and why"),
        pytest.param("/other", (404, "not found; here are /healthz, /readyz\n"), id="unknown path"),
    ],
)
def test_health_says_ok_or_what_is_wrong(path: str, answer: tuple[int, str]) -> None:
    server = serve_health("127.0.0.1:0", live=lambda: None, ready=lambda: "certificate not loaded")
    with closing(server):
        assert get(server.server_address[1], path) == answer


OF_IMAGE = {"DRAWBRIDGE_VERSION": "0.2.0", "DRAWBRIDGE_REVISION": "a1b2c3"}
SAYS_ITS_VERSION = """
from prometheus_client import generate_latest
from kube import transport
from telemetry import http

print(generate_latest().decode(), "user agent", transport.VERSION)
"""


@pytest.mark.parametrize(
    ("given", "version", "revision"),
    [({}, "0.1.0", "unknown"), (OF_IMAGE, "0.2.0", "a1b2c3")],
    ids=["from a checkout", "in an image"],
)
def test_a_program_says_its_version_to_prometheus_and_to_the_api_server(
    given: dict[str, str], version: str, revision: str
) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DRAWBRIDGE_")}

    said = subprocess.check_output(
        [sys.executable, "-c", SAYS_ITS_VERSION], env=kept | given, cwd=ROOT, text=True
    )

    labels = f'python="{platform.python_version()}",revision="{revision}",version="{version}"'
    assert f"drawbridge_build_info{{{labels}}} 1.0" in said
    assert f"user agent {version}" in said


def test_a_check_that_fails_is_not_healthy() -> None:
    with closing(serve_health("127.0.0.1:0", live=broken, ready=broken)) as server:
        status, text = get(server.server_address[1], "/healthz")
    assert (status, "no idea" in text) == (503, True)


PORT = 19_999
"""Below those that the kernel hands out, also to servers on all interfaces."""


def test_closing_frees_the_port_though_a_child_has_a_copy_of_the_socket() -> None:
    # Where no other process takes the port in between.
    address = f"{IPv4Address('127.65.0.0') + os.getpid()}:{PORT}"
    server = serve_metrics(address)
    if not (child := os.fork()):
        signal.pause()
    try:
        server.close()
        serve_metrics(address).close()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_without_any_host_all_interfaces_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAWBRIDGE_BIND_HOST", "")
    with closing(serve_health(":0", live=lambda: None, ready=lambda: None)) as server:
        assert get(server.server_address[1], "/readyz") == (200, "ok\n")


def test_a_missing_host_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAWBRIDGE_BIND_HOST", "127.0.3.4")
    assert listen_address(":8081") == ("127.0.3.4", 8081)
    assert listen_address("127.0.0.1:8081") == ("127.0.0.1", 8081)
    assert listen_address("[::1]:80") == ("::1", 80)
