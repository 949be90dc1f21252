"""The ledger: durable before it answers, many callers in one write, nothing lost under faults."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from calico import ledger as ledger_module
from calico.ledger import GATHER, LONG, WRITERS, Ledger, _Ticket
from calico.reservations import NotServed
from calico.segment import IPReservation, NotReserved, Record
from dev.lab.waiting import until
from kube.errors import AlreadyExists, Forbidden, ServerError, TooManyRequests, Unreachable
from tests.factories import numbered, record
from tests.fakes import FakeClock, FakeReservations
from tests.metrics import sample


def ledger(store: FakeReservations, **options: object) -> Ledger:
    return Ledger(store, "pod-a", **({"pause": lambda seconds: None} | options))  # type: ignore[arg-type]


def failing(*errors: Exception) -> FakeReservations:
    """One whose first calls raise *errors*."""
    faults = [*errors]

    def fail(verb: str, name: str) -> None:
        if faults:
            raise faults.pop(0)

    return FakeReservations(fail)


def soon() -> float:
    return time.monotonic() + 10


def later() -> float:
    return time.monotonic() + 60


def test_a_reservation_stands_when_reserve_returns() -> None:
    store = FakeReservations()

    ledger(store).reserve([record("10.0.0.1/32"), record("fd00::1/128")], soon())

    assert store.held == ["10.0.0.1/32", "fd00::1/128"]
    assert all(name.startswith("drawbridge-pod-a-") for name in store.objects)


POLICIES = Path(__file__).parent.parent / "charts" / "drawbridge" / "templates" / "admissionpolicies.yaml"


@pytest.mark.parametrize("pod", ["drawbridge-webhook-7d4", "prod-keeper-webhook-7d4", "gate-webhook-7d4"])
def test_the_admission_policy_knows_segments_whatever_the_installation_is_called(pod: str) -> None:
    store = FakeReservations()

    Ledger(store, pod).reserve([record()], soon())

    [name] = store.objects
    [demanded] = re.findall(r"\.metadata\.name\.startsWith\('(drawbridge-.*?)'\)", POLICIES.read_text())
    assert name.startswith(demanded)
    assert pod.removeprefix(demanded) in name


def test_each_write_is_a_new_segment_that_no_writer_reads_or_adds_to() -> None:
    store = FakeReservations()
    subject = ledger(store)
    for number in range(3):
        subject.reserve([numbered(number)], soon())

    assert [len(each.records) for each in store.objects.values()] == [1, 1, 1]
    assert {each.level for each in store.objects.values()} == {0}
    assert {call.method for call in store.api.calls if "ipreservations" in call.path} == {"POST"}


@pytest.mark.parametrize(
    "error",
    [Forbidden(403, "Forbidden", "no rights"), NotServed("no Calico"), ValueError("no rights for a bug")],
    ids=lambda e: type(e).__name__,
)
def test_a_lasting_fault_is_reported_at_once_and_the_next_call_tries_again(error: Exception) -> None:
    store = failing(error)
    subject = ledger(store)
    with pytest.raises(NotReserved, match=r"could not be written: .*(no rights|no Calico)"):
        subject.reserve([numbered(1)], soon())
    subject.reserve([numbered(2)], soon())

    assert store.held == [numbered(2).cidr]


@pytest.mark.parametrize(
    ("status", "asks_for", "deadline", "waits"),
    [
        pytest.param(429, 1, 9, 1, id="as long as it asks for"),
        pytest.param(503, 2, 9, 2, id="so at any other error"),
        pytest.param(429, 0, 9, 0.1, id="a moment when it asks for nothing"),
        pytest.param(429, 60, 9, 4.5, id="half of what is left at most"),
    ],
)
def test_an_overloaded_server_is_left_alone(
    status: int, asks_for: float, deadline: float, waits: float
) -> None:
    clock, overload, pauses = FakeClock(), ServerError if status == 503 else TooManyRequests, []
    store = failing(overload(status, "overload", "too many requests", asks_for))
    ledger(store, clock=clock, pause=pauses.append).reserve([numbered(1)], clock() + deadline)

    assert pauses == [waits]


def test_a_write_whose_answer_was_lost_is_repeated_under_its_name_and_that_it_exists_is_success() -> None:
    names: list[str] = []

    class Lossy(FakeReservations):
        def create(self, name: str, records: Iterable[Record], *, timeout: float = 1.0) -> IPReservation:
            names.append(name)
            made = super().create(name, records)
            if len(names) == 1:
                raise Unreachable("reset")
            return made

    store = Lossy()
    segment = ledger(store).reserve([numbered(1)], soon())

    assert names == [segment.metadata.name] * 2
    assert (store.held, list(store.objects)) == ([numbered(1).cidr], names[:1])


def test_what_comes_while_an_overloaded_server_is_left_alone_shares_the_next_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A refused batch does not keep its writer from those behind it."""
    monkeypatch.setattr(ledger_module, "WRITERS", 1)
    store = failing(TooManyRequests(429, "TooManyRequests", "overload", 1))

    def pause(_seconds: float) -> None:
        callers.extend(pool.submit(subject.reserve, [numbered(n)], later()) for n in (2, 3))
        until(lambda: len(subject._tickets) == 2)

    subject, callers = ledger(store, pause=pause), []
    with ThreadPoolExecutor(3) as pool:
        written = subject.reserve([numbered(1)], later())
        for each in callers:
            assert each.result(timeout=30) == written
    assert len(written.records) == 3


def test_a_name_that_another_client_has_taken_is_no_success() -> None:
    names: list[str] = []

    def take(verb: str, name: str) -> None:
        names.append(name)
        if len(names) < 3:
            raise AlreadyExists(409, "AlreadyExists", name)

    store = FakeReservations(take)
    ledger(store).reserve([numbered(1)], soon())

    assert len(set(names)) == 3
    assert (store.held, list(store.objects)) == ([numbered(1).cidr], names[2:])


def test_a_write_is_repeated_with_the_same_records_though_a_request_was_withdrawn() -> None:
    clock, written = FakeClock(), list[list[str]]()

    class Slow(FakeReservations):
        def create(self, name: str, records: Iterable[Record], *, timeout: float = 1.0) -> IPReservation:
            written.append([each.cidr for each in records])
            clock.advance(2)
            if len(written) == 1:
                raise ServerError(504, "Timeout", "the write may be carried out later")
            return super().create(name, records)

    patient = _Ticket([numbered(1)], clock() + 9, Future())
    hasty = _Ticket([numbered(2)], clock() + 1, Future())
    ledger(Slow(), clock=clock)._write([hasty, patient])

    assert written == [[numbered(2).cidr, numbered(1).cidr]] * 2
    patient.done.result(timeout=0)
    with pytest.raises(NotReserved, match="carried out later"):
        hasty.done.result(timeout=0)


class Held(FakeReservations):
    """Each of its writes waits for a permit; *begun* counts them."""

    def __init__(self) -> None:
        super().__init__(self._wait)
        self.begun, self.permits = threading.Semaphore(0), threading.Semaphore(0)

    def _wait(self, verb: str, name: str) -> None:
        self.begun.release()
        assert self.permits.acquire(timeout=30)


def answered() -> float:
    """Requests that the histogram of batches has counted."""
    return sample("drawbridge_reservation_batch_size_sum")


def test_a_request_that_is_alone_is_written_at_once_also_while_another_write_is_under_way() -> None:
    store, counted = Held(), answered()
    subject = ledger(store)
    with ThreadPoolExecutor(WRITERS) as pool:
        callers = []
        for number in range(WRITERS):
            callers.append(pool.submit(subject.reserve, [numbered(number)], later()))
            assert store.begun.acquire(timeout=30)  # while those before are not done
        store.permits.release(WRITERS)
        for each in callers:
            each.result(timeout=30)
    assert [len(each.records) for each in store.objects.values()] == [1] * WRITERS
    assert answered() - counted == WRITERS


def test_a_store_that_hangs_is_given_up_at_the_deadline_and_the_withdrawn_request_is_not_written() -> None:
    store = Held()
    subject = ledger(store)
    with ThreadPoolExecutor(8) as pool:
        for number in range(WRITERS):
            pool.submit(subject.reserve, [numbered(100 + number)], later())
            assert store.begun.acquire(timeout=30)
        with pytest.raises(NotReserved, match="within the deadline"):
            subject.reserve([numbered(1)], time.monotonic() + 0.05)
        store.permits.release(WRITERS + 1)
        subject.reserve([numbered(3)], later())

    assert numbered(1).cidr not in store.held
    assert numbered(3).cidr in store.held


def test_what_comes_during_a_write_waits_a_moment_for_it_and_is_written_together() -> None:
    clock, store = FakeClock(), Held()
    subject = ledger(store, clock=clock)
    tickets = [_Ticket([numbered(n)], clock() + 60, Future(), clock()) for n in range(3)]
    subject._queue(tickets[:1])
    assert store.begun.acquire(timeout=30)
    subject._queue(tickets[1:])
    assert subject._due() == LONG
    clock.advance(LONG)
    store.permits.release(WRITERS)
    for each in tickets:
        each.done.result(timeout=30)
    assert sorted(len(each.records) for each in store.objects.values()) == [1, 2]


def taking(seconds: float, clock: FakeClock) -> FakeReservations:
    """One whose writes take so long."""
    return FakeReservations(lambda _verb, _name: clock.advance(seconds))


def share_a_write(subject: Ledger, clock: FakeClock, count: int) -> None:
    tickets = [_Ticket([numbered(100 + n)], clock() + 60, Future(), clock()) for n in range(count)]
    subject._queue(tickets)
    assert len({each.done.result(timeout=30).metadata.name for each in tickets}) == 1
    until(lambda: subject._writing == 0)


def test_after_a_shared_write_requests_gather_for_a_moment() -> None:
    clock = FakeClock()
    store = taking(GATHER, clock)
    subject = ledger(store, clock=clock)
    share_a_write(subject, clock, 3)
    with ThreadPoolExecutor(2) as pool:
        callers = [pool.submit(subject.reserve, [numbered(n)], clock() + 60) for n in (3, 4)]
        until(lambda: len(subject._tickets) == 2)
        clock.advance(GATHER)
        assert len({each.result(timeout=30).metadata.name for each in callers}) == 1
    assert sorted(len(each.records) for each in store.objects.values()) == [2, 3]


def test_where_writes_cost_nothing_requests_do_not_gather() -> None:
    clock = FakeClock()
    subject = ledger(FakeReservations(), clock=clock)
    share_a_write(subject, clock, 3)
    subject.reserve([numbered(3)], clock() + 60)  # the clock stands still


def test_a_request_that_follows_one_that_was_alone_does_not_wait() -> None:
    clock = FakeClock()
    store = taking(GATHER / 2, clock)
    subject = ledger(store, clock=clock)
    for number in range(3):
        subject.reserve([numbered(number)], clock() + 60)
    assert store.writes == 3


def test_what_a_segment_has_no_room_for_is_written_though_a_write_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ledger_module, "ENTRIES", 2)
    store = Held()
    subject = ledger(store)
    first, *tickets = [_Ticket([numbered(n)], later(), Future(), time.monotonic()) for n in range(4)]
    subject._queue([first])  # after which both writers wait for another request
    store.permits.release()
    assert store.begun.acquire(timeout=30)
    until(lambda: not (first.waits or subject._writing))
    subject._queue(tickets)
    for _ in range(WRITERS):
        assert store.begun.acquire(timeout=30)  # while the one before is not done
    store.permits.release(WRITERS)
    written = {each.done.result(timeout=30).metadata.name for each in (first, *tickets)}
    assert written == set(store.objects)


def test_no_write_is_repeated_when_all_of_its_requests_are_withdrawn() -> None:
    clock, calls = FakeClock(), list[str]()
    ticket = _Ticket([numbered(1)], clock() + 9, Future())

    def fail(verb: str, name: str) -> None:
        calls.append(verb)
        ticket.done.cancel()
        raise Unreachable("reset")

    ledger(FakeReservations(fail), clock=clock)._write([ticket])

    assert calls == ["create"]


def test_a_write_may_take_half_of_the_time_to_the_last_deadline_of_its_batch() -> None:
    timeouts: list[float] = []

    class Timed(FakeReservations):
        def create(self, name: str, records: Iterable[Record], *, timeout: float = 1.0) -> IPReservation:
            timeouts.append(timeout)
            return super().create(name, records)

    clock = FakeClock()
    subject = ledger(Timed(), clock=clock)
    subject._write([_Ticket([numbered(n)], clock() + left, Future()) for n, left in ((1, 1.0), (2, 3.0))])

    assert timeouts == [1.5]
