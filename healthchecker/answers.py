"""Read what a server answers, of which not even the size is trusted."""

from __future__ import annotations

import http.client
from typing import NamedTuple

from runtime import time

CHUNK = 1 << 16
OK = http.HTTPStatus.OK


class Answer(NamedTuple):
    """*body* is read of one with status 200 alone."""

    status: int
    body: bytes


def get(host: str, port: int, path: str, seconds: float, longest: int) -> Answer:
    """It ends in about twice so many *seconds*, however slowly the answer comes.

    OSError or HTTPException; ValueError for an answer of more than *longest* bytes.
    """
    end = time.monotonic() + seconds
    connection = http.client.HTTPConnection(host, port, timeout=seconds)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return Answer(answer.status, _body(answer, end, longest) if answer.status == OK else b"")
    finally:
        connection.close()


def _body(answer: http.client.HTTPResponse, end: float, longest: int) -> bytes:
    body = b""
    while chunk := answer.read1(CHUNK):
        body += chunk
        if len(body) > longest:
            raise ValueError("its answer is too long")
        if time.monotonic() > end:
            raise TimeoutError("its answer took too long")
    return body
