"""Who computes next: few at a time, first those who have used least; what waits or is stuck stops no others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from dev.lab.waiting import until
from kube.waiting import acquired, give_up, waiting
from webhook.fair_queue import FORGOTTEN, HALF_LIFE, LONGEST, FairQueue, Usage
from webhook.health import Pulse


class World:
    """A time that stands still, threads that run when the test says so, and jobs that take what they are said to."""

    def __init__(self, turns: int = 1) -> None:
        self.now = self.computed = 100.0
        self.started: list[Callable[[], None]] = []
        self.done: list[str] = []
        self.usage = Usage(lambda: self.now)
        self.queue = FairQueue(
            self.started.append, turns, self.usage, clock=lambda: self.now, cpu=lambda: self.computed
        )

    def submit(self, client: str, name: str = "", cost: float = 0.0) -> None:
        self.queue.submit(client, partial(self._work, name or client, cost))

    def run(self) -> list[str]:
        """All that is started, to its end; the names in the order in which they ran."""
        while self.started:
            self.started.pop(0)()
        return self.done

    def _work(self, name: str, cost: float) -> None:
        self.computed += cost
        self.done.append(name)


@pytest.mark.parametrize(
    ("used", "submitted", "order"),
    [
        pytest.param({}, ["a", "b", "c"], ["a", "b", "c"], id="as they came"),
        pytest.param({"a": 2.0, "b": 1.0}, ["a", "b", "c"], ["c", "b", "a"], id="least used first"),
        pytest.param(
            {"a": 0.1}, ["a", "a", "b", "b"], ["b", "b", "a", "a"], id="a newcomer before a heavy one"
        ),
        pytest.param({"a": 0.001}, ["a", "a", "b", "b"], ["b", "a", "b", "a"], id="equal ones in turn"),
    ],
)
def test_the_next_turn_is_for_the_client_that_has_used_least(
    used: Mapping[str, float], submitted: list[str], order: list[str]
) -> None:
    world = World()
    for client, seconds in used.items():
        world.usage.add(client, seconds)
    world.submit("other", "first")
    for client in submitted:
        world.submit(client, cost=0.01)
    assert world.run() == ["first", *order]


def test_what_a_turn_computes_is_counted_for_its_client() -> None:
    world = World()
    world.submit("a", cost=0.25)
    world.submit("a", cost=0.25)
    world.run()
    assert (world.usage.of("a"), world.usage.of("b")) == (0.5, 0.0)


@pytest.mark.parametrize(
    ("after", "left"),
    [
        pytest.param(HALF_LIFE - 0.1, 1.0, id="at first all"),
        pytest.param(HALF_LIFE, 0.5, id="then half"),
        pytest.param(3 * HALF_LIFE + 0.1, 0.125, id="then an eighth"),
        pytest.param(20 * HALF_LIFE, 0.0, id="then nothing"),
    ],
)
def test_use_is_forgotten(after: float, left: float) -> None:
    now = [100.0]
    usage = Usage(lambda: now[0])
    usage.add("a", 1.0)
    now[0] += after
    usage.add("b", FORGOTTEN)
    assert usage.of("a") == left


def test_no_more_run_at_once_than_there_are_turns() -> None:
    world = World(turns=2)
    for client in "abc":
        world.submit(client)
    assert len(world.started) == 2
    world.started.pop()()
    assert (world.done, len(world.started)) == (["b", "c"], 1)


@pytest.mark.parametrize(
    ("after", "started"),
    [pytest.param(LONGEST - 0.1, 1, id="in time"), pytest.param(LONGEST + 0.1, 2, id="too long")],
)
def test_a_stuck_turn_stops_the_next_one_for_a_while_only(after: float, started: int) -> None:
    world = World()
    world.submit("stuck")
    world.submit("next")
    world.now += after
    world.queue.start_due()
    assert len(world.started) == started


def test_a_probe_sees_through_a_stuck_turn() -> None:
    world = World()
    world.submit("stuck")
    pulse = Pulse(partial(world.queue.submit, "health"), clock=lambda: world.now)
    assert pulse.silence(patience=0) == 0.0
    world.now += LONGEST + 0.1
    world.queue.start_due()
    world.started.pop()()
    assert pulse.silence(patience=0) == 0.0
    assert world.done == []


def test_a_job_that_raises_ends_its_turn() -> None:
    world = World()
    failed = world.queue.submit("a", lambda: 1 // 0)
    world.submit("b")
    assert world.run() == ["b"]
    assert isinstance(failed.exception(), ZeroDivisionError)


@pytest.fixture
def threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(8)


def test_a_wait_is_for_others_to_compute(threads: ThreadPoolExecutor) -> None:
    queue, lock = FairQueue(threads.submit, 1, Usage()), threading.Lock()
    with lock:
        waits = queue.submit("waits", lambda: acquired(lock, 10))
        assert queue.submit("computes", lambda: "done").result(10) == "done"
        assert not waits.done()
    assert waits.result(10) is True


def test_who_comes_back_waits_no_longer_for_a_stuck_turn(threads: ThreadPoolExecutor) -> None:
    queue, end, stuck = FairQueue(threads.submit, 1, Usage()), threading.Event(), threading.Event()

    def waits() -> None:
        with waiting():
            assert stuck.wait(10)

    def be_stuck() -> None:
        stuck.set()
        end.wait(30)

    back = queue.submit("waits", waits)
    queue.submit("stuck", be_stuck)
    back.result(10)
    assert not end.is_set()
    end.set()


def test_who_comes_back_goes_before_all_that_have_not_begun(threads: ThreadPoolExecutor) -> None:
    queue, answer, end, order = (
        FairQueue(threads.submit, 1, Usage()),
        threading.Event(),
        threading.Event(),
        list[str](),
    )
    computes = threading.Event()

    def waits() -> None:
        with waiting():
            answer.wait(10)
        order.append("back")

    def compute() -> None:
        computes.set()
        assert end.wait(10)

    queue.submit("heavy", waits)
    queue.submit("other", compute)
    assert computes.wait(10)
    last = queue.submit("newcomer", partial(order.append, "newcomer"))
    answer.set()
    until(lambda: len(queue._back) == 1)
    end.set()
    last.result(10)
    assert order == ["back", "newcomer"]


def test_what_needs_no_turn_for_its_rest_gives_it_up(threads: ThreadPoolExecutor) -> None:
    queue, end = FairQueue(threads.submit, 1, Usage()), threading.Event()

    def sends() -> bool:
        give_up()
        return end.wait(10)

    sent = queue.submit("sends", sends)
    assert queue.submit("next", lambda: "done").result(10) == "done"
    end.set()
    assert sent.result(10) is True


def test_a_wait_outside_of_a_turn_is_only_a_wait() -> None:
    with waiting(), waiting():
        give_up()
    assert acquired(threading.Lock(), 0.0)
