"""Steps are handed out in batches, not too many at a time, and what fails comes later."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cloud.errors import CloudError, NotPermitted, QuotaExceeded, StateConflict
from controllers.anycast_ip.case import Case, Do, Known, Step
from controllers.anycast_ip.dispatch import Dispatch
from controllers.anycast_ip.in_cloud import Job
from controllers.pool import Pool
from kube.lease import LeadershipLost
from tests.fakes import FakeClock


class Desk:
    """A dispatch whose work waits on the desk until it is done."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.work: list[Callable[[], None]] = []
        self.taken: list[tuple[Do, list[str]]] = []
        self.failed: list[tuple[str, str]] = []
        self.fail: Exception | None = None
        self.refuse: dict[str, Exception] = {}
        self.woken = 0
        steps = {do: self._step(do) for do in Do}
        self.dispatch = Dispatch(
            steps,
            failed=lambda case, do, error: self.failed.append((case.uid, str(do))),
            hand_out=self.work.append,
            done=self._wake,
            clock=self.clock,
        )

    def _wake(self) -> None:
        self.woken += 1

    def _step(self, do: Do) -> Callable[[Job], dict[str, Exception]]:
        def take(job: Job) -> dict[str, Exception]:
            self.taken.append((do, [case.uid for case, _ in job]))
            if self.fail:
                raise self.fail
            return self.refuse

        return take

    def start(self, do: Do, *cases: Case) -> float:
        busy = self.dispatch.busy
        return self.dispatch.start((case, Step(do)) for case in cases if case.uid not in busy)

    def finish(self) -> None:
        work, self.work[:] = list(self.work), []
        for each in work:
            each()


def cases(count: int) -> list[Case]:
    return [Case(f"u{number}", None, None, Known()) for number in range(count)]


def error(kind: type[CloudError]) -> CloudError:
    return kind("Code", "message", action="A")


def test_a_batch_goes_together_and_the_next_after_a_distance() -> None:
    desk, many = Desk(), cases(150)
    desk.start(Do.LOOK, *many)
    assert len(desk.dispatch.busy) == 100
    desk.finish()
    due = desk.start(Do.LOOK, *many[100:])
    assert due == pytest.approx(desk.clock() + 0.3)
    assert not desk.work
    desk.clock.advance(0.3)
    desk.start(Do.LOOK, *many[100:])
    desk.finish()

    assert [len(uids) for _, uids in desk.taken] == [100, 50]


def test_only_so_many_are_at_it_at_a_time() -> None:
    desk, many = Desk(), cases(20)
    desk.start(Do.OPEN, *many)
    assert len(desk.work) == 8
    desk.finish()
    assert desk.woken == 8
    assert desk.dispatch.busy == frozenset()
    desk.start(Do.OPEN, *many[8:])

    assert len(desk.work) == 8


def test_what_fails_is_tried_later_each_time() -> None:
    desk, (one,) = Desk(), cases(1)
    desk.fail = error(StateConflict)
    pauses = []
    for _ in range(3):
        desk.start(Do.UNBIND, one)
        desk.finish()
        due = desk.start(Do.UNBIND, one)
        assert not desk.work
        pauses.append(due - desk.clock())
        desk.clock.advance(pauses[-1])

    assert pauses == pytest.approx([0.5, 1, 2])
    assert desk.failed == [("u0", "unbind")] * 3


def test_of_a_batch_only_the_refused_fail() -> None:
    desk, two = Desk(), cases(2)
    desk.refuse = {"u1": error(StateConflict)}
    desk.start(Do.RELEASE, *two)
    desk.finish()

    assert desk.failed == [("u1", "release")]


@pytest.mark.parametrize("kind", [QuotaExceeded, NotPermitted])
def test_what_stands_in_the_way_of_all_is_tried_by_one_for_the_others(kind: type[CloudError]) -> None:
    desk, many = Desk(), cases(20)
    desk.fail = error(kind)
    desk.start(Do.ALLOCATE, many[0])
    desk.finish()
    assert desk.start(Do.ALLOCATE, *many[1:]) == pytest.approx(desk.clock() + 10)
    assert not desk.work
    desk.start(Do.BIND, many[1])
    assert len(desk.work) == 1
    desk.finish()
    desk.clock.advance(10)
    desk.fail = None
    desk.start(Do.ALLOCATE, *many[1:])
    assert len(desk.work) == 1
    desk.finish()
    desk.start(Do.ALLOCATE, *many[2:])

    assert len(desk.work) > 1


def test_refusals_that_come_together_count_as_one() -> None:
    desk, many = Desk(), cases(20)
    desk.fail = error(QuotaExceeded)
    desk.start(Do.ALLOCATE, *many)
    together = len(desk.work)
    assert together > 1
    desk.finish()

    assert desk.start(Do.ALLOCATE, *many[together:]) == pytest.approx(desk.clock() + 10)


def test_a_bug_in_one_step_is_a_failure_of_that_step() -> None:
    desk, (one,) = Desk(), cases(1)
    desk.fail = RuntimeError("bug")
    desk.start(Do.BIND, one)
    desk.finish()

    assert desk.failed == [("u0", "bind")]
    assert desk.dispatch.busy == frozenset()


def test_leadership_that_is_lost_on_a_thread_is_known() -> None:
    desk, (one,) = Desk(), cases(1)
    desk.fail = LeadershipLost("lost")
    desk.start(Do.BIND, one)
    desk.finish()

    assert desk.dispatch.lost is desk.fail
    assert desk.failed == []


def test_a_pool_does_all_that_was_handed_in_before_it_closes() -> None:
    done: list[int] = []
    pool = Pool("test", 3)
    for number in range(50):
        pool.submit(lambda number=number: done.append(number))  # type: ignore[misc]
    pool.close()

    assert sorted(done) == list(range(50))
