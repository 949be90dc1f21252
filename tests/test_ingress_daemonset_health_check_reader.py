"""Health checkers are read over real sockets, whatever answers there."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from api.health_checks import State
from controllers.ingress_daemonset import readers
from controllers.ingress_daemonset.detachment import Reading
from controllers.ingress_daemonset.readers import Checker, checkers_of, read
from healthchecker.__main__ import serve
from tests.ingress_daemonset_world import World, raw_resource
from tests.misbehaving_server import Answer, drips, hangs, sends, serving

CONFIRMED = State(503, "x", uid="u", scheduled="mark", detached_seconds=9, refusals=4)


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
