"""Read health checkers and Prometheus on other threads: a reconcile waits for neither a node nor a query.

A Prometheus is asked for one value, with bounds on time and size, and without following it anywhere.
"""

from __future__ import annotations

import http.client
import math
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

import msgspec
from prometheus_client import Counter

from api.health_checks import STATE_PATH, State
from api.ingress_daemonset.types import OFF
from controllers.clock import Clock
from controllers.executor import Submit
from controllers.ingress_daemonset.canary import Measurement, Query
from controllers.ingress_daemonset.detachment import Reading, Readings
from controllers.ingress_daemonset.nodes import NodeRollout
from healthchecker.answers import get
from kube.types import complete
from runtime import threading, time
from settings.ingress_daemonset import Prometheus

PERIOD = 1.0
"""Seconds between two readings of a checker."""
SOON = 0.1
"""Seconds until the first reading is looked for."""
OLD = 30.0
"""Seconds after which a reading no longer counts."""
TIMEOUT = 2.0
LONGEST = 1 << 16
"""Bytes of an answer."""

READS = Counter("drawbridge_ingress_daemonset_checker_reads", "Readings of health checkers.", ["result"])
for _result in ("ok", "error"):
    READS.labels(_result)


class Checker(NamedTuple):
    """Where the health checker of a node is reached."""

    node: str
    address: str
    port: int


def checkers_of(rollouts: Iterable[NodeRollout], canary: Sequence[str] = ()) -> set[Checker]:
    """Those whose confirmation a node waits for, and those of the nodes of the *canary*."""
    return {
        Checker(each.node.name, each.node.address, port)
        for each in rollouts
        if (each.is_detaching and each.rolling.connections is not None)
        or ((each.is_detaching or each.node.name in canary) and each.rolling.confirm != OFF)
        for port in each.resource.spec.health_check_node_ports
    }


def read(checker: Checker) -> Reading:
    """Raises nothing."""
    try:
        if not checker.address:
            raise ValueError("its Node has no InternalIP")
        return Reading(checker.address, checker.port, _state(checker))
    except (OSError, http.client.HTTPException, ValueError) as error:
        return Reading(checker.address, checker.port, error=str(error) or type(error).__name__)


def _state(checker: Checker) -> State:
    """OSError, HTTPException, or ValueError for an unreadable answer."""
    answer = get(checker.address, checker.port, STATE_PATH, TIMEOUT, LONGEST)
    if answer.status != http.HTTPStatus.OK:
        raise ValueError(f"it answers {answer.status} at {STATE_PATH}, as one of an older image does")
    return msgspec.json.decode(answer.body, type=State)


class HealthCheckReader:
    """Safe to use from any thread; *submit* hands work to another one."""

    def __init__(
        self,
        submit: Submit,
        stop: threading.Event,
        read: Callable[[Checker], Reading] = read,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._submit, self._stop, self._read, self._clock = submit, stop, read, clock
        self._known: dict[Checker, tuple[float, Reading]] = {}
        self._under_way: set[Checker] = set()
        self._lock = threading.Lock()

    def readings(self, wanted: set[Checker]) -> tuple[Readings, float | None]:
        """The last readings of *wanted*, by node; seconds until there may be more, None without *wanted*."""
        now = self._clock()
        with self._lock:
            self._known = {each: known for each, known in self._known.items() if now - known[0] <= OLD}
            known = dict(self._known)
            due = {each for each in wanted - self._under_way if now - known.get(each, (-OLD,))[0] >= PERIOD}
            self._under_way |= due
        for each in due:
            self._submit(partial(self._update, each))
        if not wanted:
            return {}, None
        found: dict[str, tuple[Reading, ...]] = {}
        for each in sorted(wanted & known.keys()):
            found[each.node] = (*found.get(each.node, ()), known[each][1])
        return found, PERIOD if wanted <= known.keys() else SOON

    def _update(self, checker: Checker) -> None:
        try:
            if not self._stop.is_set():
                reading = self._read(checker)
                READS.labels("error" if reading.state is None else "ok").inc()
                with self._lock:
                    self._known[checker] = (self._clock(), reading)
        finally:
            with self._lock:
                self._under_way.discard(checker)


ANSWERED = 0.5
"""Seconds until an answer that is awaited is looked for."""

MEASUREMENTS = Counter(
    "drawbridge_ingress_daemonset_canary_measurements",
    "Queries about canaries, by whether they had one value.",
    ["result"],
)
for _result in ("value", "inconclusive"):
    MEASUREMENTS.labels(_result)

Ask = Callable[[str], float]


@dataclass(frozen=True)
class _Asked:
    """A query that is sent again when it is *due* on the clock; *under_way* until it is answered."""

    query: Query
    due: float = -math.inf
    under_way: bool = False
    answer: Measurement | None = None


class MetricReader:
    """Safe to use from any thread; *submit* hands work to another one, *ask* may raise as a client of HTTP does."""

    def __init__(self, submit: Submit, stop: threading.Event, ask: Ask, clock: Clock) -> None:
        self._submit, self._stop, self._ask, self._clock = submit, stop, ask, clock
        self._asked: dict[str, _Asked] = {}
        self._lock = threading.Lock()

    def measured(self, key: str, wanted: Query | None) -> tuple[Measurement | None, float | None]:
        """The last answer to *wanted* of *key*; seconds until there may be another, None without *wanted*."""
        if wanted is None:
            self.forget(key)
            return None, None
        now = self._clock.monotonic()
        with self._lock:
            known = self._asked.get(key)
            if known is None or known.query != wanted:
                known = _Asked(wanted)
            if is_due := not known.under_way and known.due <= now:
                known = self._asked[key] = replace(known, due=now + wanted.interval, under_way=True)
        if is_due:
            self._submit(partial(self._update, key, known))
        known = self._asked.get(key, known)
        return known.answer, ANSWERED if known.under_way else max(ANSWERED, known.due - now)

    def forget(self, key: str) -> None:
        with self._lock:
            self._asked.pop(key, None)

    def _update(self, key: str, asked: _Asked) -> None:
        if self._stop.is_set():
            return
        found = self._measure(asked.query, self._clock.now())
        MEASUREMENTS.labels("inconclusive" if found.value is None else "value").inc()
        with self._lock:
            # Another query, or none, may be wanted by now.
            if self._asked.get(key) is asked:
                self._asked[key] = replace(asked, under_way=False, answer=found)

    def _measure(self, query: Query, now: datetime) -> Measurement:
        try:
            return Measurement(query, now, self._ask(query.text))
        except (OSError, http.client.HTTPException, ValueError) as error:
            return Measurement(query, now, error=str(error) or type(error).__name__)


PATH = "/api/v1/query"
QUERY_TIMEOUT = 5.0
"""Seconds for one answer, however slowly it is sent."""
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
    body = urlencode({"query": query, "timeout": f"{QUERY_TIMEOUT:g}s"})
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
        return http.client.HTTPConnection(url.hostname or "", url.port, timeout=QUERY_TIMEOUT)
    trusted = ssl.create_default_context(cafile=prometheus.ca_file or None)
    return http.client.HTTPSConnection(url.hostname or "", url.port, timeout=QUERY_TIMEOUT, context=trusted)


@contextmanager
def _bounded(connection: http.client.HTTPConnection) -> Iterator[None]:
    """Connected; hung up when the whole takes too long: the timeout of a socket begins again with every byte."""
    late, opened = threading.Event(), list[socket.socket]()
    timer = threading.Timer(QUERY_TIMEOUT, partial(_hang_up, connection, opened, late))
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
        raise TimeoutError(f"it has not answered within {QUERY_TIMEOUT:g} s")


def _hang_up(
    connection: http.client.HTTPConnection, opened: Sequence[socket.socket], late: threading.Event
) -> None:
    late.set()
    for each in (*opened, connection.sock):
        if each is not None:
            with suppress(OSError):
                # Below TLS, whose own shutdown is not for another thread than the one that reads.
                socket.socket.shutdown(each, socket.SHUT_RDWR)
