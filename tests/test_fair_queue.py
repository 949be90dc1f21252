"""Who computes next: few at a time, first those who have used least; what waits or is stuck stops no others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from kube.waiting import acquired
from webhook import fair_queue
from webhook.fair_queue import FORGOTTEN, HALF_LIFE, Entrance, Places, Turns, Usage

PATIENCE = 20.0


def played(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scene, PATIENCE))


def used(**seconds: float) -> Usage:
    usage = Usage()
    for client, each in seconds.items():
        usage.add(client, each)
    return usage


@pytest.mark.parametrize(
    ("seconds", "came", "order"),
    [
        pytest.param({}, "abc", "abc", id="as they came"),
        pytest.param({"a": 2.0, "b": 1.0}, "abc", "cba", id="least used first"),
        pytest.param({"a": 0.1}, "aabb", "bbaa", id="a newcomer before a heavy one"),
        pytest.param({"a": 0.001}, "aabb", "baba", id="equal ones in turn"),
    ],
)
def test_the_next_place_is_for_the_client_that_has_used_least(
    seconds: Mapping[str, float], came: str, order: str
) -> None:
    usage, taken = used(**seconds), list[str]()
    places = Places(1, usage)

    async def visit(client: str) -> None:
        await places.take(client)
        taken.append(client)
        usage.add(client, 0.01)
        places.release()

    async def scene() -> None:
        await places.take("first")
        visits = [asyncio.create_task(visit(client)) for client in came]
        await asyncio.sleep(0)
        assert taken == []
        places.release()
        await asyncio.gather(*visits)
        assert "".join(taken) == order

    played(scene())


@pytest.mark.parametrize("given", [False, True], ids=["before it is given", "when it was just given"])
def test_who_leaves_the_line_keeps_no_place(given: bool) -> None:
    async def scene() -> None:
        places = Places(1, Usage())
        await places.take("first")
        gone, next_one = (asyncio.create_task(places.take(each)) for each in ("gone", "next"))
        await asyncio.sleep(0)
        if given:
            places.release()
            gone.cancel()
        else:
            gone.cancel()
            await asyncio.sleep(0)
            places.release()
        await next_one

    played(scene())


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


def test_few_of_a_flood_go_on_in_each_round_and_one_that_does_not_enter_before_them() -> None:
    async def scene() -> None:
        usage, done = Usage(), list[str]()
        entrance = Entrance(2, usage)
        flood = [asyncio.create_task(entrance.run("bad", partial(done.append, "bad"))) for _ in range(9)]
        other = asyncio.create_task(entrance.run("other", partial(done.append, "other")))
        await asyncio.sleep(0)
        await entrance.run("served", partial(done.append, "served"), enters=False)
        assert done == ["bad", "bad", "served"]
        await asyncio.gather(other, *flood)
        assert done.index("other") < 5
        assert usage.of("bad") > 0

    played(scene())


class Jobs:
    """*turns* in real threads; what each computes is as long as the test says."""

    def __init__(self, turns: int, usage: Usage | None = None) -> None:
        self.pool, self.computed, self.usage = ThreadPoolExecutor(8), 0.0, usage or Usage()
        self.turns = Turns(self.pool, turns, self.usage, cpu=lambda: self.computed)

    def begin(self, job: Callable[[], object], client: str = "a") -> asyncio.Task[object]:
        return asyncio.create_task(self.turns.run(client, job))

    def compute(self, seconds: float) -> None:
        self.computed += seconds


def test_what_a_turn_computes_is_counted_for_its_client() -> None:
    jobs = Jobs(1)

    async def scene() -> None:
        for _ in range(2):
            await jobs.begin(partial(jobs.compute, 0.25))

    played(scene())
    assert (jobs.usage.of("a"), jobs.usage.of("b")) == (0.5, 0.0)


def test_no_more_run_at_once_than_there_are_turns() -> None:
    async def scene() -> None:
        jobs, end, began = Jobs(2), threading.Event(), threading.Semaphore(0)

        def work() -> None:
            began.release()
            assert end.wait(PATIENCE)

        tasks = [jobs.begin(work) for _ in range(3)]
        for _ in range(2):
            await asyncio.to_thread(began.acquire)
        assert jobs.turns._places.free == 0
        assert not began.acquire(blocking=False)
        end.set()
        await asyncio.gather(*tasks)
        assert jobs.turns._places.free == 2

    played(scene())


@pytest.mark.parametrize("waits", [True, False], ids=["one that waits", "one that is stuck"])
def test_others_compute_beside(waits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what ends after its turn was lost gives no turn back a second time."""
    monkeypatch.setattr(fair_queue, "LONGEST", 2 * PATIENCE if waits else 0.01)

    async def scene() -> None:
        jobs, lock = Jobs(1), threading.Lock()
        lock.acquire()
        beside = jobs.begin(lambda: acquired(lock, PATIENCE) if waits else lock.acquire(timeout=PATIENCE))
        assert await jobs.begin(lambda: "done", "b") == "done"
        assert not beside.done()
        lock.release()
        assert await beside is True
        assert jobs.turns._places.free == 1

    played(scene())


def test_a_job_that_raises_ends_its_turn() -> None:
    async def scene() -> None:
        jobs = Jobs(1)
        with pytest.raises(ZeroDivisionError):
            await jobs.begin(lambda: 1 // 0)
        assert await jobs.begin(lambda: "done") == "done"

    played(scene())
