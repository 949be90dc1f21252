"""What answers later is asked on other threads, over real sockets, whatever answers there, and is never waited for."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from api.health_checks import State
from controllers.controller import Clock
from controllers.ingress_daemonset import readers
from controllers.ingress_daemonset.detachment import Reading
from controllers.ingress_daemonset.pacing import Measurement, Query
from controllers.ingress_daemonset.readers import (
    LONGEST,
    LOOK,
    OLD,
    SOON,
    Checker,
    Inconclusive,
    Reader,
    ask,
    checkers_of,
    measure,
    read,
    value_of,
)
from healthchecker.__main__ import serve
from healthchecker.answers import answer_of
from settings.ingress_daemonset import Prometheus
from tests.factories import NOW
from tests.fakes import FakeClock
from tests.ingress_daemonset_world import World, raw_resource
from tests.misbehaving_server import Answer, Asked, answers, closes, drips, hangs, sends, serving

PERIODS = {"A": 1.0, "B": 20.0}


class Here:
    """Work that is done when the test says so; an answer says which one it is."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.clock, self.work, self.asked = FakeClock(), list[Callable[[], None]](), list[str]()
        self.reader = Reader(self.work.append, self.stop, self._read, PERIODS.__getitem__, self.clock)

    def _read(self, key: str) -> str:
        self.asked.append(key)
        return f"{key}{len(self.asked)}"

    def run(self) -> None:
        while self.work:
            self.work.pop(0)()


def test_an_answer_is_there_at_the_next_look_and_renewed_after_its_period() -> None:
    here = Here()
    assert here.reader.latest({"A"}) == ({}, SOON)
    assert here.reader.latest({"A", "B"}) == ({}, SOON)
    here.run()
    assert here.asked == ["A", "B"]
    assert here.reader.latest({"A", "B"}) == ({"A": "A1", "B": "B2"}, PERIODS["A"])
    assert here.reader.latest({"B"}) == ({"B": "B2"}, PERIODS["B"])
    assert here.work == []

    here.clock.advance(PERIODS["A"])
    assert here.reader.latest({"A", "B"}) == ({"A": "A1", "B": "B2"}, LOOK)
    here.run()
    assert here.reader.latest({"A"}) == ({"A": "A3"}, PERIODS["A"])
    assert here.reader.latest(set()) == ({}, None)


def test_an_old_answer_counts_for_nothing() -> None:
    here = Here()
    here.reader.latest({"A"})
    here.reader.latest({"B"})
    here.run()
    here.clock.advance(OLD + PERIODS["A"])
    assert here.reader.latest({"A"})[0] == {"A": "A1"}
    here.clock.advance(1)
    assert here.reader.latest({"A", "B"})[0] == {"B": "B2"}


def test_what_is_not_answered_is_not_asked_again_and_once_stopped_nothing_is() -> None:
    here = Here()
    for _ in range(3):
        here.reader.latest({"A"})
        here.clock.advance(100)
    assert len(here.work) == 1
    here.stop.set()
    here.run()
    assert here.asked == []


# Health checkers


CONFIRMED = State(503, "x", uid="u", scheduled="mark", detached_seconds=9)


@contextmanager
def answering(state: State = CONFIRMED) -> Iterator[Checker]:
    with closing(serve(lambda: "x", lambda: state, ("127.0.0.1", 0))) as server:
        yield Checker("n1", "127.0.0.1", server.server_address[1])


def test_a_health_checker_says_what_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with answering() as checker:
        assert read(checker) == Reading("127.0.0.1", checker.port, CONFIRMED)


def test_one_that_is_not_there_or_has_no_address_is_no_confirmation() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        assert "refused" in read(Checker("n1", *silent.getsockname())).error
    assert read(Checker("n1", "", 10080)).error == "its Node has no InternalIP"


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (sends(b"HTTP/1.0 404 Not Found\r\n\r\n", hangs), "it answers 404 at /state"),
        (sends(b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nok\n", hangs), "malformed"),
        (sends(b"HTTP/1.0 200 OK\r\n\r\n" + b" " * 99_999, hangs), "longer than 65536 bytes"),
        (sends(b'HTTP/1.0 200 OK\r\nContent-Length: 9005\r\n\r\n{"x":' + b"[" * 9_000, hangs), "recursion"),
        (sends(b"SSH-2.0\r\n", hangs), "SSH-2.0"),
        (sends(b"HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\n{", hangs), r"timed out|within 0\.3 s"),
        (hangs, r"timed out|within 0\.3 s"),
        (drips(b"HTTP/1.0 200 OK\r\nX-Slow: "), r"^it has not answered within 0\.3 s$"),
    ],
)
def test_another_program_on_the_port_is_no_confirmation(
    said: Answer, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "TIMEOUT", 0.3)
    with serving(lambda _: said) as server:
        found = read(Checker("n1", "127.0.0.1", server.server_port))

    assert found.state is None
    assert re.search(error, found.error)


def test_a_server_to_which_the_connection_came_too_late_is_not_asked() -> None:
    """It could drip its answer: what hangs up has found no connection."""

    class Late(HTTPConnection):
        def connect(self) -> None:
            for each in threading.enumerate():
                if isinstance(each, threading.Timer) and self in each.args:
                    each.join()
            super().connect()

    with serving(lambda _: answers(b"late")) as server:
        with pytest.raises(TimeoutError, match=r"within 0\.01 s"):
            answer_of(Late("127.0.0.1", server.server_port, timeout=0.01), "GET", "/", longest=9)
        assert server.asked == []


def test_every_port_of_a_node_that_is_being_detached_is_read_and_no_other() -> None:
    here = World(raw_resource(healthCheckNodePorts=[1, 2], rolling={"maxUnavailableNodes": 1}), "n1", "n2")
    here.settle()
    here.unread = {"n1"}
    for each in here.nodes.values():
        each["status"]["addresses"] = [
            {"type": "Hostname", "address": "x"},
            {"type": "InternalIP", "address": "10.0.0.1"},
        ]
    assert checkers_of(here.plan().rollouts) == set()
    here.retemplate("proxy:2")
    here.turn()

    assert checkers_of(here.plan().rollouts) == {Checker("n1", "10.0.0.1", 1), Checker("n1", "10.0.0.1", 2)}
    here.raw["spec"]["updateStrategy"]["rollingUpdate"]["confirm"] = "off"
    assert checkers_of(here.plan().rollouts) == set()


# A Prometheus


QUERY = Query("a-1", "errors", 30)


def answered(kind: str, result: Any) -> bytes:
    return json.dumps({"status": "success", "data": {"resultType": kind, "result": result}}).encode()


def series(*values: str) -> bytes:
    return answered("vector", [{"metric": {"pod": "a"}, "value": [1, value]} for value in values])


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (series("0.25"), 0.25),
        (series("-1e3"), -1000.0),
        (answered("scalar", [1435781451.781, "1"]), 1.0),
    ],
)
def test_a_single_value_is_taken(body: bytes, value: float) -> None:
    assert value_of(200, body) == value


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (200, series(), "0 series: no series matches"),
        (200, series("1", "2"), "2 series: write one with a single value"),
        (200, series("NaN"), "NaN, which is no finite number"),
        (200, series("+Inf"), r"\+Inf, which is no finite"),
        (200, series("-Inf"), "-Inf, which is no finite"),
        (200, series("much"), "value much, which is no finite"),
        (200, answered("vector", [{"metric": {}, "histogram": [1, {}]}]), "not with one value .* `value`"),
        (200, answered("matrix", []), "not with one value .* 'matrix'"),
        (200, answered("string", [1, "x"]), "not with one value .* 'string'"),
        (200, answered("vector", {"a": 1}), "not with one value"),
        (200, answered("vector", None), "not with one value"),
        (200, answered("scalar", [1]), "not with one value"),
        (200, b'{"status": "error", "error": "query timed out"}', "200: query timed out"),
        (400, b'{"status": "error", "error": "parse\\n error"}', "400: parse  error"),
        (200, b'{"status": "success"}', "without a reason"),
        (502, b"<html>", "it answers 502, and not with one value as Prometheus does"),
        (200, b"", "not with one value as Prometheus does"),
        (200, b"[" * 60_000, "not with one value as Prometheus does"),
        (503, json.dumps({"error": "x" * 999}).encode(), "it answers 503: x{200}$"),
    ],
)
def test_what_has_no_single_value_is_inconclusive(status: int, body: bytes, why: str) -> None:
    with pytest.raises(Inconclusive, match=why):
        value_of(status, body)


@contextmanager
def prometheus(answer: Answer) -> Iterator[tuple[Prometheus, list[Asked]]]:
    """One that answers so, and what it was asked."""
    with serving(lambda _: answer) as server:
        yield Prometheus(url=f"{server.url}/prometheus/"), server.asked


def test_the_query_and_a_token_if_there_is_one_are_sent_and_no_proxy_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    (token := tmp_path / "token").write_text("secret\n")
    with prometheus(answers(series("1"))) as (there, asked):
        assert ask(there.model_copy(update={"token_file": str(token)}), "errors > 0 & 1") == 1.0
        ask(there, "errors")
    call, without = asked

    assert (call.method, call.path) == ("POST", "/prometheus/api/v1/query")
    assert call.headers["authorization"] == "Bearer secret"
    assert parse_qs(call.body.decode())["query"] == ["errors > 0 & 1"]
    assert "authorization" not in without.headers


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (answers(b"", 302, Location="http://127.0.0.1:1/"), "it answers 302"),
        (answers(b"x" * (LONGEST + 1)), "longer than 65536 bytes"),
        (sends(b"HTTP/1.1 200 OK\r\n\r\n" + b" " * 99_999), "longer than 65536 bytes"),
        (sends(b"SSH-2.0\r\n"), "SSH-2.0"),
        (closes, "closed|without response|reset"),
    ],
)
def test_whatever_answers_is_no_value(said: Answer, error: str) -> None:
    with prometheus(said) as (there, _), pytest.raises((ValueError, OSError, HTTPException), match=error):
        ask(there, "errors")


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{",
    ],
)
def test_one_that_does_not_end_its_answer_is_hung_up_on(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(readers, "QUERY_TIMEOUT", 0.2)
    with (
        prometheus(sends(sent, then=hangs)) as (there, _),
        pytest.raises(OSError, match=r"within 0\.2 s|timed out"),
    ):
        ask(there, "errors")


def test_one_that_is_not_there_or_not_configured_has_no_value() -> None:
    with closing(socket.socket()) as closed:
        closed.bind(("127.0.0.1", 0))  # nothing listens
        with pytest.raises(OSError, match="refused"):
            ask(Prometheus(url=f"http://127.0.0.1:{closed.getsockname()[1]}"), "errors")
    with pytest.raises(Inconclusive, match=r"set ingressDaemonSet\.prometheus\.url"):
        ask(Prometheus(), "errors")


def test_a_token_that_cannot_be_read_sends_nothing() -> None:
    with pytest.raises(OSError, match="No such file"):
        ask(Prometheus(url="http://127.0.0.1:1", token_file="/none/token"), "errors")


@pytest.mark.parametrize(
    "error", [ConnectionRefusedError("refused"), Inconclusive("2 series"), TimeoutError("late")]
)
def test_an_error_is_a_measurement_without_a_value(error: Exception) -> None:
    def fail(query: str) -> float:
        raise error

    clock = Clock(lambda: NOW, FakeClock())
    assert measure(fail, clock, QUERY) == Measurement(QUERY, NOW, None, str(error))
    assert measure(lambda query: 0.5, clock, QUERY) == Measurement(QUERY, NOW, 0.5)
