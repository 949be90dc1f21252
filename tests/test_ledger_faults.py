"""Whatever the API server does to the ledger's writes, each of many callers gets a true answer in time."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calico.ledger import Ledger
from calico.reservations import Reservations
from calico.segment import NotReserved, Record
from dev.fake_api import FakeAPI
from settings import IPReservationSettings
from tests.factories import record
from tests.misbehaving_server import Answer, Asked, Handler, refuses, resets, serving

V3 = "projectcalico.org/v3"
CALLERS, ENTRIES = 64, 24

Fault = Callable[[FakeAPI, Asked], Answer]


def lost_after_commit(api: FakeAPI, asked: Asked) -> Answer:
    def send(handler: Handler) -> None:
        api.answer(asked)
        resets(handler)

    return send


def slow(api: FakeAPI, asked: Asked) -> Answer:
    def send(handler: Handler) -> None:
        handler.server.closing.wait(0.05)
        api.answer(asked)(handler)

    return send


FAULTS: dict[str, Fault] = {
    "overloaded": lambda api, asked: refuses(429, "TooManyRequests", Retry_After="1"),
    "broken": lambda api, asked: refuses(500, "InternalError"),
    "in conflict": lambda api, asked: refuses(409, "Conflict"),
    "not served": lambda api, asked: refuses(404, "NotFound"),
    "away": lambda api, asked: resets,
    "lost after commit": lost_after_commit,
    "slow": slow,
    "none": lambda api, asked: api.answer(asked),
}


class Storm:
    """64 callers at once, each for a different pod, at an API server that has *faults* in store for it."""

    def __init__(self, faults: Sequence[str], *, then: str = "none") -> None:
        self.api = FakeAPI()
        self._faults, self._then = deque(faults), then
        self._lock = threading.Lock()
        self.api.fault = self._fault
        self.refused: set[int] = set()
        self.waited: list[float] = []
        self.missing: list[str] = []

    def blow(self, *, seconds: float) -> None:
        with serving(self.api) as server, ThreadPoolExecutor(CALLERS) as pool:
            store = Reservations(server.client(timeout=10))
            limits = IPReservationSettings(segment_max_entries=ENTRIES)
            ledger = Ledger(store, "me", lambda: limits, pause=lambda seconds: None)
            list(pool.map(lambda number: self._reserve(ledger, number, seconds), range(CALLERS)))
            self._then = "none"
            for number in self.refused:  # as their clients do
                ledger.reserve([pod(number)], time.monotonic() + 60)

    def _reserve(self, ledger: Ledger, number: int, seconds: float) -> None:
        began = time.monotonic()
        try:
            ledger.reserve([pod(number)], began + seconds)
            if pod(number).cidr not in self.held:
                self.missing.append(pod(number).cidr)
        except NotReserved:
            self.refused.add(number)
        self.waited.append(time.monotonic() - began)

    def _fault(self, asked: Asked) -> Answer | None:
        if not asked.path.endswith(V3):
            with self._lock:
                fault = self._faults.popleft() if self._faults else self._then
            return FAULTS[fault](self.api, asked)
        return None

    @property
    def segments(self) -> list[list[str]]:
        stored = self.api.list(f"/apis/{V3}/ipreservations")
        return [each["spec"]["reservedCIDRs"] for each in stored]

    @property
    def held(self) -> set[str]:
        return {cidr for segment in self.segments for cidr in segment}

    def check(self) -> None:
        assert not self.missing, "answered before it was durable"
        assert self.held == {pod(number).cidr for number in range(CALLERS)}
        assert all(len(set(segment)) == len(segment) <= ENTRIES for segment in self.segments)


def pod(number: int) -> Record:
    return record(f"10.0.0.{number}/32", uid=f"uid-{number}", pod=f"redis-{number}")


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from(sorted(FAULTS)), max_size=24))
def test_after_any_sequence_of_faults_all_are_reserved_once_and_none_was_refused(faults: list[str]) -> None:
    storm = Storm(faults)
    storm.blow(seconds=20)
    storm.check()
    assert not storm.refused
    assert len(set().union(*storm.segments)) == sum(map(len, storm.segments))


@pytest.mark.parametrize("fault", sorted(set(FAULTS) - {"slow", "none"}))
def test_while_a_fault_lasts_each_caller_is_refused_by_its_deadline(fault: str) -> None:
    storm = Storm([], then=fault)
    storm.blow(seconds=0.5)
    storm.check()
    assert max(storm.waited) < 30  # far below the 64 deadlines one after the other


def test_at_a_slow_server_no_caller_is_refused_and_writes_are_shared() -> None:
    storm = Storm([], then="slow")
    storm.blow(seconds=20)
    storm.check()
    assert not storm.refused
    assert len(storm.segments) < CALLERS / 2
