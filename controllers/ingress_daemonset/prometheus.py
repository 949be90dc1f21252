"""Ask a Prometheus for one value: with bounds on time and size, and without following it anywhere."""

from __future__ import annotations

import http.client
import math
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import msgspec

from kube.types import complete
from runtime import threading
from settings.ingress_daemonset import Prometheus

PATH = "/api/v1/query"
TIMEOUT = 5.0
"""Seconds for one answer, however slowly it is sent."""
LONGEST = 1 << 16
"""Bytes of an answer."""
LONGEST_ERROR = 200
"""Characters of what it says of an error, which a status repeats."""


class Inconclusive(ValueError):
    """The answer has no single value; the message says why."""


class Series(msgspec.Struct):
    value: tuple[float, str] | None = None


class Result(msgspec.Struct, rename="camel"):
    result_type: str = ""
    result: msgspec.Raw = msgspec.Raw(b"null")


class Answer(msgspec.Struct):
    status: str = ""
    data: Result = msgspec.field(default_factory=Result)
    error: str = ""


complete(Series, Result, Answer)


def ask(prometheus: Prometheus, query: str) -> float:
    """The one value that *query* has now, which is finite. OSError, HTTPException, ValueError."""
    if not prometheus.url:
        raise Inconclusive("no Prometheus is configured: set ingressDaemonSet.prometheus.url")
    url = urlsplit(prometheus.url)
    headers = {"Content-Type": "application/x-www-form-urlencoded", **_authorization(prometheus)}
    body = urlencode({"query": query, "timeout": f"{TIMEOUT:g}s"})
    connection = _connection(prometheus)
    with _bounded(connection):
        connection.request("POST", url.path.rstrip("/") + PATH, body, headers)
        answer = connection.getresponse()
        found = answer.read(LONGEST + 1)
    if len(found) > LONGEST:
        raise Inconclusive(f"its answer is longer than {LONGEST} bytes: the query must have one value")
    return value_of(answer.status, found)


def value_of(status: int, body: bytes) -> float:
    """Of an answer. Inconclusive for one that has no value, several, or none that can be compared."""
    answer = _decoded(status, body)
    if status != http.HTTPStatus.OK or answer.status != "success":
        raise Inconclusive(f"it answers {status}: {_line(answer.error)}")
    text = _text(answer.data)
    try:
        value = float(text)
    except ValueError:
        raise Inconclusive(f"its value is no number: {_line(text)}") from None
    if not math.isfinite(value):
        raise Inconclusive(f"the query has the value {text}, which is no finite number")
    return value


def _decoded(status: int, body: bytes) -> Answer:
    try:
        return msgspec.json.decode(body, type=Answer)
    except (msgspec.MsgspecError, RecursionError):
        raise Inconclusive(f"it answers {status}, and not as Prometheus does") from None


def _text(data: Result) -> str:
    try:
        if data.result_type == "scalar":
            return msgspec.json.decode(data.result, type=tuple[float, str])[1]
        if data.result_type != "vector":
            raise Inconclusive(f"the query has a {_line(data.result_type)}: write one that has one value")
        found = msgspec.json.decode(data.result, type=list[Series])
    except (msgspec.MsgspecError, RecursionError):
        raise Inconclusive("its answer has no readable value") from None
    if len(found) != 1:
        way_out = "write one with a single value, as by sum()" if found else "no series matches it"
        raise Inconclusive(f"the query has {len(found)} series: {way_out}")
    if found[0].value is None:
        raise Inconclusive("the query has a histogram: write one that has one value")
    return found[0].value[1]


def _line(text: str) -> str:
    """What fits into a sentence of a status."""
    return "".join(each if each.isprintable() else " " for each in text[:LONGEST_ERROR]) or "without a reason"


def _authorization(prometheus: Prometheus) -> dict[str, str]:
    """Read each time: tokens of ServiceAccounts are replaced."""
    if not prometheus.token_file:
        return {}
    return {"Authorization": f"Bearer {Path(prometheus.token_file).read_text().strip()}"}


def _connection(prometheus: Prometheus) -> http.client.HTTPConnection:
    url = urlsplit(prometheus.url)
    if url.scheme == "http":
        return http.client.HTTPConnection(url.hostname or "", url.port, timeout=TIMEOUT)
    trusted = ssl.create_default_context(cafile=prometheus.ca_file or None)
    return http.client.HTTPSConnection(url.hostname or "", url.port, timeout=TIMEOUT, context=trusted)


@contextmanager
def _bounded(connection: http.client.HTTPConnection) -> Iterator[None]:
    """Connected; hung up when the whole takes too long: the timeout of a socket begins again with every byte."""
    late, opened = threading.Event(), list[socket.socket]()
    timer = threading.Timer(TIMEOUT, partial(_hang_up, connection, opened, late))
    timer.daemon = True
    timer.start()
    try:
        connection.connect()
        # The connection forgets it before the answer is read whole.
        opened.append(connection.sock)
        yield
    except (OSError, http.client.HTTPException):
        if not late.is_set():
            raise
    finally:
        timer.cancel()
        connection.close()
    if late.is_set():
        raise TimeoutError(f"it has not answered within {TIMEOUT:g} s")


def _hang_up(
    connection: http.client.HTTPConnection, opened: Sequence[socket.socket], late: threading.Event
) -> None:
    late.set()
    for each in (*opened, connection.sock):
        if each is not None:
            with suppress(OSError):
                # Below TLS, whose own shutdown is not for another thread than the one that reads.
                socket.socket.shutdown(each, socket.SHUT_RDWR)
