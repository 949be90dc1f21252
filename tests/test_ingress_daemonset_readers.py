"""What answers later is asked on other threads, each after its period, and is never waited for by a reconcile."""

from __future__ import annotations

import threading
from collections.abc import Callable

from controllers.ingress_daemonset.readers import LOOK, OLD, SOON, Reader
from tests.fakes import FakeClock

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
