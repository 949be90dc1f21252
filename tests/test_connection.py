"""A request is handed to a thread when the thread will not have to wait for more of it, and held in a budget."""

import pytest

from webhook.admission import MAX_BODY
from webhook.connection import MAX_HEAD, Budget, Refused, is_whole


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
    assert is_whole(bytearray(data)) is whole


@pytest.mark.parametrize(
    ("header", "status"),
    [
        pytest.param(b"Expect: 100-continue\r\nContent-Length: 3", b"417 Expectation Failed", id="expect"),
        pytest.param(b"transfer-encoding: chunked", b"411 Length Required", id="chunks"),
    ],
)
def test_what_would_have_a_thread_wait_for_its_client_is_refused(header: bytes, status: bytes) -> None:
    with pytest.raises(Refused) as refused:
        is_whole(bytearray(b"POST / HTTP/1.1\r\n%s\r\n\r\n" % header))
    assert refused.value.response().startswith(b"HTTP/1.1 %s\r\nConnection: close\r\n" % status)


def test_a_budget_is_never_overdrawn_and_what_is_given_back_can_be_taken_again() -> None:
    budget = Budget(10)
    budget.take(8)
    with pytest.raises(Refused, match="503"):
        budget.take(3)
    budget.take(-1)
    budget.take(3)
