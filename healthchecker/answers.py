"""Read what a server answers, of which neither the size nor the pace is trusted."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from runtime import threading

OK = http.HTTPStatus.OK


class Answer(NamedTuple):
    status: int
    body: bytes


def get(host: str, port: int, path: str, seconds: float, longest: int) -> Answer:
    """As `answer_of`; the body is empty with another status than 200."""
    connection = http.client.HTTPConnection(host, port, timeout=seconds)
    return answer_of(connection, "GET", path, longest=longest)


def answer_of(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: str | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    longest: int,
) -> Answer:
    """Of one request; it ends within the timeout of the *connection*, which begins again with every byte otherwise.

    OSError or HTTPException; ValueError for an answer of more than *longest* bytes. The body of an
    error is read only after a request with one.
    """
    seconds = connection.timeout or 0.0
    late, opened = threading.Event(), list[socket.socket]()
    timer = threading.Timer(seconds, _hang_up, (connection, opened, late))
    timer.daemon = True
    timer.start()
    try:
        connection.connect()
        # The connection forgets it before the answer is read whole.
        opened.append(connection.sock)
        if late.is_set():
            # To try several addresses took all the time, and nothing hangs up any more.
            raise TimeoutError
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        found = answer.read(longest + 1) if body or answer.status == OK else b""
    except (OSError, http.client.HTTPException):
        if not late.is_set():
            raise
    finally:
        timer.cancel()
        connection.close()
    if late.is_set():
        raise TimeoutError(f"it has not answered within {seconds:g} s")
    if len(found) > longest:
        raise ValueError(f"its answer is longer than {longest} bytes")
    return Answer(answer.status, found)


def _hang_up(
    connection: http.client.HTTPConnection, opened: Sequence[socket.socket], late: threading.Event
) -> None:
    late.set()
    for each in (*opened, connection.sock):
        if each is not None:
            with suppress(OSError):
                # Below TLS, whose own shutdown is not for another thread than the one that reads.
                socket.socket.shutdown(each, socket.SHUT_RDWR)
