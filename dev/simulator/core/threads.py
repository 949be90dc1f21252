"""``threading`` as the product uses it, on the tasks of a kernel.

Waiters are woken in the order in which they came, as in CPython. Now and then a task that takes a free lock lets
others go first: real threads are preempted anywhere.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from types import SimpleNamespace
from typing import Any

from dev.simulator.core.kernel import Kernel, Task

PREEMPTED = 0.01
"""The share of takings of a free lock before which others run."""


def threading(kernel: Kernel) -> Any:
    """The module's stand-in."""

    def me() -> Task:
        task = kernel.task
        assert task is not None, "outside any task"
        return task

    def limit(timeout: float | None) -> float:
        return math.inf if timeout is None or timeout < 0 else timeout

    class Lock:
        def __init__(self) -> None:
            self._owner: Any = None
            self._waiters: deque[Task] = deque()

        def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
            if blocking and kernel.task is not None and kernel.dice.random() < PREEMPTED:
                kernel.park(kernel.dice.random() * 0.002)
            if self._owner is None:
                self._owner = kernel.task or True
                return True
            if not blocking:
                return False
            deadline = kernel.now + limit(timeout)
            while self._owner is not None:
                self._waiters.append(me())
                woken = kernel.park(deadline - kernel.now)
                if not woken and kernel.now >= deadline:
                    if me() in self._waiters:
                        self._waiters.remove(me())
                    return False
            self._owner = me()
            return True

        def release(self) -> None:
            if self._owner is None:
                raise RuntimeError("release unlocked lock")
            self._owner = None
            if self._waiters:
                kernel.wake(self._waiters.popleft())

        def locked(self) -> bool:
            return self._owner is not None

        def _at_fork_reinit(self) -> None:
            self._owner = None

        def __enter__(self) -> bool:
            return self.acquire()

        def __exit__(self, *_: object) -> None:
            self.release()

    class RLock:
        def __init__(self) -> None:
            self._block, self._count = Lock(), 0
            self._owner: Any = None

        def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
            current: Any = kernel.task or kernel
            if self._owner is current:
                self._count += 1
                return True
            if self._block.acquire(blocking, timeout):
                self._owner, self._count = current, 1
                return True
            return False

        def release(self) -> None:
            if self._owner is not (kernel.task or kernel):
                raise RuntimeError("cannot release un-acquired lock")
            self._count -= 1
            if not self._count:
                self._owner = None
                self._block.release()

        def __enter__(self) -> bool:
            return self.acquire()

        def __exit__(self, *_: object) -> None:
            self.release()

        def _release_save(self) -> int:
            count, self._count, self._owner = self._count, 0, None
            self._block.release()
            return count

        def _acquire_restore(self, count: int) -> None:
            self._block.acquire()
            self._owner, self._count = kernel.task or kernel, count

    class Condition:
        def __init__(self, lock: Any = None) -> None:
            self._lock = lock or RLock()
            self.acquire, self.release = self._lock.acquire, self._lock.release
            self._waiters: deque[Task] = deque()

        def __enter__(self) -> Any:
            return self._lock.__enter__()

        def __exit__(self, *_: object) -> None:
            self._lock.__exit__()

        def wait(self, timeout: float | None = None) -> bool:
            task, saved = me(), self._saved()
            self._waiters.append(task)
            try:
                woken = kernel.park(limit(timeout) if timeout is None or timeout >= 0 else 0.0)
                if not woken and task in self._waiters:
                    self._waiters.remove(task)
                return woken
            finally:
                self._restored(saved)

        def _saved(self) -> Any:
            if isinstance(self._lock, RLock):
                return self._lock._release_save()
            return self._lock.release()

        def _restored(self, saved: Any) -> None:
            if isinstance(self._lock, RLock):
                self._lock._acquire_restore(saved)
            else:
                self._lock.acquire()

        def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
            deadline = kernel.now + limit(timeout)
            while not (result := predicate()):
                left = deadline - kernel.now
                if left <= 0:
                    return predicate()
                self.wait(None if left == math.inf else left)
            return result

        def notify(self, n: int = 1) -> None:
            for _ in range(min(n, len(self._waiters))):
                kernel.wake(self._waiters.popleft())

        def notify_all(self) -> None:
            self.notify(len(self._waiters))

    class Event:
        def __init__(self) -> None:
            self._flag = False
            self._waiters: list[Task] = []

        def is_set(self) -> bool:
            return self._flag

        def set(self) -> None:
            self._flag = True
            waiters, self._waiters = self._waiters, []
            for each in waiters:
                kernel.wake(each)

        def clear(self) -> None:
            self._flag = False

        def wait(self, timeout: float | None = None) -> bool:
            deadline = kernel.now + (math.inf if timeout is None else max(0.0, timeout))
            while not self._flag:
                self._waiters.append(me())
                if not kernel.park(deadline - kernel.now) and kernel.now >= deadline:
                    if me() in self._waiters:
                        self._waiters.remove(me())
                    break
            return self._flag

    class Semaphore:
        def __init__(self, value: int = 1) -> None:
            self._cond, self._value = Condition(Lock()), value

        def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
            with self._cond:
                if not self._value and not blocking:
                    return False
                if not self._cond.wait_for(lambda: self._value, timeout):
                    return False
                self._value -= 1
                return True

        def release(self, n: int = 1) -> None:
            with self._cond:
                self._value += n
                self._cond.notify(n)

        def __enter__(self) -> bool:
            return self.acquire()

        def __exit__(self, *_: object) -> None:
            self.release()

    numbers = count(1)

    class Thread:
        def __init__(
            self,
            group: None = None,
            target: Callable[..., object] | None = None,
            name: str | None = None,
            args: Iterable[Any] = (),
            kwargs: Mapping[str, Any] | None = None,
            *,
            daemon: bool | None = None,
        ) -> None:
            self._target, self._args, self._kwargs = target, tuple(args), dict(kwargs or {})
            self.name, self.daemon = name or "thread", bool(daemon)
            self._task: Task | None = None
            self._ended = Event()
            self.ident: int | None = None
            self._number = next(numbers)

        def __hash__(self) -> int:
            """An executor keeps its threads in a set, whose order must not depend on where they are in memory."""
            return self._number

        def start(self) -> None:
            if self._task is not None:
                raise RuntimeError("threads can only be started once")
            self._task = kernel.spawn(self._bootstrap, self.name, data=self)
            self.ident = self._number

        def _bootstrap(self) -> None:
            try:
                self.run()
            finally:
                self._ended.set()

        def run(self) -> None:
            if self._target:
                self._target(*self._args, **self._kwargs)

        def join(self, timeout: float | None = None) -> None:
            if self._task is None:
                raise RuntimeError("cannot join thread before it is started")
            self._ended.wait(timeout)

        def is_alive(self) -> bool:
            return self._task is not None and not self._ended.is_set()

    class Timer(Thread):
        def __init__(
            self,
            interval: float,
            function: Callable[..., object],
            args: Any = None,
            kwargs: Any = None,
        ) -> None:
            super().__init__(target=function, args=args or (), kwargs=kwargs)
            self.interval, self.finished = interval, Event()

        def cancel(self) -> None:
            self.finished.set()

        def run(self) -> None:
            self.finished.wait(self.interval)
            if not self.finished.is_set():
                super().run()
            self.finished.set()

    class Local:
        def __getattr__(self, name: str) -> Any:
            try:
                return _locals(self)[name]
            except KeyError:
                raise AttributeError(name) from None

        def __setattr__(self, name: str, value: Any) -> None:
            _locals(self)[name] = value

        def __delattr__(self, name: str) -> None:
            try:
                del _locals(self)[name]
            except KeyError:
                raise AttributeError(name) from None

    def _locals(local: Any) -> dict[str, Any]:
        held = kernel.task.locals if kernel.task else outside
        found: dict[str, Any] = held.setdefault(local, {})
        return found

    outside: dict[Any, Any] = {}
    main = SimpleNamespace(name="MainThread", daemon=False, is_alive=lambda: True, ident=0)

    def current_thread() -> Any:
        task = kernel.task
        return task.data if task is not None and isinstance(task.data, Thread) else main

    return SimpleNamespace(
        Lock=Lock,
        RLock=RLock,
        Condition=Condition,
        Event=Event,
        Semaphore=Semaphore,
        BoundedSemaphore=Semaphore,
        Thread=Thread,
        Timer=Timer,
        local=Local,
        current_thread=current_thread,
        _register_atexit=lambda *_args, **_kwargs: None,
    )
