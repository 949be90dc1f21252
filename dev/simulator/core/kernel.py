"""Tasks take turns on one thread, in an order that a seed decides, on a clock that jumps to what is due next.

A task runs until it parks: to sleep, to wait, or for the time that a request takes. A process is a set of tasks that
die together, as by SIGKILL: a dead task is never resumed, so no ``finally`` of it runs.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from greenlet import getcurrent, greenlet

EPOCH = 1_767_323_045.0
"""The time of day, in seconds since 1970, at which each simulation begins."""
JITTER = 0.001
"""Seconds within which a task that was woken runs: who is first is chance."""
LONGEST_TURN = 200_000
"""So many turns at one instant are a hot loop."""

Work = Callable[[], object]


class HotLoop(Exception):
    """Tasks wake each other without time passing."""


@dataclass(eq=False)
class Process:
    """*skew* is what its machine's clock is ahead of the true time, in seconds."""

    name: str
    skew: float = 0.0
    dead: bool = False
    tasks: list[Task] = field(default_factory=list)


@dataclass(eq=False)
class Task:
    name: str
    process: Process
    thread: greenlet
    turn: int = 0
    """Counts its parks: a wake-up for an earlier one is void."""
    done: bool = False
    error: BaseException | None = None
    locals: dict[Any, Any] = field(default_factory=dict)
    data: Any = None


class Kernel:
    def __init__(self) -> None:
        self.task: Task | None = None
        """The one that runs; None within the kernel itself."""
        self.dice = Random(0)  # noqa: S311 - dice, no secret; each simulation seeds them
        self.now = 0.0
        self.system = Process("system")
        self.turns = 0
        self.failures: list[tuple[Task, BaseException]] = []
        self.after_turn: Callable[[], object] = lambda: None
        self._due: list[tuple[float, float, int, Task, int, bool]] = []
        self._count = 0
        self._hub: greenlet | None = None

    @property
    def process(self) -> Process:
        return self.task.process if self.task else self.system

    def time(self) -> float:
        """The time of day on the clock of the process that asks."""
        return EPOCH + self.now + self.process.skew

    def spawn(
        self, work: Work, name: str, process: Process | None = None, after: float = 0.0, data: Any = None
    ) -> Task:
        owner = process or self.process
        task: Task = Task(name, owner, greenlet(lambda *_: self._body(task, work)), data=data)
        owner.tasks.append(task)
        self._schedule(task, self.now + after, woken=True)
        return task

    def park(self, seconds: float = math.inf) -> bool:
        """Wait until woken, or for *seconds*; return whether it was woken."""
        task = self.task
        if task is None or getcurrent() is not task.thread:
            raise RuntimeError("only a task can wait")
        task.turn += 1
        if seconds < math.inf:
            self._schedule(task, self.now + max(0.0, seconds), woken=False)
        assert self._hub is not None
        return bool(self._hub.switch())

    def wake(self, task: Task) -> None:
        """Soon; void when it is not parked any more by then."""
        self._schedule(task, self.now + self.dice.random() * JITTER, woken=True)

    def sleep(self, seconds: float) -> None:
        self.park(seconds)

    def kill(self, process: Process) -> None:
        """At once; a process may kill itself: then this does not return."""
        process.dead = True
        if self.task and self.task.process is process:
            self.park()

    def run(self, until: float) -> None:
        """Until the clock shows *until*; raises what a task of the simulator itself raised."""
        self._hub = getcurrent()
        at_once = 0
        while self._due and self._due[0][0] <= until:
            at, _, _, task, turn, woken = heapq.heappop(self._due)
            if task.done or task.process.dead or turn != task.turn:
                continue
            if at > self.now:
                self.now, at_once = at, 0
            elif (at_once := at_once + 1) > LONGEST_TURN:
                raise HotLoop(f"{task.process.name}: {task.name}")
            self._resume(task, woken)
            self.after_turn()
        self.now = max(self.now, until)

    def _resume(self, task: Task, woken: bool) -> None:
        self.turns += 1
        task.turn += 1  # a second wake-up for the same park is void
        self.task = task
        task.thread.parent = self._hub  # to which its end returns
        try:
            task.thread.switch(woken)
        finally:
            self.task = None
        if task.error is not None and task.process is self.system:
            raise task.error

    def _body(self, task: Task, work: Work) -> None:
        try:
            work()
        except BaseException as error:
            task.error = error
            self.failures.append((task, error))
        finally:
            task.done = True
            task.process.tasks.remove(task)

    def _schedule(self, task: Task, at: float, *, woken: bool) -> None:
        self._count += 1
        heapq.heappush(self._due, (at, self.dice.random(), self._count, task, task.turn, woken))
