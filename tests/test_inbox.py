"""A request is whole when no one has to wait for more of it, is read to the letter, and is held in a budget."""

import json
import socket
from contextlib import closing
from selectors import EVENT_READ, DefaultSelector

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dev.lab.waiting import stretch
from webhook import inbox
from webhook.admission import MAX_BODY
from webhook.connection import half_close, is_drained
from webhook.inbox import MAX_FIELDS, MAX_HEAD, MAX_LINE, Budget, Inbox, Refused, outside_strings


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
        pytest.param(
            b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (MAX_BODY + 1),
            True,
            id="a body not to wait for",
        ),
    ],
)
def test_whole_is_what_needs_no_waiting(data: bytes, whole: bool) -> None:
    assert Inbox(data).is_whole() is whole


FIRST = b"POST / HTTP/1.1\r\n"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        pytest.param(FIRST + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\n", 417, id="expect"),
        pytest.param(FIRST + b"transfer-encoding: chunked\r\n\r\n", 411, id="chunks"),
        pytest.param(FIRST + b"Content-Length: x\r\n\r\n", 400, id="a length that is none"),
        pytest.param(FIRST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400, id="two lengths"),
        pytest.param(FIRST + b"Content-Length: +1\r\n\r\n", 400, id="a length with a sign"),
        pytest.param(FIRST + b"Content-Length: -1\r\n\r\n", 400, id="a length below zero"),
        pytest.param(FIRST + b"Content-Length: %s\r\n\r\n" % (b"9" * 100), 400, id="a very long length"),
        pytest.param(FIRST + b"A : b\r\n\r\n", 400, id="a blank in a name"),
        pytest.param(FIRST + b": b\r\n\r\n", 400, id="a header without a name"),
        pytest.param(b"POST  /  HTTP/1.1\r\n\r\n", 400, id="blanks"),
        pytest.param(b"GET\r\n\r\n", 400, id="half a line"),
        pytest.param(FIRST + b"A: b\r\n c\r\n\r\n", 400, id="a folded header"),
        pytest.param(FIRST + b"A: b\nContent-Length: 3\r\n\r\n", 400, id="half a line end"),
        pytest.param(FIRST + b"A: \0\r\n\r\n", 400, id="a zero"),
        pytest.param(b"POST / HTTP/2.0\r\n\r\n", 400, id="another version"),
        pytest.param(b"\r\n\r\n", 400, id="nothing at all"),
        pytest.param(FIRST + b"A: b\r\n" * (MAX_FIELDS + 1) + b"\r\n", 431, id="many headers"),
        pytest.param(FIRST + b"A: " + b"x" * MAX_HEAD, 431, id="a head without end"),
        pytest.param(b"POST /" + b"x" * MAX_LINE, 414, id="a line without end"),
        pytest.param(b"POST /%s HTTP/1.1\r\n\r\n" % (b"x" * MAX_LINE), 414, id="a long line"),
    ],
)
def test_what_is_no_request_to_the_letter_is_refused(data: bytes, status: int) -> None:
    with pytest.raises(Refused) as refused:
        Inbox(data).is_whole()
    assert refused.value.response().startswith(b"HTTP/1.1 %d " % status)
    assert b"\r\nConnection: close\r\n" in refused.value.response()


def test_an_application_gets_the_request_and_no_header_that_it_does_not_need() -> None:
    head = b"POST /a%20b?timeout=5s HTTP/1.1\r\nContent-Type: a/b\r\nContent_Length: 9\r\nScript-Name: x\r\n"
    whole = Inbox(head + b"Content-Length: 3\r\n\r\nabcPOST")
    assert whole.is_whole()
    environ = whole.environ("10.0.0.1")
    assert environ["wsgi.input"].read() == b"abc"
    asked = ("REQUEST_METHOD", "SCRIPT_NAME", "PATH_INFO", "QUERY_STRING", "CONTENT_TYPE", "CONTENT_LENGTH")
    assert [environ[name] for name in asked] == ["POST", "", "/a b", "timeout=5s", "a/b", "3"]
    assert not [name for name in environ if name.startswith("HTTP_")]
    assert len(whole.rest()) == len(b"POST")


@pytest.mark.parametrize(
    ("version", "header", "keeps"),
    [
        pytest.param("1.1", "A: b", True, id="as usual"),
        pytest.param("1.1", "Connection: Close", False, id="at the client's wish"),
        pytest.param("1.0", "A: b", False, id="an old client"),
    ],
)
def test_a_connection_is_kept_unless_its_client_is_done(version: str, header: str, keeps: bool) -> None:
    whole = Inbox(f"GET / HTTP/{version}\r\n{header}\r\n\r\n".encode())
    assert whole.is_whole()
    assert whole.head.keeps is keeps


def test_a_request_in_pieces_is_whole_with_its_last_byte() -> None:
    inbox, request = Inbox(), b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"
    found = []
    for byte in request:
        inbox.add(bytes([byte]))
        found.append(inbox.is_whole())
    assert found == [False] * (len(request) - 1) + [True]
    assert inbox.environ("")["wsgi.input"].read() == b"abc"


def test_each_byte_is_looked_at_once() -> None:
    """A body that is 512 times as long, in as many more pieces, must not take 512 * 512 times as much."""

    class Counted(bytearray):
        searched = 0

        def find(self, wanted: bytes, begin: int, end: int) -> int:  # type: ignore[override]
            Counted.searched += min(len(self), end) - begin
            return super().find(wanted, begin, end)

    inbox = Inbox(b"POST / HTTP/1.1\r\nContent-Length: 999999\r\nX: ")
    inbox._data = Counted(inbox._data)
    for piece in (*[b"x" * 512] * 16, b"\r\n\r\n", *[b" " * 1024] * 512):
        inbox.add(piece)
        inbox.is_whole()
    assert Counted.searched < 2 * MAX_HEAD


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
        patch.setattr(inbox, "CHUNK", size)
        found = b"".join(outside_strings(json.dumps(value).encode()))

    assert found.count(b"{") + found.count(b"[") == brackets(value)


def test_a_budget_is_never_overdrawn_and_what_is_given_back_can_be_taken_again() -> None:
    budget = Budget(10)
    budget.take(8)
    with pytest.raises(Refused, match="503"):
        budget.take(3)
    budget.take(-1)
    budget.take(3)


def test_a_refused_client_that_goes_on_sending_is_an_event_only_now_and_then_and_its_end_always() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        theirs = socket.create_connection(listener.getsockname())
        ours, _ = listener.accept()
    ours.setblocking(False)
    with closing(ours), closing(theirs), DefaultSelector() as selector:
        selector.register(ours, EVENT_READ)
        theirs.sendall(bytes(10_000))
        assert selector.select(60 * stretch())

        half_close(ours)
        assert not selector.select(0)
        assert not is_drained(ours)

        theirs.shutdown(socket.SHUT_WR)
        assert selector.select(60 * stretch())
        assert is_drained(ours)
