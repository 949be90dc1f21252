"""The manager starts and stops all controllers together, and gives them what they share."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from controllers import informers
from controllers import manager as manager_module
from controllers.controller import Controller
from controllers.informers import Informers
from controllers.manager import Context, Run, identity, manage, run_all
from controllers.workqueue import WorkQueue
from dev.fake_api import FakeAPI, Reply, Request, refusal
from dev.fake_api.front import Connection
from dev.lab.waiting import until
from kube.client import Client
from kube.errors import Backoff, Conflict, Unreachable
from kube.leader_election import LeadershipLost, StillWorking
from kube.resources import PODS
from kube.types import Pod
from settings import LeaderElection
from tests.fakes import FakeRecorder
from tests.misbehaving_server import refuses, serving
from tests.test_client import WRITES

ROOT = Path(__file__).parent.parent


class Works:
    """A feature that works until its context says stop."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def __call__(self, context: Context) -> None:
        context.stop.wait(5)
        self.ended.set()


def breaks(context: Context) -> None:
    raise ValueError("a bug")


def context(check: Callable[[], None] = lambda: None) -> Context:
    nothing: Any = None
    return Context(nothing, Informers(nothing), nothing, check, threading.Event())


def outcome(run: Callable[[], None]) -> BaseException | None:
    """What *run* raises; it must end soon."""
    raised: list[BaseException] = []

    def catch() -> None:
        try:
            run()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=catch, daemon=True)
    thread.start()
    thread.join(5)
    assert not thread.is_alive()
    return raised[0] if raised else None


@pytest.mark.parametrize("order", [1, -1], ids=["the first breaks", "the last breaks"])
def test_a_feature_that_breaks_ends_all_and_its_error_is_raised(order: int) -> None:
    other, of_all = Works(), context()
    features: list[Run] = [breaks, other][::order]
    error = outcome(lambda: run_all(dict(zip("ab", features, strict=True)), of_all))
    assert (repr(error), other.ended.is_set(), of_all.stop.is_set()) == ("ValueError('a bug')", True, True)


class Hangs:
    """A feature that does not end."""

    def __init__(self) -> None:
        self.release = threading.Event()

    def __call__(self, context: Context) -> None:
        self.release.wait(30)


@pytest.mark.parametrize("other", [Works, lambda: breaks], ids=["stopped", "another breaks"])
def test_a_feature_that_does_not_end_is_not_waited_for_for_ever(other: Callable[[], Run]) -> None:
    hangs, of_all = Hangs(), context()
    threading.Timer(0.1, of_all.stop.set).start()
    error = outcome(lambda: run_all({"hangs": hangs, "other": other()}, of_all, within=0.3))
    hangs.release.set()

    assert isinstance(error, StillWorking)
    assert str(error) == "not ended within 0.3 s: controller-hangs"


def test_an_optional_kind_that_is_refused_ends_nothing_and_is_reported_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(informers, "LONGEST_SILENCE", 0.2)
    monkeypatch.setattr(manager_module, "CHECK", 0.05)
    other, stop, recorder, waits = Works(), threading.Event(), FakeRecorder(), threading.Event()

    def needs_pods(context: Context) -> None:
        pods = context.informers.of(PODS, Pod, optional=True)
        assert not context.wait_synced(pods)
        waits.set()

    with serving(lambda _: refuses(403, "Forbidden")) as server:
        election = LeaderElection.model_validate({"leaderElect": False})
        events: Any = recorder
        controllers = {"other": other, "needs pods": needs_pods}
        given = (controllers, server.client(), events, election, stop)
        runner = threading.Thread(target=manage, args=given, daemon=True)
        runner.start()
        until(lambda: len(server.lists) > 1)
        assert runner.is_alive()
        stop.set()
        runner.join(10)
    assert (waits.is_set(), recorder.reasons) == (True, ["WatchSilent"])
    assert "has sent no pods for" in recorder.events[0][1]


LONG_WRITES: list[Callable[[Client], object]] = [
    *WRITES,
    lambda client: client.create(PODS, {}, "default", timeout=60),
    lambda client: client.request("POST", PODS.path("default"), body={}, timeout=60),
]


@pytest.mark.parametrize(
    ("election", "longest"),
    [
        pytest.param({}, 5.0, id="by default"),
        pytest.param({"leaseDuration": "12s"}, 2.0, id="where another process may lead earlier"),
    ],
)
def test_no_write_of_a_leader_outlasts_the_time_after_which_another_may_lead(
    election: dict[str, str], longest: float
) -> None:
    api, limits = FakeAPI(), list[float]()

    def remember(call: Request, seconds: float) -> Reply:
        if "/pods" not in call.path:
            return api.handle(call)
        limits.append(seconds)
        return refusal(409, "Conflict", "not now")

    def writes(context: Context) -> None:
        assert context.grace == longest
        for write in LONG_WRITES:
            with pytest.raises(Conflict):
                write(context.client)

    api.ensure_namespace("drawbridge")
    recorder: Any = None
    given = (Client(Connection(remember), timeout=10), recorder, LeaderElection.model_validate(election))
    assert outcome(lambda: manage({"writes": writes}, *given, threading.Event())) is None
    assert limits == [longest] * len(LONG_WRITES)


def test_no_controller_makes_a_client_of_its_own() -> None:
    """But the program, whose manager has it, and the job that opens gates, which no leader does."""
    made = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "controllers").rglob("*.py")
        if re.search(r"\bClient(\.from_\w+)?\(", path.read_text())
    }

    jobs = {"controllers/elasticity/open_gates.py", "controllers/ingress_daemonset/attach_nodes.py"}
    assert made <= {"controllers/__main__.py", *jobs}


def test_a_container_that_was_restarted_in_its_pod_is_another_candidate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("POD_NAME", "controllers-0")
    first, second = identity(), identity()

    assert first != second
    assert first.startswith("controllers-0_")
    assert second.startswith("controllers-0_")


SOON = Backoff(base=0.01, cap=0.01)


def test_a_wait_ends_with_the_first_answer_and_passes_over_errors_that_pass() -> None:
    outcomes = [Unreachable("away"), ValueError("not yet"), "there"]

    def attempt() -> str:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    assert context().wait_for(attempt, SOON, "something", ValueError) == "there"
    outcomes[:] = [ValueError("a bug")]
    with pytest.raises(ValueError, match="a bug"):
        context().wait_for(attempt, SOON, "something")


def test_a_wait_ends_without_an_answer_when_it_is_time_to_stop() -> None:
    waiting = context()

    def attempt() -> str:
        waiting.stop.set()
        raise Unreachable("away")

    assert waiting.wait_for(attempt, Backoff(base=30, cap=30), "something") is None


@pytest.mark.parametrize("begun", [[], ["a"]], ids=["before a key", "in the middle of it"])
def test_a_worker_ends_where_it_finds_that_another_process_leads(begun: list[str]) -> None:
    def lost() -> None:
        raise LeadershipLost("another leads")

    def reconcile(key: str) -> None:
        seen.append(key)
        lost()

    queue, seen = WorkQueue("working"), list[str]()
    with context(check=(lambda: None) if begun else lost).running(Controller(queue, reconcile)):
        queue.add("a")
        until(lambda: not any(each.name == "working-0" for each in threading.enumerate()))
    assert seen == begun
