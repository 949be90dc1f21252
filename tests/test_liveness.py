"""A process is alive unless work of it hangs, or an informer that it has started is silent."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from controllers import liveness
from controllers.executor import Executor
from controllers.liveness import LONGEST_RUN, LONGEST_SILENCE, diagnose
from controllers.workqueue import WorkQueue
from dev.lab.informing import informer_of
from dev.lab.waiting import until
from kube.client import Client
from kube.informer import RUNNING as LISTENING
from kube.resources import NODES
from kube.types import Node
from tests.fakes import FakeClock
from tests.metrics import sample

HANGS = "liveness has been at one piece of work for 601 s, the bound is 600 s"


def test_a_queue_whose_oldest_running_key_is_over_its_bound_is_not_alive() -> None:
    clock = FakeClock()
    queue = WorkQueue("liveness", clock=clock)
    queue.add("a")
    queue.get(wait=False)
    clock.advance(LONGEST_RUN)
    assert diagnose([queue], []) is None
    clock.advance(1.0)
    assert diagnose([queue], []) == HANGS
    queue.done("a")
    assert diagnose([queue], []) is None


@pytest.mark.parametrize(
    ("silence", "expected"),
    [
        (LONGEST_SILENCE, None),
        (LONGEST_SILENCE + 1, "nothing was received of nodes for 421 s, the bound is 420 s"),
    ],
)
def test_an_informer_whose_silence_is_over_its_bound_is_not_alive(
    silence: float, expected: str | None
) -> None:
    nodes: Any = SimpleNamespace(kind="nodes", silence=silence, optional=False)
    others: Any = SimpleNamespace(kind="pods", silence=silence, optional=True)
    assert diagnose([], [nodes, others]) == expected


def test_work_that_hangs_in_an_executor_is_not_alive() -> None:
    clock, release = FakeClock(), threading.Event()
    pool = Executor("liveness", 2, clock)
    with pool as submit:
        submit(lambda: release.wait(10) and None)
        until(lambda: bool(pool._since))
        clock.advance(LONGEST_RUN + 1)
        problem = diagnose([pool], [])
        release.set()

    assert problem == HANGS
    assert diagnose([pool], []) is None


def test_an_unexpected_exception_in_an_executor_is_counted_and_ends_no_thread() -> None:
    def failures() -> float:
        return sample("drawbridge_executor_failures_total", name="failing")

    before, done = failures(), []

    def fail(error: BaseException) -> None:
        raise error

    with Executor("failing", 1) as submit:
        submit(lambda: fail(ValueError("a bug")))
        submit(lambda: fail(SystemExit(3)))
        submit(lambda: done.append(1))

    assert (done, failures() - before) == ([1], 2)


def test_all_that_is_begun_is_watched_and_an_informer_until_it_is_stopped() -> None:
    client: Any = Client
    queue, pool = WorkQueue("watched"), Executor("watched", 0)
    informer = informer_of(client, NODES, Node)
    assert {queue, pool} <= set(liveness.RUNNING.list())
    assert informer.source not in LISTENING.list()
    informer.source.start()
    assert informer.source in LISTENING.list()
    informer.stop()
    assert informer.source not in LISTENING.list()
