"""Steps are handed out in batches, not too many at a time, and what fails comes later."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cloud.errors import CloudError, NotPermitted, QuotaExceeded, Rejected, StateConflict, Unavailable
from controllers.anycast_ip.cloud_actions import Job
from controllers.anycast_ip.dispatch import Dispatch
from controllers.anycast_ip.state import Case, Do, Known, Step
from controllers.executor import Executor
from controllers.workqueue import Stopping
from kube.leader_election import LeadershipLost
from tests.fakes import FakeClock


def error(kind: type[CloudError]) -> CloudError:
    return kind("Code", "message", action="A")


class Desk:
    """A dispatch whose work waits on the desk until it is done."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.work: list[Callable[[], None]] = []
        self.taken: list[tuple[Do, list[str]]] = []
        self.failed: list[tuple[str, str]] = []
        self.waiting: list[str] = []
        self.fail: Exception | None = None
        self.refuse: dict[str, Exception] = {}
        self.spoil: dict[str, Exception] = {}
        self.woken = 0
        steps = {do: self._step(do) for do in Do}
        self.dispatch = Dispatch(
            steps,
            failed=lambda case, do, error: self.failed.append((case.uid, str(do))),
            waiting=lambda case, do, error: self.waiting.append(case.uid),
            hand_out=self.work.append,
            done=self._wake,
            clock=self.clock,
        )

    def _wake(self) -> None:
        self.woken += 1

    def _step(self, do: Do) -> Callable[[Job], dict[str, Exception]]:
        def take(job: Job) -> dict[str, Exception]:
            self.taken.append((do, [case.uid for case, _ in job]))
            spoiled = [self.spoil[case.uid] for case, _ in job if case.uid in self.spoil]
            for each in (self.fail, *spoiled):
                if each:
                    raise each
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
def test_what_one_node_is_refused_the_others_still_try(kind: type[CloudError]) -> None:
    desk, many = Desk(), cases(20)
    desk.fail = error(kind)
    desk.start(Do.ALLOCATE, many[0])
    desk.finish()
    desk.fail = None
    assert desk.start(Do.ALLOCATE, many[0]) == pytest.approx(desk.clock() + 10)
    desk.start(Do.ALLOCATE, *many)

    assert "u0" not in desk.dispatch.busy
    assert len(desk.work) == 12


@pytest.mark.parametrize("kind", [QuotaExceeded, NotPermitted])
def test_what_two_nodes_are_refused_is_tried_by_one_for_the_others(kind: type[CloudError]) -> None:
    desk, many = Desk(), cases(20)
    desk.fail = error(kind)
    for each in many[:2]:
        desk.start(Do.ALLOCATE, each)
        desk.finish()
    assert desk.start(Do.ALLOCATE, *many) == pytest.approx(desk.clock() + 10)
    assert not desk.work
    assert desk.waiting == [each.uid for each in many[2:]]
    desk.start(Do.BIND, many[1])
    assert len(desk.work) == 1
    desk.finish()
    desk.clock.advance(10)
    desk.fail = None
    desk.start(Do.ALLOCATE, *many)
    assert desk.dispatch.busy == {"u2"}  # one that was not refused
    desk.finish()
    desk.start(Do.ALLOCATE, *many)

    assert len(desk.work) == 12


def test_nodes_that_stay_refused_while_others_pass_hold_up_none_any_more() -> None:
    desk, many = Desk(), cases(4)
    for _ in range(2):
        desk.fail = error(NotPermitted)
        desk.start(Do.BIND, *many[:2])
        desk.finish()
        desk.clock.advance(300)
        desk.fail = None
        desk.start(Do.BIND, many[2])
        desk.finish()
    desk.fail = error(NotPermitted)
    desk.start(Do.BIND, *many[:2])
    desk.finish()
    desk.start(Do.BIND, many[3])

    assert desk.dispatch.busy == {"u3"}


@pytest.mark.parametrize(
    "fault", [error(NotPermitted), error(Rejected), RuntimeError("bug")], ids=["refused", "rejected", "bug"]
)
def test_a_batch_splits_on_the_one_that_spoils_it(fault: Exception) -> None:
    desk, many = Desk(), cases(40)
    desk.spoil = {"u17": fault}
    desk.start(Do.RELEASE, *many)
    desk.finish()

    assert desk.failed == [("u17", "release")]
    assert set().union(*(uids for _, uids in desk.taken if "u17" not in uids)) == {
        each.uid for each in many
    } - {"u17"}


def test_a_batch_that_is_refused_as_a_whole_costs_a_few_calls() -> None:
    desk, many = Desk(), cases(40)
    desk.fail = error(NotPermitted)
    desk.start(Do.RELEASE, *many)
    desk.finish()

    assert len(desk.failed) == 40
    assert len(desk.taken) <= 7


def test_a_batch_does_not_split_on_a_failure_of_the_call() -> None:
    desk, many = Desk(), cases(40)
    desk.fail = error(Unavailable)
    desk.start(Do.RELEASE, *many)
    desk.finish()

    assert (len(desk.failed), len(desk.taken)) == (40, 1)


def test_a_report_that_fails_frees_the_lane() -> None:
    desk, (one, two) = Desk(), cases(2)
    desk.fail, desk.failed = error(StateConflict), None  # type: ignore[assignment]
    desk.start(Do.WATCH, one)
    desk.finish()
    desk.clock.advance(1)
    desk.start(Do.WATCH, two)

    assert desk.dispatch.busy == {"u1"}
    assert desk.woken == 1


def test_a_stop_in_a_step_is_no_loss_of_leadership() -> None:
    desk, (one,) = Desk(), cases(1)
    desk.fail = Stopping("stop")
    desk.start(Do.BIND, one)
    desk.finish()

    assert desk.dispatch.lost is None
    assert (desk.failed, desk.dispatch.busy) == ([], frozenset())


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
    pool = Executor("test", 3)
    for number in range(50):
        pool.submit(lambda number=number: done.append(number))  # type: ignore[misc]
    pool.close()

    assert sorted(done) == list(range(50))
