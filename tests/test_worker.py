"""The worker, in a real gunicorn over TLS: no client makes another wait, and its end costs no request."""

import http.client
import itertools
import json
import os
import resource
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dev.lab.waiting import stretch, until
from tests.server import (
    Answer,
    Server,
    ask,
    is_closed,
    leaf,
    post,
    read_response,
    replace,
    review,
    serving,
)
from tests.sockets import reset, sent
from webhook.fair_queue import LONGEST
from webhook.inbox import OWN_COST
from webhook.worker import NEWCOMERS

THREADS = 4
WHOLE = post(review())
Nuisance = Callable[[Server], Iterator[socket.socket]]
SLACK = 1.0
"""Less than the three deadlines in a row that a call would wait behind three bad clients per thread."""


HELLO = b"\x16\x03\x01\x02\x00\x01"
"""The beginning of a TLS handshake."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def shared_server(directory: Path) -> Iterator[Server]:
    with serving(directory) as running:
        yield running


@pytest.fixture
def server(shared_server: Server) -> Iterator[Server]:
    yield shared_server
    shared_server.close_clients()


def seconds_of(act: Callable[[], object]) -> float:
    begin = time.monotonic()
    act()
    return time.monotonic() - begin


def repeated(connect: Callable[[Server], socket.socket], data: bytes) -> Nuisance:
    """Clients that send no more than *data*."""
    return lambda server: (sent(connect(server), data) for _ in itertools.count())


def test_a_request_that_trickles_in_is_dropped_though_never_silent(server: Server) -> None:
    sock = server.tls()

    def is_refused() -> bool:
        try:
            sock.sendall(b"POST"[:1])
        except OSError:
            return True
        return is_closed(sock, within=0.05)

    until(is_refused, 3)


@pytest.mark.parametrize("used", [True, False])
def test_a_connection_may_idle_longer_than_its_handshake_may_take(server: Server, used: bool) -> None:
    sock, silent = server.tls(), server.raw()
    if used:
        read_response(sent(sock, post(review())))
    assert is_closed(silent, within=5)
    assert not is_closed(sock, within=0.7)
    sock.settimeout(5)
    response = read_response(sent(sock, post(review())))
    assert (response.status, response.connection) == (200, "keep-alive")


@pytest.mark.parametrize(
    ("of", "most", "nuisance"),
    [
        pytest.param(
            "CONNECTIONS", 8, lambda server: iter(server.tls, None), id="idle after their handshake"
        ),
        pytest.param("CONNECTIONS", 8, lambda server: iter(server.raw, None), id="without a handshake"),
        pytest.param("CONNECTIONS", 8, repeated(Server.tls, WHOLE[:-5]), id="half-sent"),
        pytest.param(
            "CONNECTIONS", 8, lambda server: (server.call().sock for _ in itertools.count()), id="used"
        ),
        pytest.param("FILES", 48, lambda server: iter(server.raw, None), id="it may open no more files"),
    ],
)
def test_a_full_server_closes_the_connection_that_was_idle_for_longest(
    directory: Path, of: str, most: int, nuisance: Nuisance
) -> None:
    with serving(directory, LIMITS='{"first": 60, "request": 60}', **{of: str(most)}) as server:
        bad = list(itertools.islice(nuisance(server), most + 12))
        assert seconds_of(lambda: ask(server.call())) < SLACK
        assert is_closed(bad[0], within=1)
        assert not is_closed(bad[-1], within=0.1)


def test_a_full_server_closes_connections_of_the_client_that_has_many(directory: Path) -> None:
    with (
        serving(directory, CONNECTIONS="32", LIMITS='{"first": 60, "request": 60}') as server,
        socket.create_connection(("127.0.0.1", server.port), 10, ("127.0.0.2", 0)) as alone,
    ):
        many = [server.raw() for _ in range(40)]
        server.call()
        assert is_closed(many[0], within=1)
        assert not is_closed(alone, within=0.1)


def test_a_server_that_may_open_no_file_at_all_waits_without_spinning(directory: Path) -> None:
    with serving(directory) as server:
        server.close_clients()
        worker = int(server.wait_for_line(r"Booting worker with pid: (\d+)")[1])
        before = resource.prlimit(worker, resource.RLIMIT_NOFILE)
        resource.prlimit(worker, resource.RLIMIT_NOFILE, (3, before[1]))
        caller = server.raw()
        server.wait_for_line("connection not accepted")
        used = cpu_seconds(worker)
        assert not is_closed(caller, within=1)
        assert cpu_seconds(worker) - used < 0.2
        resource.prlimit(worker, resource.RLIMIT_NOFILE, before)
        assert seconds_of(lambda: ask(server.call())) < SLACK


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def test_a_connection_in_use_stays_when_a_full_server_makes_room(directory: Path) -> None:
    with serving(directory, CONNECTIONS="8", LIMITS='{"first": 60, "request": 60}') as server:
        kept = server.call()
        for _ in range(20):
            server.tls()
            ask(kept)
        assert kept.sock is not None


def test_a_response_arrives_in_one_piece(server: Server) -> None:
    """One read returns one TLS record at most."""
    sock = sent(server.tls(), post(review()))
    head, _, body = sock.recv(65536).partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b'"allowed":true' in body


LARGE = b" " * 700_000
"""Twice this is more than the test server's budget, even without the two connections' own shares."""


def test_large_bodies_share_a_budget_that_small_ones_do_not_need(directory: Path) -> None:
    # Those that are refused give theirs back at once, though they linger.
    with serving(directory, LIMITS='{"request": 60, "linger": 60}') as server:
        first = sent(server.tls(), post(LARGE + review())[:-5])
        server.call()
        refused = send_large(server)
        assert (refused.status, refused.headers["Retry-After"], refused.connection) == (503, "1", "close")
        server.call()
        assert b'"allowed":true' in read_response(sent(first, review()[-5:])).body
        until(lambda: send_large(server).status == 200)


def test_large_requests_are_served_one_after_the_other_and_small_ones_beside_them(directory: Path) -> None:
    with serving(directory) as server:
        begin = time.monotonic()
        large = [server.tls() for _ in range(2)]
        for sock in large:
            sock.sendall(post(LARGE[: OWN_COST + 1] + review(stuck=0.6)))
        server.call().close()
        assert time.monotonic() - begin < 0.6 * stretch()
        assert [read_response(sock).status for sock in large] == [200] * 2
        assert time.monotonic() - begin >= 1.2


def test_turns_that_are_stuck_stop_no_other_request_for_long(directory: Path) -> None:
    with serving(directory, IN_FLIGHT="9") as server:
        stuck = [sent(server.tls(), post(review(stuck=4 * LONGEST))) for _ in range(NEWCOMERS)]
        assert seconds_of(lambda: server.call().close()) < 2.5 * LONGEST
        assert [read_response(sock).status for sock in stuck] == [200] * NEWCOMERS


def send_large(server: Server) -> Answer:
    return read_response(sent(server.tls(), post(LARGE + review())))


def test_what_is_not_tls_is_dropped_and_reported(server: Server) -> None:
    assert is_closed(sent(server.raw(), b"GET / HTTP/1.1\r\n\r\n"), within=5)
    server.wait_for_line("TLS failed")
    server.call().close()


@pytest.mark.parametrize("kept", [False, True], ids=["new connection", "idle connection"])
def test_the_wait_for_a_thread_is_part_of_the_callers_timeout(directory: Path, kept: bool) -> None:
    with serving(directory, IN_FLIGHT="9", LIMITS='{"first": 60, "request": 60}') as server:
        waiting = server.call().sock if kept else None
        busy = [server.tls() for _ in range(THREADS)]
        for sock in busy:
            sock.sendall(post(review(nap=1.5)))
        until(lambda: not is_answered(server, within=0.2))
        begin = time.monotonic()
        waiting = waiting or server.tls()
        waiting.sendall(post(review(), "/naps?timeout=10s"))
        answer = read_response(waiting)
        waited = time.monotonic() - begin
        left = float(json.loads(answer.body)["response"]["auditAnnotations"]["left"])
        assert waited > 0.3
        assert left < 9.0 - waited + SLACK / 4
        assert [read_response(sock).status for sock in busy] == [200] * THREADS


def is_answered(server: Server, within: float) -> bool:
    sock = sent(server.tls(), post(review()))
    sock.settimeout(within)
    try:
        return bool(sock.recv(1))
    except TimeoutError:
        return False


@pytest.mark.parametrize(
    "probe",
    [
        pytest.param(Server.raw, id="connects"),
        pytest.param(lambda server: sent(server.raw(), HELLO), id="in its handshake"),
        pytest.param(Server.tls, id="after its handshake"),
        pytest.param(lambda server: sent(server.tls(), post(review())[:-5]), id="in its request"),
        pytest.param(lambda server: sent(server.tls(), post(review(nap=0.3))), id="in its response"),
    ],
)
@pytest.mark.parametrize("end", [reset, socket.socket.close], ids=["reset", "closed"])
def test_a_probe_that_breaks_off_is_not_reported(
    server: Server, probe: Callable[[Server], socket.socket], end: Callable[[socket.socket], None]
) -> None:
    seen = len(server.lines)
    for _ in range(THREADS):
        end(probe(server))
    time.sleep(0.4)  # the naps, of which nothing can be seen from here
    for _ in range(2 * THREADS):
        server.call().close()
    logged = [json.loads(line) for line in server.lines[seen:]]
    assert [line for line in logged if line["level"] not in ("debug", "info") or "exception" in line] == []


def test_an_old_connection_is_closed_after_its_next_response(directory: Path) -> None:
    with serving(directory, LIMITS='{"life": 0.3}') as server:
        connection = server.call()
        until(lambda: ask(connection).connection == "close", 3)
        assert connection.sock is None


def test_a_new_certificate_is_served_and_a_torn_pair_is_not(server: Server, directory: Path) -> None:
    first, second = server.certificate(), leaf("localhost", "second")
    kept = server.call()
    replace(directory / "tls.crt", second.certificate)
    assert server.certificate() == first
    server.wait_for_line("last good one stays")
    replace(directory / "tls.key", second.key)
    assert server.certificate() == ssl.PEM_cert_to_DER_cert(second.certificate.decode())
    ask(kept)


def call_until(stop: threading.Event, connection: http.client.HTTPSConnection, lost: list[Exception]) -> None:
    """Call again and again, connecting again when the server asks for it."""
    try:
        while not stop.is_set():
            ask(connection)
    except (OSError, http.client.HTTPException, AssertionError) as error:
        lost.append(error)


def test_a_drain_loses_no_request_and_asks_every_client_to_go(directory: Path) -> None:
    # More than the slow one, the two callers and one more: none of them is to be shed.
    with serving(directory, DRAIN="3", IN_FLIGHT="9") as server:
        slow, kept, stop = server.tls(), server.call(), threading.Event()
        lost: list[Exception] = []
        callers = [threading.Thread(target=call_until, args=(stop, server.call(), lost)) for _ in range(2)]
        slow.sendall(post(review(nap=2.5)))
        for caller in callers:
            caller.start()
        server.process.send_signal(signal.SIGTERM)
        server.wait_for_line("Handling signal: term")
        until(lambda: ask(server.call()).connection == "close", 2.5)
        assert ask(kept).connection == "close"
        stop.set()
        response = read_response(slow)
        assert (response.status, response.connection) == (200, "close")
        for caller in callers:
            caller.join()
        assert lost == []
        assert server.process.wait(10) == 0
