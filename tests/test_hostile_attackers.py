"""The attackers of `make hostile` end in time, whatever they are met with, and are counted over all rounds."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from hostile.attackers import END, START, attacking
from hostile.attacks import ATTACKS, Tally, Target
from hostile.good_client import Seen
from lab.waiting import stretch
from tests.sockets import reset

SECONDS = 0.5


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def target(listening: socket.socket) -> Target:
    port = listening.getsockname()[1]
    return Target("127.0.0.1", port, port, port)


def test_attackers_of_a_server_that_never_answers_end(listener: socket.socket) -> None:
    begin = time.monotonic()
    with attacking(list(ATTACKS), 2, target(listener), SECONDS) as got:
        assert got == {}
    assert time.monotonic() - begin < (START + SECONDS + END) * stretch()
    assert got.keys() == ATTACKS.keys()


def test_attackers_count_what_they_got(listener: socket.socket) -> None:
    threading.Thread(target=drop_all, args=[listener], daemon=True).start()
    with attacking(["connections that say nothing"], 3, target(listener), SECONDS) as got:
        pass
    assert got["connections that say nothing"].results.total() >= 3


def test_rounds_are_judged_together() -> None:
    good, got = Seen(), Tally()
    for latencies, failures, answer in (([0.1] * 99, [], b"HTTP/1.1 200"), ([0.3], ["refused"], b"")):
        good.add(Seen(list(latencies), list(failures)))
        tally = Tally()
        tally.note(answer)
        got.add(tally)
    assert (len(good.latencies), good.p99(), good.failures) == (100, 0.3, ["refused"])
    assert (dict(got.results), got.largest) == ({"200": 1, "closed": 1}, 12)


def drop_all(listening: socket.socket) -> None:
    try:
        while True:
            reset(listening.accept()[0])
    except OSError:
        return
