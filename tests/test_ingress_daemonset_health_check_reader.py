"""Health checkers are read over real sockets, side by side, and never waited for."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from api.health_checks import State
from controllers.ingress_daemonset import readers
from controllers.ingress_daemonset.detachment import Reading
from controllers.ingress_daemonset.readers import (
    OLD,
    PERIOD,
    SOON,
    Checker,
    HealthCheckReader,
    checkers_of,
    read,
)
from healthchecker.__main__ import serve
from tests.fakes import FakeClock
from tests.ingress_daemonset_world import World, raw_resource

CONFIRMED = State(503, "x", uid="u", scheduled="mark", detached_seconds=9, refusals=4)
A, B = Checker("n1", "10.0.0.1", 10080), Checker("n2", "10.0.0.2", 10080)


@contextmanager
def answering(state: State = CONFIRMED) -> Iterator[Checker]:
    with closing(serve(lambda: "x", lambda: state, ("127.0.0.1", 0))) as server:
        yield Checker("n1", "127.0.0.1", server.server_address[1])


@contextmanager
def saying(*parts: bytes) -> Iterator[Checker]:
    """Another program on the port, that sends this and then nothing more."""
    with socket.create_server(("127.0.0.1", 0)) as listener, closing(socket.socket()) as silent:
        taken = [silent]

        def run() -> None:
            taken.append(listener.accept()[0])
            for part in parts:
                taken[-1].sendall(part)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield Checker("n1", "127.0.0.1", listener.getsockname()[1])
        thread.join()
        for each in taken:
            each.close()


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
        (b"HTTP/1.0 404 Not Found\r\n\r\n", "it answers 404 at /state"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nok\n", "malformed"),
        (b"HTTP/1.0 200 OK\r\n\r\n" + b" " * 99_999, "too long"),
        (b"SSH-2.0\r\n", "SSH-2.0"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\n{", "timed out"),
        (b"", "timed out"),
    ],
)
def test_another_program_on_the_port_is_no_confirmation(
    said: bytes, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "TIMEOUT", 0.3)
    with saying(said) as checker:
        found = read(checker)

    assert (found.state, error in found.error) == (None, True), found.error


class Readers:
    """Work that is done when the test says so."""

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.clock, self.work, self.asked = FakeClock(), list[Callable[[], None]](), list[Checker]()
        self.reader = HealthCheckReader(self.work.append, self.stop, self._read, self.clock)

    def _read(self, checker: Checker) -> Reading:
        self.asked.append(checker)
        return Reading(checker.address, checker.port, State(503, str(len(self.asked))))

    def run(self) -> None:
        while self.work:
            self.work.pop()()


def test_a_reading_is_there_at_the_next_look_and_renewed_in_time() -> None:
    here = Readers()
    assert here.reader.readings({A, B}) == ({}, SOON)
    assert here.reader.readings({A, B}) == ({}, SOON)
    here.run()
    assert sorted(each.node for each in here.asked) == ["n1", "n2"]

    found, again = here.reader.readings({A, B})
    assert (set(found), again) == ({"n1", "n2"}, PERIOD)
    assert here.work == []
    here.clock.advance(PERIOD)
    here.reader.readings({A})
    here.run()
    assert len(here.asked) == 3
    assert here.reader.readings(set()) == ({}, None)


def test_an_old_reading_counts_for_nothing() -> None:
    here = Readers()
    here.reader.readings({A})
    here.run()
    here.clock.advance(OLD + 1)

    assert here.reader.readings({A}) == ({}, SOON)


def test_once_stopped_nothing_is_read() -> None:
    here = Readers()
    here.stop.set()
    here.reader.readings({A})
    here.run()

    assert here.asked == []


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
