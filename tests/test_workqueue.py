"""A key that was added is reconciled until it succeeds, by one worker at a time, and never in a hot loop."""

from __future__ import annotations

import threading

import pytest
from structlog.testing import capture_logs

from controllers.workqueue import WorkQueue, working
from dev.lab.waiting import until
from kube.errors import ApiError, Backoff, Forbidden, Unreachable
from tests.fakes import FakeClock
from tests.metrics import sample


def queue_at(clock: FakeClock) -> WorkQueue:
    return WorkQueue("test", clock=clock)


def working_on_a(clock: FakeClock) -> WorkQueue:
    """A queue whose key "a" is being reconciled."""
    queue = queue_at(clock)
    queue.add("a")
    queue.get(wait=False)
    return queue


def waiting(queue: WorkQueue) -> list[str]:
    """What can be taken now, in order."""
    return list(iter(lambda: queue.get(wait=False) or "", ""))


def counted(name: str) -> float:
    return sample(f"drawbridge_workqueue_{name}", name="test")


def test_keys_come_out_once_and_in_order() -> None:
    queue = queue_at(FakeClock())
    before = counted("adds_total")
    for key in ("a", "b", "a", "c", "b"):
        queue.add(key)
    assert counted("depth") == 3
    assert waiting(queue) == ["a", "b", "c"]
    assert (counted("depth"), counted("adds_total")) == (0, before + 3)


def test_a_key_that_is_worked_on_waits_until_it_is_done() -> None:
    queue = working_on_a(FakeClock())
    queue.add("a")
    queue.add("a")
    assert queue.get(wait=False) is None
    queue.done("a")
    assert waiting(queue) == ["a"]
    queue.done("a")
    assert waiting(queue) == []


def test_a_delayed_key_comes_when_its_time_has_come_and_the_sooner_promise_counts() -> None:
    clock = FakeClock()
    queue = queue_at(clock)
    queue.add_after("late", 30.0)
    queue.add_after("late", 10.0)
    queue.add_after("late", 20.0)
    queue.add_after("soon", 5.0)
    assert waiting(queue) == []
    clock.advance(10.0)
    assert waiting(queue) == ["soon", "late"]
    for key in ("soon", "late"):
        queue.done(key)
    clock.advance(100.0)
    assert waiting(queue) == []


def test_promises_that_are_void_are_not_all_kept_until_their_time_and_others_are() -> None:
    clock = FakeClock()
    queue = working_on_a(clock)
    queue.add_after("b", 5.0)
    for _ in range(1000):
        queue.succeeded("a", 3600.0)
        queue.done("a")
        queue.add("a")
        queue.get(wait=False)

    assert len(queue._delayed) < 200
    clock.advance(5.0)
    assert waiting(queue) == ["b"]


def test_a_queue_is_idle_when_no_key_waits_was_promised_or_is_worked_on() -> None:
    clock = FakeClock()
    queue = queue_at(clock)
    idle = [queue.idle]
    queue.add_after("a", 1.0)
    idle.append(queue.idle)
    clock.advance(1.0)
    queue.get(wait=False)
    idle.append(queue.idle)
    queue.add("a")
    queue.done("a")
    idle.append(queue.idle)
    queue.get(wait=False)
    queue.done("a")
    assert [*idle, queue.idle] == [True, False, False, False, True]


def test_retries_double_their_pause_until_the_key_succeeds() -> None:
    queue = queue_at(FakeClock())
    before = counted("retries_total")
    assert [queue.retry("a") for _ in range(4)] == pytest.approx([0.005, 0.01, 0.02, 0.04])
    assert queue.retry("b") == pytest.approx(0.005)
    queue.succeeded("a", None)
    assert queue.retry("a") == pytest.approx(0.005)
    assert max(queue.retry("a") for _ in range(40)) == 1000.0
    assert counted("retries_total") == before + 46


def test_a_retry_comes_no_sooner_than_the_api_server_asks() -> None:
    queue = queue_at(FakeClock())
    overloaded = ApiError(429, "TooManyRequests", "too many requests", 3.0)

    assert [queue.retry("a", each) for each in (overloaded, Unreachable("reset"))] == [3.0, 0.01]


def test_the_longest_running_work_is_known() -> None:
    clock = FakeClock()
    queue = queue_at(clock)
    queue.add("a")
    queue.add("b")
    queue.get()
    clock.advance(7.0)
    queue.get()
    clock.advance(1.0)
    assert counted("longest_running_seconds") == 8.0
    queue.done("a")
    assert counted("longest_running_seconds") == 1.0
    queue.done("b")
    assert counted("longest_running_seconds") == 0.0


def test_shutting_down_ends_a_waiting_get_and_leaves_what_waits() -> None:
    queue = WorkQueue("test")
    got: list[str | None] = []
    thread = threading.Thread(target=lambda: got.append(queue.get()))
    thread.start()
    queue.shut_down()
    thread.join(2)
    queue.add("a")
    assert (got, queue.get()) == ([None], None)


def test_a_delayed_key_does_not_wait_for_the_worker_that_waited_for_it() -> None:
    queue = WorkQueue("test")
    release, seen = threading.Event(), []

    def reconcile(key: str) -> None:
        seen.append(key)
        if key == "slow":
            release.wait(5)

    with working(queue, reconcile, workers=2):
        queue.add_after("delayed", 0.2)
        queue.add("slow")
        until(lambda: seen == ["slow", "delayed"], 2)
        release.set()


def due_of(queue: WorkQueue, clock: FakeClock, asked: float) -> float:
    """Seconds until the next run of "a", whose reconcile asks for one after *asked*."""
    queue.succeeded("a", asked)
    queue.done("a")
    began = clock()
    while queue.get(wait=False) != "a":
        clock.advance(0.001)
    return round(clock() - began, 2)


def test_a_reconcile_that_asks_to_run_at_once_waits_for_the_pace_and_longer_each_time() -> None:
    clock = FakeClock()
    queue = working_on_a(clock)
    pauses = [due_of(queue, clock, 0.0) for _ in range(20)]

    assert pauses[:11] == [0.02] * 11
    assert pauses[11:] == [0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0, 1.0, 1.0]


@pytest.mark.parametrize("how", ["add", "add_after"])
def test_a_change_brings_back_the_pace(how: str) -> None:
    clock = FakeClock()
    queue = working_on_a(clock)
    for _ in range(20):
        due_of(queue, clock, 0.0)
    queue.add("a") if how == "add" else queue.add_after("a", 0.0)
    queue.done("a")
    queue.get(wait=False)

    assert due_of(queue, clock, 0.0) == 0.02


def test_a_period_is_kept_however_often_it_is_asked_for() -> None:
    clock = FakeClock()
    queue = working_on_a(clock)

    assert {due_of(queue, clock, 5.0) for _ in range(20)} == {5.0}


@pytest.mark.parametrize("how", ["succeeded", "retry"])
def test_what_a_reconcile_asked_for_does_not_outlive_the_next_run(how: str) -> None:
    clock = FakeClock()
    queue = WorkQueue("test", pauses=Backoff(base=30.0, cap=30.0), clock=clock)
    queue.add("a")
    queue.get(wait=False)
    queue.succeeded("a", 30.0) if how == "succeeded" else queue.retry("a")
    queue.done("a")
    queue.add("a")  # the object is gone: there is nothing more to do
    assert waiting(queue) == ["a"]
    queue.done("a")

    assert queue.idle


def test_what_a_handler_asked_for_is_kept_when_the_key_runs_before() -> None:
    clock = FakeClock()
    queue = working_on_a(clock)
    queue.succeeded("a", 10.0)
    queue.done("a")
    queue.add_after("a", 30.0)
    queue.add("a")
    assert waiting(queue) == ["a"]
    queue.done("a")
    clock.advance(30.0)

    assert waiting(queue) == ["a"]


@pytest.mark.parametrize(
    ("error", "is_mistake"), [(Forbidden(403, "Forbidden", "no"), False), (KeyError("x"), True)]
)
def test_only_a_mistake_is_logged_with_its_traceback(error: Exception, is_mistake: bool) -> None:
    queue = WorkQueue("test")

    def reconcile(_key: str) -> None:
        raise error

    with capture_logs() as logs, working(queue, reconcile):
        queue.add("a")
        until(lambda: logs)
    assert (logs[0]["event"], logs[0].get("exc_info"), logs[0]["key"]) == (
        "reconcile failed",
        is_mistake,
        "a",
    )
    assert logs[0]["error"] == str(error)


def test_a_key_that_is_due_in_centuries_does_not_end_the_worker() -> None:
    queue, keys = WorkQueue("test"), list[str]()

    def reconcile(key: str) -> float:
        keys.append(key)
        return 300 * 365 * 86400.0

    with working(queue, reconcile):
        queue.add("a")
        until(lambda: keys and not queue.longest_running())
        queue.add("b")
        until(lambda: keys == ["a", "b"])
