"""A request is handed to a thread when the thread will not have to wait for more of it, and held in a budget."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector

import pytest
from gunicorn.config import Config
from hypothesis import given
from hypothesis import strategies as st

from certs.cert_watcher import ServingPair
from dev.lab.waiting import stretch, until
from tests.server import leaf, trusting, write_pair
from webhook import connection
from webhook.admission import MAX_BODY
from webhook.connection import (
    MAX_HEAD,
    OWN_BYTES,
    Budget,
    Connection,
    Inbox,
    Limits,
    Refused,
    outside_strings,
)


@pytest.mark.parametrize(
    ("data", "whole"),
    [
        pytest.param(b"", False, id="nothing"),
        pytest.param(b"POST / HTTP/1.1\r\nHost: x\r\n", False, id="half a head"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", True, id="no body"),
        pytest.param(b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nab", False, id="half a body"),
        pytest.param(b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", True, id="a body"),
        pytest.param(b"POST / HTTP/1.1\r\ncontent-LENGTH:3\r\n\r\nabcPOST", True, id="a body and more"),
        pytest.param(b"POST /?x=content-length:9 HTTP/1.1\r\n\r\n", True, id="a length elsewhere"),
        pytest.param(b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n", True, id="nonsense is for the parser"),
        pytest.param(
            b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (MAX_BODY + 1),
            True,
            id="a body not to wait for",
        ),
        pytest.param(b"x" * (MAX_HEAD + 1), True, id="a head not to wait for"),
    ],
)
def test_whole_is_what_needs_no_waiting(data: bytes, whole: bool) -> None:
    assert Inbox(data).is_whole() is whole


@pytest.mark.parametrize(
    ("header", "status"),
    [
        pytest.param(b"Expect: 100-continue\r\nContent-Length: 3", b"417 Expectation Failed", id="expect"),
        pytest.param(b"transfer-encoding: chunked", b"411 Length Required", id="chunks"),
    ],
)
def test_what_would_have_a_thread_wait_for_its_client_is_refused(header: bytes, status: bytes) -> None:
    with pytest.raises(Refused) as refused:
        Inbox(b"POST / HTTP/1.1\r\n%s\r\n\r\n" % header).is_whole()
    assert refused.value.response().startswith(b"HTTP/1.1 %s\r\nConnection: close\r\n" % status)


def test_a_request_in_pieces_is_whole_with_its_last_byte() -> None:
    inbox, request = Inbox(), b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"
    found = []
    for byte in request:
        inbox.add(bytes([byte]))
        found.append(inbox.is_whole())
    assert found == [False] * (len(request) - 1) + [True]
    assert inbox.take() == request


def test_each_byte_is_looked_at_once() -> None:
    """A body that is 512 times as long, in as many more pieces, must not take 512 * 512 times as much."""

    class Counted(bytearray):
        searched = 0

        def find(self, wanted: bytes, begin: int = 0) -> int:  # type: ignore[override]
            Counted.searched += len(self) - begin
            return super().find(wanted, begin)

    inbox = Inbox()
    inbox._data = Counted()
    for _ in range(512):
        inbox.add(b" " * 1024)
        inbox.is_whole()
    assert Counted.searched < 2 * 512 * 1024


@pytest.mark.parametrize(
    ("size", "most"),
    [
        pytest.param(1, 64, id="bytes"),
        pytest.param(128, 128, id="short ones"),
        pytest.param(1024, 10_000, id="as Go does"),
    ],
)
def test_a_request_in_too_many_small_pieces_is_refused(size: int, most: int) -> None:
    def send() -> int:
        inbox = Inbox()
        for number in range(10_000):
            try:
                inbox.add(b"x" * size)
            except Refused:
                return number
        return 10_000

    assert send() == most


def test_the_cost_of_a_body_is_what_parsing_makes_of_it() -> None:
    assert Inbox(b"[]," * 1000).cost() > 64 * len(b"[]," * 1000)
    assert Inbox(b"x" * 3000).cost() < 10_000


TEXT = st.text('",[{\\/\n1')
VALUES = st.recursive(TEXT, lambda each: st.lists(each) | st.dictionaries(TEXT, each))


def brackets(value: object) -> int:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, (dict, list)) + sum(map(brackets, inside))


@pytest.mark.parametrize("size", [1, 2, 3, 64 * 1024])
@given(VALUES)
def test_what_is_in_strings_costs_nothing(size: int, value: object) -> None:
    """Brackets and escapes in any order, cut anywhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "CHUNK", size)
        found = b"".join(outside_strings(json.dumps(value).encode()))

    assert found.count(b"{") + found.count(b"[") == brackets(value)


def test_a_budget_is_never_overdrawn_and_what_is_given_back_can_be_taken_again() -> None:
    budget = Budget(10)
    budget.take(8)
    with pytest.raises(Refused, match="503"):
        budget.take(3)
    budget.take(-1)
    budget.take(3)


def test_what_a_refused_request_held_is_free_before_its_connection_ends(tmp_path: Path) -> None:
    write_pair(tmp_path, leaf())
    pair = ServingPair(tmp_path / "tls.crt", tmp_path / "tls.key")
    budget, ours, theirs = Budget(MAX_BODY), *socket.socketpair()
    conn = Connection(Config(), ours, ("client", "server"), pair, Limits(), budget)
    head = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % MAX_BODY
    with ThreadPoolExecutor(1) as client, closing(conn):
        client.submit(send, theirs, head + b" " * 10 * OWN_BYTES)
        until(lambda: _holds(conn, budget, 5 * OWN_BYTES))

        conn.refuse(Refused("503 Service Unavailable", "try again"))

        budget.take(MAX_BODY)
        budget.take(-MAX_BODY)


def test_a_refused_client_that_goes_on_sending_is_an_event_only_now_and_then_and_its_end_always(
    tmp_path: Path,
) -> None:
    write_pair(tmp_path, leaf())
    pair = ServingPair(tmp_path / "tls.crt", tmp_path / "tls.key")
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        theirs = socket.create_connection(listener.getsockname())
        ours, _ = listener.accept()
    conn = Connection(Config(), ours, ("client", "server"), pair, Limits(), Budget(MAX_BODY))
    with closing(conn), closing(theirs), DefaultSelector() as selector:
        selector.register(ours, EVENT_READ)
        theirs.sendall(bytes(10_000))
        assert selector.select(60 * stretch())

        conn.half_close()
        assert not selector.select(0)
        assert not conn.is_drained()

        theirs.shutdown(socket.SHUT_WR)
        assert selector.select(60 * stretch())
        assert conn.is_drained()


def _holds(conn: Connection, budget: Budget, size: int) -> bool:
    """Whether it has so many bytes of the budget, after one more turn."""
    conn.receive()
    try:
        budget.take(MAX_BODY - size)
    except Refused:
        return True
    budget.take(size - MAX_BODY)
    return False


def send(sock: socket.socket, data: bytes) -> None:
    with trusting().wrap_socket(sock, server_hostname="localhost") as tls:
        tls.sendall(data)
