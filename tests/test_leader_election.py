"""Two processes never lead at once, whatever the API server, the network and the clock do."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from dev.fake_api import FakeAPI
from dev.lab.waiting import until
from kube.errors import Conflict
from kube.leader_election import LeaderElector, LeadershipLost, StillWorking
from kube.lease_spec import LeaseSpec, Observed, acquired, may_take, observe
from kube.resources import LEASES
from settings import LeaderElection
from tests.metrics import sample
from tests.misbehaving_server import Answer, Asked, Server, answers, hangs, refuses, resets
from tests.test_controllers_main import LEASE, cluster, spec_of

NOW = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
HELD = LeaseSpec(holder_identity="other", lease_duration_seconds=15, renew_time="t1", lease_transitions=3)


def times(lease_duration: float, renew_deadline: float, retry_period: float) -> LeaderElection:
    return LeaderElection.model_construct(
        resource_name="drawbridge",
        resource_namespace="drawbridge",
        lease_duration=lease_duration,
        renew_deadline=renew_deadline,
        retry_period=retry_period,
    )


TIMES = times(1.0, 0.5, 0.05)


@pytest.mark.parametrize(
    ("spec", "now", "expected"),
    [
        pytest.param(HELD, 100.0, False, id="just seen"),
        pytest.param(HELD, 114.9, False, id="within the duration that the record names"),
        pytest.param(HELD, 115.0, True, id="run out"),
        pytest.param(
            LeaseSpec("other", lease_duration_seconds=60), 115.0, False, id="another duration than ours"
        ),
        pytest.param(
            LeaseSpec("other", lease_duration_seconds=1),
            114.9,
            False,
            id="shortened by hand, and led by ours",
        ),
        pytest.param(LeaseSpec("me", lease_duration_seconds=15), 100.0, True, id="ours"),
        pytest.param(LeaseSpec("", lease_duration_seconds=1), 100.0, True, id="released"),
        pytest.param(LeaseSpec(), 100.0, True, id="never held"),
    ],
)
def test_a_lease_may_be_taken_when_it_is_free_ours_or_run_out(
    spec: LeaseSpec, now: float, expected: bool
) -> None:
    assert may_take(Observed(spec, at=100.0), "me", 15.0, now) is expected


def test_the_time_of_another_leader_counts_from_the_last_change_that_we_saw() -> None:
    first = observe(None, HELD, 100.0)
    again = observe(first, HELD, 110.0)
    changed = observe(again, LeaseSpec(holder_identity="other", renew_time="t2"), 112.0)
    assert (first.at, again.at, changed.at) == (100.0, 100.0, 112.0)


@pytest.mark.parametrize(
    ("before", "transitions"),
    [
        pytest.param(LeaseSpec(), 0, id="first holder"),
        pytest.param(HELD, 4, id="from another"),
        pytest.param(LeaseSpec("", lease_transitions=4), 5, id="after a release"),
        pytest.param(LeaseSpec("me", lease_transitions=4), 4, id="from ourselves"),
    ],
)
def test_transitions_count_changes_of_hands(before: LeaseSpec, transitions: int) -> None:
    assert acquired(before, "me", 15.0, NOW) == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-02T03:04:05.000678Z",
        "renewTime": "2026-01-02T03:04:05.000678Z",
        "leaseTransitions": transitions,
    }


def holder(api: FakeAPI) -> str:
    return str(spec_of(api)["holderIdentity"]) if api.find(*LEASE) else ""


def take(api: FakeAPI) -> None:
    api.edit(
        LEASES, "drawbridge", {"spec": {"holderIdentity": "other", "leaseDurationSeconds": 1}}, "drawbridge"
    )


class Candidate:
    """A process that campaigns and, while it leads, works in short steps that it checks."""

    def __init__(self, server: Server, identity: str = "me", election: LeaderElection = TIMES) -> None:
        self.jump = 0.0
        self.stop = threading.Event()
        self.working = threading.Event()
        self.finish = threading.Event()
        self.finish.set()
        self.steps: list[float] = []
        self.raised: BaseException | None = None
        client = server.client(timeout=1)
        self.lease = LeaderElector(client, election, identity, self.clock)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def clock(self) -> float:
        return time.monotonic() + self.jump

    def lead(self, ending: threading.Event) -> None:
        self.working.set()
        while not ending.wait(0.01):
            if self.lease.is_leader:
                self.steps.append(time.monotonic())
        self.finish.wait(5)

    def ended(self, within: float = 3.0) -> BaseException | None:
        self.thread.join(within)
        assert not self.thread.is_alive()
        return self.raised

    def end(self) -> None:
        """As it should: nothing is raised."""
        self.stop.set()
        assert self.ended() is None

    def _run(self) -> None:
        try:
            self.lease.run(self.stop, self.lead)
        except BaseException as error:
            self.raised = error


@contextmanager
def leading(election: LeaderElection = TIMES) -> Iterator[tuple[FakeAPI, Server, Candidate]]:
    """A process that leads, named me."""
    with cluster() as (api, server):
        me = Candidate(server, election=election)
        assert me.working.wait(3)
        yield api, server, me


def test_the_first_creates_the_lease_leads_renews_and_releases_when_it_is_stopped() -> None:
    with leading() as (api, _, me):
        first = spec_of(api)["renewTime"]
        until(lambda: spec_of(api)["renewTime"] > first)
        assert (holder(api), me.lease.is_leader) == ("me", True)
        assert sample("drawbridge_leader", lease="drawbridge") == 1
        me.end()
        assert (holder(api), spec_of(api)["leaseDurationSeconds"], me.lease.is_leader) == ("", 1, False)
        assert sample("drawbridge_leader", lease="drawbridge") == 0


def test_annotations_are_written_at_once_beside_those_of_others() -> None:
    seldom = times(60, 40, 30)
    with leading(seldom) as (api, server, me):
        me.lease.annotate({"drawbridge.io/a": "1"})
        me.lease.annotate({"drawbridge.io/b": "2"})
        assert annotations_of(api) == {"drawbridge.io/a": "1", "drawbridge.io/b": "2"}
        me.end()

        other = Candidate(server, "other", seldom)
        assert other.working.wait(3)
        other.lease.annotate({"drawbridge.io/b": "3"})
        assert annotations_of(api) == {"drawbridge.io/a": "1", "drawbridge.io/b": "3"}
        other.end()


def test_annotations_that_could_not_be_written_are_written_later_and_never_for_a_former_leader() -> None:
    with leading(times(60, 40, 30)) as (api, _, me):
        api.edit(LEASES, "drawbridge", {"metadata": {"labels": {"a": "b"}}}, "drawbridge")
        with pytest.raises(Conflict):
            me.lease.annotate({"drawbridge.io/a": "1"})
        me.lease.annotate({"drawbridge.io/b": "2"})
        assert annotations_of(api) == {"drawbridge.io/a": "1", "drawbridge.io/b": "2"}
        take(api)
        with pytest.raises(Conflict):
            me.lease.annotate({"drawbridge.io/a": "3"})
        with pytest.raises(LeadershipLost):
            me.lease.annotate({"drawbridge.io/a": "3"})
        assert annotations_of(api)["drawbridge.io/a"] == "1"
        me.end()
        assert holder(api) == "other"


def annotations_of(api: FakeAPI) -> dict[str, str]:
    found: dict[str, str] = api.get(*LEASE)["metadata"].get("annotations", {})
    return found


def test_the_lease_is_renewed_until_the_work_has_stopped_and_only_then_released() -> None:
    with leading() as (api, _, me):
        me.finish.clear()
        me.stop.set()
        time.sleep(1.2 * TIMES.lease_duration)
        assert (holder(api), me.lease.is_leader) == ("me", True)
        me.finish.set()
        assert me.ended() is None
        assert holder(api) == ""


def test_what_else_the_lease_carries_survives() -> None:
    with cluster() as (api, server):
        metadata = {"name": "drawbridge", "namespace": "drawbridge", "labels": {"a": "b"}}
        api.put(LEASES, {"metadata": metadata, "spec": {"strategy": "OldestEmulationVersion"}})
        me = Candidate(server)
        assert me.working.wait(3)
        me.stop.set()
        me.ended()
    assert api.get(*LEASE)["metadata"]["labels"] == {"a": "b"}
    assert spec_of(api)["strategy"] == "OldestEmulationVersion"


FAULTS = [
    pytest.param(hangs, id="hangs"),
    pytest.param(resets, id="resets"),
    pytest.param(refuses(500, "InternalError"), id="fails"),
    pytest.param(refuses(403, "Forbidden"), id="forbids"),
    pytest.param(refuses(429, "TooManyRequests"), id="is overloaded"),
    pytest.param(answers(b"{"), id="answers bad JSON"),
]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_leader_that_cannot_renew_stops_its_work_before_others_may_begin(fault: Answer) -> None:
    failures = sample("drawbridge_lease_renew_failures_total")
    with leading() as (api, _, me):
        api.fault = lambda asked: fault
        began = time.monotonic()
        assert isinstance(me.ended(), LeadershipLost)
        assert me.steps[-1] - began <= TIMES.renew_deadline + 0.05
        assert time.monotonic() - began < TIMES.lease_duration
        with pytest.raises(LeadershipLost, match="drawbridge/drawbridge"):
            me.lease.check()
    assert sample("drawbridge_lease_renew_failures_total") > failures


@pytest.mark.parametrize("fault", FAULTS)
def test_a_leader_survives_a_short_fault(fault: Answer) -> None:
    with leading(times(3.0, 2.0, 0.05)) as (api, server, me):
        renewed = spec_of(api)["renewTime"]
        asked = len(server.asked)
        api.fault = lambda _: fault if len(server.asked) < asked + 2 else None
        until(lambda: spec_of(api)["renewTime"] > renewed)
        assert me.lease.is_leader
        me.end()


def test_a_renewal_whose_answer_was_lost_is_recognised_as_ours() -> None:
    with leading(times(1.0, 0.5, 0.02)) as (api, server, me):

        def lose_one_answer(asked: Asked) -> Answer | None:
            if asked.method != "PUT":
                return None
            api.fault = lambda asked: None
            api.answer(asked)
            return resets

        api.fault = lose_one_answer
        until(lambda: len(server.asked) > 20)
        assert me.lease.is_leader
        me.end()


@pytest.mark.parametrize(
    "happens",
    [
        pytest.param(take, id="taken"),
        pytest.param(lambda api: api.remove(*LEASE), id="deleted"),
    ],
)
def test_a_leader_whose_lease_is_not_its_own_any_more_stops_at_once(
    happens: Callable[[FakeAPI], None],
) -> None:
    with leading() as (api, _, me):
        happens(api)
        assert isinstance(me.ended(within=TIMES.renew_deadline), LeadershipLost)
        assert holder(api) in ("other", "")


def test_a_process_that_is_stopped_just_before_a_renewal_is_sent_finds_its_leadership_lost() -> None:
    with leading(times(6.0, 5.0, 4.0)) as (_, _, me):
        jumps = iter([0.0])  # for the check that precedes the call; then it is too late
        me.lease._clock = lambda: time.monotonic() + next(jumps, 60.0)
        with pytest.raises(LeadershipLost):
            me.lease.annotate({})
        me.stop.set()
        assert isinstance(me.ended(), LeadershipLost | None)


@pytest.mark.parametrize(
    ("later", "within"),
    [(60.0, 1.0), pytest.param(0.0, 2.0, id="also for a thread that has read its clock before")],
)
def test_a_process_that_was_stopped_for_a_while_has_lost_its_leadership(later: float, within: float) -> None:
    with leading(times(6.0, 5.0, 0.5)) as (_, _, me):
        me.jump = 60.0
        with pytest.raises(LeadershipLost):
            me.lease.check()
        me.jump = later
        assert isinstance(me.ended(within), LeadershipLost)
        assert not me.lease.is_leader


def test_leadership_begins_with_the_write_however_long_the_read_before_took() -> None:
    with cluster() as (api, server):

        def slow(asked: Asked) -> None:
            if asked.method == "GET":
                server.closing.wait(1.2 * TIMES.renew_deadline)

        api.fault = slow
        me = Candidate(server)
        until(lambda: len([each for each in server.asked if each.method != "GET"]) > 5)
        assert me.lease.is_leader
        me.end()


def test_a_duration_that_was_edited_is_that_of_the_leader_again() -> None:
    with leading() as (api, _, me):
        api.edit(LEASES, "drawbridge", {"spec": {"leaseDurationSeconds": 86400}}, "drawbridge")
        until(lambda: spec_of(api)["leaseDurationSeconds"] == 1)
        me.end()


def test_work_that_does_not_stop_is_left_behind_when_the_lease_runs_out() -> None:
    with leading() as (api, _, me):
        me.finish.clear()
        api.fault = lambda asked: refuses(500, "InternalError")
        assert isinstance(me.ended(within=1.5 * TIMES.lease_duration), LeadershipLost)
        me.finish.set()


@pytest.mark.parametrize(
    ("error", "held_by"),
    [
        pytest.param(ValueError("a bug"), "", id="a bug"),
        pytest.param(SystemExit(3), "", id="an exit"),
        pytest.param(StillWorking("a feature hangs"), "me", id="not while some of the work goes on"),
    ],
)
def test_what_the_work_raises_is_raised_and_the_lease_released(error: BaseException, held_by: str) -> None:
    def lead(_: threading.Event) -> None:
        raise error

    with cluster() as (api, server):
        lease = LeaderElector(server.client(), TIMES, "me")
        with pytest.raises(type(error)):
            lease.run(threading.Event(), lead)
        assert holder(api) == held_by


def test_a_candidate_that_never_led_can_be_stopped() -> None:
    with cluster() as (api, server):
        api.fault = lambda asked: refuses(403, "Forbidden")
        me = Candidate(server)
        until(lambda: server.asked)
        me.stop.set()
        assert me.ended(within=1.0) is None
        assert not me.working.is_set()
