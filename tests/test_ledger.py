"""The ledger: durable before it answers, many callers in one write, nothing lost under faults."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from msgspec.structs import replace
from prometheus_client import REGISTRY

from calico.ledger import GATHER, LOOK, MANY, PAUSE, Ledger, _Ticket
from calico.reservations import NotServed
from calico.segment import IPReservation, NotReserved, Record
from kube.errors import Forbidden, ServerError, TooManyRequests, Unreachable
from settings import IPReservationSettings
from tests.factories import record
from tests.fakes import FakeClock, FakeReservations


def ledger(store: FakeReservations, **options: object) -> Ledger:
    return Ledger(store, "pod-a", **({"pause": lambda seconds: None} | options))  # type: ignore[arg-type]


def entries(limit: int) -> Callable[[], IPReservationSettings]:
    return lambda: IPReservationSettings(segment_max_entries=limit)


def failing(*errors: Exception) -> FakeReservations:
    """One whose first calls raise *errors*."""
    faults = [*errors]

    def fail(verb: str, name: str) -> None:
        if faults:
            raise faults.pop(0)

    return FakeReservations(fail)


def soon() -> float:
    return time.monotonic() + 10


def numbered(n: int) -> Record:
    return record(f"10.0.{n // 250}.{n % 250}/32", uid=f"uid-{n}")


def test_a_reservation_stands_when_reserve_returns() -> None:
    store = FakeReservations()

    ledger(store).reserve([record("10.0.0.1/32"), record("fd00::1/128")], soon())

    assert store.held == ["10.0.0.1/32", "fd00::1/128"]
    assert all(name.startswith("pod-a-") for name in store.objects)


def test_after_a_shared_write_the_next_one_waits_for_company_and_a_lone_caller_never_does() -> None:
    entered, go_on, clock, pauses = threading.Event(), threading.Event(), FakeClock(), list[float]()

    def hold_the_second(verb: str, name: str) -> None:
        if len(pauses_of_lone_callers) == 2:
            entered.set()
            assert go_on.wait(10)

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        clock.advance(seconds)

    pauses_of_lone_callers: list[float] = []
    subject = ledger(FakeReservations(hold_the_second), clock=clock, pause=pause)
    for number in (1, 2):
        subject.reserve([numbered(number)], clock() + 30)
        pauses_of_lone_callers.append(sum(pauses))
    assert pauses_of_lone_callers == [0, 0]

    with ThreadPoolExecutor(3) as pool:
        callers = [pool.submit(subject.reserve, [numbered(3)], clock() + 30)]
        assert entered.wait(10)
        callers += [pool.submit(subject.reserve, [numbered(n)], clock() + 30) for n in (4, 5)]
        while subject._tickets.qsize() < 2:
            threading.Event().wait(0.001)
        go_on.set()
        for each in callers:
            each.result(timeout=10)
    assert sum(pauses) == 0
    subject.reserve([numbered(6)], clock() + 30)
    waited = sum(pauses)
    assert GATHER <= waited < GATHER + 2 * LOOK
    subject.reserve([numbered(7)], clock() + 30)
    assert sum(pauses) == waited


def test_enough_company_is_not_waited_for_any_longer() -> None:
    clock = FakeClock()
    company = [
        threading.Thread(target=lambda n=n: subject.reserve([numbered(n)], clock() + 30))
        for n in range(1, MANY)
    ]

    def bring_company(_seconds: float) -> None:
        for each in company:
            if each.ident is None:
                each.start()
        while subject._tickets.qsize() < len(company):
            threading.Event().wait(0.001)

    store = FakeReservations()
    subject = ledger(store, clock=clock, pause=bring_company)
    subject._rested = clock() + GATHER
    subject.reserve([numbered(0)], clock() + 30)
    for each in company:
        each.join(10)

    assert len(store.held) == MANY
    assert store.writes == 1


def test_what_another_client_changed_meanwhile_is_read_again_once_and_kept() -> None:
    calls: list[str] = []
    store = FakeReservations(lambda verb, name: calls.append(verb))
    subject = ledger(store)
    subject.reserve([numbered(1), numbered(2)], soon())
    (current,) = store.list()
    store.write(current, [numbered(2)])  # the leader released one

    subject.reserve([numbered(3)], soon())
    subject.reserve([numbered(4)], soon())

    assert store.held == [numbered(2).cidr, numbered(3).cidr, numbered(4).cidr]
    assert calls.count("get") == 1


def test_a_deleted_segment_is_followed_by_a_new_one() -> None:
    store = FakeReservations()
    subject = ledger(store)
    subject.reserve([numbered(1)], soon())
    store.objects.clear()

    subject.reserve([numbered(2)], soon())

    assert store.held == [numbered(2).cidr]


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


def test_a_fault_that_lasts_until_the_deadline_is_reported() -> None:
    clock = FakeClock()

    def always_down(verb: str, name: str) -> None:
        clock.advance(1)
        raise Unreachable("connection refused")

    subject = ledger(FakeReservations(always_down), clock=clock)

    with pytest.raises(NotReserved, match="connection refused"):
        subject.reserve([numbered(1)], clock() + 5)


@pytest.mark.parametrize(
    ("status", "asks_for", "deadline", "waits"),
    [
        pytest.param(429, 1, 9, 1, id="as long as it asks for"),
        pytest.param(503, 2, 9, 2, id="so at any other error"),
        pytest.param(429, None, 9, 0.1, id="a moment when it asks for nothing"),
        pytest.param(429, 60, 9, 4.5, id="half of what is left at most"),
    ],
)
def test_an_overloaded_server_is_left_alone(
    status: int, asks_for: float | None, deadline: float, waits: float
) -> None:
    clock, overload, pauses = FakeClock(), ServerError if status == 503 else TooManyRequests, []
    store = failing(overload(status, "overload", "too many requests", asks_for))
    ledger(store, clock=clock, pause=pauses.append).reserve([numbered(1)], clock() + deadline)

    assert pauses == [waits]


def test_an_aged_segment_is_followed_by_a_new_one() -> None:
    store, clock = FakeReservations(), FakeClock()
    subject = ledger(store, clock=clock)
    for n in range(3):
        subject.reserve([numbered(n)], clock() + 10)
        clock.advance(400)

    assert sorted(len(each.records) for each in store.objects.values()) == [1, 2]


class Held(FakeReservations):
    """Each of its writes waits for a permit; *begun* counts them."""

    def __init__(self) -> None:
        super().__init__(self._wait)
        self.begun, self.permits = threading.Semaphore(0), threading.Semaphore(0)

    def _wait(self, verb: str, name: str) -> None:
        self.begun.release()
        assert self.permits.acquire(timeout=30)

    def permit(self) -> None:
        """Let the write that has begun be done, and return when the next one has begun."""
        self.permits.release()
        assert self.begun.acquire(timeout=30)


def behind_a_first_write(
    subject: Ledger, store: Held, pool: ThreadPoolExecutor, *deadlines: float
) -> list[Future[None]]:
    """Callers with these deadlines, all waiting for the second write while the first one is under way."""
    first = pool.submit(subject.reserve, [numbered(0)], time.monotonic() + 60)
    assert store.begun.acquire(timeout=30)
    callers = []
    for number, deadline in enumerate(deadlines, 1):
        callers.append(pool.submit(subject.reserve, [numbered(number)], deadline))
        while subject._tickets.qsize() < number:
            threading.Event().wait(0.001)
    store.permit()
    first.result(timeout=30)
    return callers


def answered() -> float:
    """Requests that the histogram of batches has counted."""
    return REGISTRY.get_sample_value("drawbridge_reservation_batch_size_sum") or 0.0


def test_a_request_is_answered_when_it_is_written_though_others_of_its_batch_are_not_yet() -> None:
    store, counted = Held(), answered()
    subject = ledger(store, settings=entries(2))
    with ThreadPoolExecutor(8) as pool:
        callers = behind_a_first_write(subject, store, pool, *[time.monotonic() + 60] * 4)
        store.permit()
        callers[0].result(timeout=30)
        assert store.held == [numbered(0).cidr, numbered(1).cidr]
        assert not callers[1].done()
        store.permit()
        callers[1].result(timeout=30)
        callers[2].result(timeout=30)
        assert not callers[3].done()
        store.permits.release()
        callers[3].result(timeout=30)
    assert len(store.held) == 5
    assert answered() - counted == 5


def test_a_store_that_hangs_is_given_up_at_the_deadline_and_the_withdrawn_request_is_not_written() -> None:
    store = Held()
    subject = ledger(store)
    with ThreadPoolExecutor(1) as pool:
        hanging = pool.submit(subject.reserve, [numbered(1)], soon())
        assert store.begun.acquire(timeout=10)
        with pytest.raises(NotReserved, match="within the deadline"):
            subject.reserve([numbered(2)], time.monotonic() + 0.05)
        store.permits.release(2)
        hanging.result(timeout=10)
        subject.reserve([numbered(3)], soon())

    assert store.held == [numbered(1).cidr, numbered(3).cidr]


def test_callers_that_come_during_a_write_share_the_next_one() -> None:
    store = Held()
    subject = ledger(store)
    with ThreadPoolExecutor(64) as pool:
        callers = behind_a_first_write(subject, store, pool, *[time.monotonic() + 60] * 63)
        store.permits.release()
        for each in callers:
            each.result(timeout=30)

    assert (len(store.held), store.writes) == (64, 2)


def test_requests_that_come_during_one_write_of_a_batch_join_the_next_one() -> None:
    store = Held()
    subject = ledger(store, settings=entries(3))
    with ThreadPoolExecutor(8) as pool:
        callers = behind_a_first_write(subject, store, pool, *[time.monotonic() + 60] * 3)
        callers.append(pool.submit(subject.reserve, [numbered(9)], time.monotonic() + 60))
        while not subject._tickets.qsize():
            threading.Event().wait(0.001)
        store.permit()
        store.permits.release()
        for each in callers:
            each.result(timeout=30)
    assert sorted(len(each.records) for each in store.objects.values()) == [2, 3]


def test_a_request_whose_time_is_over_is_refused_and_takes_no_place_in_a_later_write() -> None:
    store = Held()
    subject = ledger(store, settings=entries(2))
    with ThreadPoolExecutor(8) as pool:
        late = time.monotonic() + 1.0
        callers = behind_a_first_write(subject, store, pool, *[time.monotonic() + 60] * 3, late)
        with pytest.raises(NotReserved, match="within the deadline"):
            callers[3].result(timeout=30)
        store.permit()
        store.permits.release()
        for each in callers[:3]:
            each.result(timeout=30)
    assert numbered(4).cidr not in store.held


def test_a_fault_refuses_those_whose_time_is_over_and_the_others_are_written() -> None:
    clock, faults = FakeClock(), 3

    def fail(verb: str, name: str) -> None:
        nonlocal faults
        clock.advance(2)
        if faults := faults - 1:
            raise Unreachable("reset")

    store = FakeReservations(fail)
    subject = ledger(store, clock=clock)
    patient = _Ticket([numbered(1)], clock() + 9, Future())
    hasty = _Ticket([numbered(2)], clock() + 3, Future())
    left = subject._attempt([patient, hasty])
    assert [*left] == [patient, hasty]
    assert [*subject._attempt(left)] == [patient]
    with pytest.raises(NotReserved, match="reset"):
        hasty.done.result(timeout=0)
    assert [*subject._attempt([patient])] == []
    patient.done.result(timeout=0)
    assert store.held == [numbered(1).cidr]


def test_a_fault_refuses_those_that_have_no_time_for_another_attempt() -> None:
    clock = FakeClock()
    subject = ledger(failing(Unreachable("reset")), clock=clock)
    hasty = _Ticket([numbered(1)], clock() + PAUSE, Future())
    patient = _Ticket([numbered(2)], clock() + PAUSE + 0.1, Future())

    assert [*subject._attempt([hasty, patient])] == [patient]
    assert hasty.done.done()


def test_a_write_may_take_until_the_last_deadline_of_its_batch() -> None:
    timeouts: list[float] = []

    class Timed(FakeReservations):
        def create(self, name: str, records: Iterable[Record], *, timeout: float = 1.0) -> IPReservation:
            timeouts.append(timeout)
            return super().create(name, records)

    clock = FakeClock()
    subject = ledger(Timed(), clock=clock)
    subject._attempt([_Ticket([numbered(n)], clock() + left, Future()) for n, left in ((1, 1.0), (2, 3.0))])

    assert timeouts == [3.0]


def test_both_addresses_of_a_pod_are_written_once_when_a_segment_ends_between_them() -> None:
    store = FakeReservations()
    subject = ledger(store, settings=entries(3))
    for number in range(4):
        both = [numbered(number), replace(numbered(number), cidr=f"fd00::{number}/128")]
        subject.reserve(both, soon())

    assert len(store.held) == len(set(store.held)) == 8
    assert sorted(len(each.records) for each in store.objects.values()) == [2, 3, 3]
