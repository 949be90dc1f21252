"""A request is handed to a thread when the thread will not have to wait for more of it."""

import pytest

from webhook.admission import MAX_BODY
from webhook.connection import MAX_HEAD, is_whole


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
            b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n", True, id="expect"
        ),
        pytest.param(
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", False, id="chunks"
        ),
        pytest.param(
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            True,
            id="last chunk",
        ),
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
