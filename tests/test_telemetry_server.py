"""The server for probes and scrapers: hostile clients cost it no thread, and no good client its answer."""

from __future__ import annotations

import gzip
import http.client
import resource
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager

import pytest
from prometheus_client import REGISTRY
from prometheus_client.core import CounterMetricFamily
from structlog.testing import capture_logs

from dev.lab.waiting import until
from telemetry.http import serve_health, serve_metrics
from telemetry.server import MAX_CONNECTIONS, THREADS, Request, Response, Server, text
from tests.server import get
from tests.sockets import reset

SLOW_CLIENTS = 600
LONG = 60.0
"""Seconds; what is awaited takes far less."""
REQUEST = b"GET /%s HTTP/1.1\r\nHost: a\r\n\r\n"


def ok(_request: Request) -> Response:
    return text(200, "ok")


@contextmanager
def serving(respond=ok, deadline: float = LONG) -> Iterator[Server]:  # type: ignore[no-untyped-def]
    with closing(Server(("127.0.0.1", 0), respond, deadline)) as server:
        yield server


def connected(server: Server, sent: bytes = b"") -> socket.socket:
    sock = socket.create_connection(server.server_address, timeout=LONG)
    sock.sendall(sent)
    return sock


def received(sock: socket.socket) -> bytes:
    """All until the server closes the connection."""
    data = b""
    try:
        while chunk := sock.recv(65536):
            data += chunk
    except ConnectionResetError:
        pass
    return data


@pytest.fixture
def many_files() -> Iterator[None]:
    """Both ends of all connections are in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(4096, hard)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    "sent", [pytest.param(b"", id="silent"), pytest.param(REQUEST[:-2], id="in the middle of a head")]
)
def test_a_good_probe_is_answered_while_slow_clients_hang(many_files: None, sent: bytes) -> None:
    before = threading.active_count()
    with serving() as server, ExitStack() as stack:
        slow = [stack.enter_context(connected(server, sent)) for _ in range(SLOW_CLIENTS)]

        assert get(server.server_address[1], "/healthz") == (200, "ok\n")
        assert received(slow[0]) == b""  # the oldest make room
        assert threading.active_count() - before <= THREADS + 1
        assert server._open <= MAX_CONNECTIONS


def test_a_probe_that_is_being_answered_makes_no_room_for_silent_clients() -> None:
    asked, go_on = threading.Event(), threading.Event()

    def waiting(_request: Request) -> Response:
        asked.set()
        go_on.wait(LONG)
        return text(200, "ok")

    with serving(waiting) as server, connected(server, REQUEST % b"readyz") as probe, ExitStack() as stack:
        assert asked.wait(LONG)
        silent = [stack.enter_context(connected(server)) for _ in range(MAX_CONNECTIONS + 1)]
        assert received(silent[0]) == b""
        go_on.set()
        assert received(probe).endswith(b"ok\n")


def trickle(sock: socket.socket) -> None:
    """Send a byte now and then, so that the client is never silent, until the server has closed the connection."""
    sock.settimeout(0.02)
    for _ in range(1000):
        try:
            sock.sendall(b"G")
            if not sock.recv(1):
                return
        except TimeoutError:
            continue
        except OSError:
            return
    raise AssertionError("the server reads on")


def test_a_client_that_is_never_silent_is_cut_off_too() -> None:
    with serving(deadline=0.5) as server, connected(server) as sock:
        trickle(sock)


def test_a_client_that_does_not_read_its_response_is_cut_off() -> None:
    def large(_request: Request) -> Response:
        return Response(200, b"x" * 64 * 1024 * 1024)

    with serving(large, deadline=0.5) as server, connected(server, REQUEST % b"metrics") as sock:
        sock.recv(1)
        until(lambda: not server._open)


def test_closing_waits_for_no_client_and_no_check() -> None:
    go_on, ended = threading.Event(), threading.Event()

    def waiting(_request: Request) -> Response:
        go_on.wait(LONG)
        ended.set()
        return text(200, "late")

    server = Server(("127.0.0.1", 0), waiting, LONG)
    with connected(server, REQUEST % b"a") as asking, connected(server) as silent:
        until(lambda: server._open == 2)
        server.close()
        assert not ended.is_set()
        assert [received(sock) for sock in (asking, silent)] == [b"", b""]
        go_on.set()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        pytest.param(b"GET /healthz HTTP/1.0\r\n\r\n", 200, id="of an old client"),
        pytest.param(b"POST /healthz HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}", 405, id="a POST"),
        pytest.param(b"PUT /other HTTP/1.1\r\n\r\n", 405, id="a PUT"),
        pytest.param(b"\x16\x03\x01\r\n\r\n", 400, id="TLS"),
        pytest.param(b"GET /healthz SPDY/3\r\n\r\n", 400, id="another protocol"),
        pytest.param(REQUEST % (b"a" * 20_000), 400, id="a head that is too long"),
    ],
)
def test_each_request_has_its_status(sent: bytes, status: int) -> None:
    with (
        closing(serve_health("127.0.0.1:0", live=lambda: None, ready=lambda: None)) as server,
        connected(server, sent) as sock,
        http.client.HTTPResponse(sock) as response,
    ):
        response.begin()
        assert response.status == status


def test_a_head_request_gets_the_length_alone() -> None:
    with serving() as server, connected(server, b"HEAD / HTTP/1.1\r\n\r\n") as sock:
        head, _, body = received(sock).partition(b"\r\n\r\n")

    assert (b"Content-Length: 3" in head, body) == (True, b"")


def scraped(server: Server, path: str, **headers: str) -> tuple[http.client.HTTPMessage, bytes]:
    with closing(http.client.HTTPConnection(*server.server_address, timeout=LONG)) as connection:
        connection.request(
            "GET", path, headers={name.replace("_", "-"): each for name, each in headers.items()}
        )
        response = connection.getresponse()
        assert response.status == 200
        return response.headers, response.read()


def test_metrics_come_in_the_format_and_encoding_that_the_scraper_asks_for() -> None:
    with closing(serve_metrics("127.0.0.1:0")) as server:
        headers, body = scraped(server, "/metrics", Accept_Encoding="gzip")
        assert headers["Content-Encoding"] == "gzip"
        assert b"drawbridge_build_info{" in gzip.decompress(body)

        headers, body = scraped(server, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
        assert headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
        assert body.endswith(b"# EOF\n")

        _, body = scraped(server, "/metrics?name[]=python_info")
        assert (b"drawbridge_build_info{" in body, b"python_info{" in body) == (False, True)


@pytest.mark.parametrize("accept", ["text/plain; version=x", "application/openmetrics-text; version=1.x"])
def test_a_format_of_a_version_that_is_no_number_is_the_usual_one(accept: str) -> None:
    with closing(serve_metrics("127.0.0.1:0")) as server:
        headers, body = scraped(server, "/metrics", Accept=accept)

    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert b"drawbridge_build_info{" in body


class Slow:
    """What a server asks for its answer, which waits until it may go on."""

    def __init__(self) -> None:
        self.asked, self.go_on = threading.Event(), threading.Event()

    def check(self) -> str | None:
        self.asked.set()
        assert self.go_on.wait(20)
        return None

    def describe(self) -> Sequence[CounterMetricFamily]:
        """Else the registry collects it at once."""
        return ()

    def collect(self) -> Iterator[CounterMetricFamily]:
        self.check()
        yield CounterMetricFamily("things", "x" * 1_000_000, value=1)


@pytest.fixture(params=["health", "metrics"])
def slow_server(request: pytest.FixtureRequest) -> Iterator[tuple[Server, Slow, bytes]]:
    slow = Slow()
    if request.param == "health":
        with closing(serve_health("127.0.0.1:0", live=lambda: None, ready=slow.check)) as server:
            yield server, slow, REQUEST % b"readyz"
        return
    REGISTRY.register(slow)
    with closing(serve_metrics("127.0.0.1:0")) as server:
        yield server, slow, REQUEST % b"metrics"
    REGISTRY.unregister(slow)


@pytest.mark.parametrize("length", [0, 8, -3, None])
def test_a_probe_that_is_reset_leaves_no_traceback(
    slow_server: tuple[Server, Slow, bytes], length: int | None
) -> None:
    server, slow, request = slow_server
    with capture_logs() as lines:
        sock = connected(server, request[:length])
        if length is None:
            assert slow.asked.wait(20)
        reset(sock)
        slow.go_on.set()
        with connected(server, request) as after:
            assert b" 200 " in received(after)
        until(lambda: not server._open)

    assert [line for line in lines if line["log_level"] != "debug"] == []


def test_a_request_that_breaks_for_another_reason_is_reported_and_gets_no_answer() -> None:
    def broken(_request: Request) -> Response:
        raise ValueError("broken")

    with capture_logs() as lines, serving(broken) as server, connected(server, REQUEST % b"a") as sock:
        assert received(sock) == b""

    assert [(line["event"], line["exc_info"]) for line in lines] == [("serving a request failed", True)]
