"""Put a kernel's time, threads and chance where product code takes them from: ``runtime``.

To be called in a fresh interpreter, before any product module is imported: each of them binds these names once.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 - what it imports is loaded with the real modules
import importlib.util
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import ModuleType, SimpleNamespace
from typing import Any

from prometheus_client import Gauge

from dev.simulator.core.kernel import Kernel, Process
from dev.simulator.core.threads import threading

PACKAGE = "runtime"


class Installed(Exception):
    """Product code was imported before its seam was replaced."""


def install(kernel: Kernel) -> None:
    if PACKAGE in sys.modules:
        raise Installed(f"{PACKAGE} was imported before the simulator replaced it")
    replaced: Any = ModuleType(PACKAGE)
    replaced.threading = threads = threading(kernel)
    replaced.time = clock = time_of(kernel)
    replaced.random = kernel.dice
    replaced.secrets = SimpleNamespace(token_hex=lambda size=32: kernel.dice.randbytes(size).hex())
    replaced.uuid4 = lambda: uuid.UUID(bytes=kernel.dice.randbytes(16), version=4)
    replaced.utc_now = lambda: datetime.fromtimestamp(kernel.time(), UTC)
    with standing_in(threading=threads, time=clock, _queue=None):
        queues = fresh("queue")
        with standing_in(queue=queues):
            base = fresh("concurrent.futures._base")
            with standing_in(**{"concurrent.futures._base": base}):
                pool = fresh("concurrent.futures.thread")
    replaced.queue = queues
    replaced.SimpleQueue = queues.SimpleQueue
    replaced.futures = SimpleNamespace(
        **{name: getattr(base, name) for name in dir(base) if not name.startswith("_")},
        ThreadPoolExecutor=futures_pool(pool, base),
    )
    sys.modules[PACKAGE] = replaced
    separate_gauges(kernel)


def separate_gauges(kernel: Kernel) -> None:
    """Each process has a registry; in the one of the simulator, a gauge shows what the last that lives has set."""
    set_function = Gauge.set_function
    known: dict[Gauge, list[tuple[Process, Callable[[], float]]]] = {}

    def of_process(gauge: Gauge, function: Callable[[], float]) -> None:
        living = [each for each in known.get(gauge, ()) if not each[0].dead]
        known[gauge] = functions = [*living, (kernel.process, function)]

        def value() -> float:
            return next((each() for process, each in reversed(functions) if not process.dead), 0.0)

        set_function(gauge, value)

    Gauge.set_function = of_process  # type: ignore[assignment]


def time_of(kernel: Kernel) -> Any:
    import time

    return SimpleNamespace(
        monotonic=lambda: 1000.0 + kernel.now,
        time=kernel.time,
        sleep=kernel.sleep,
        perf_counter=lambda: kernel.now,
        thread_time=lambda: 0.0,
        gmtime=time.gmtime,
        strftime=time.strftime,
    )


def futures_pool(pool: Any, base: Any) -> Any:
    pool._base = base
    return pool.ThreadPoolExecutor


def fresh(name: str) -> Any:
    """A second copy of a module of the standard library, made with what stands in for what it imports."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextmanager
def standing_in(**modules: Any) -> Iterator[None]:
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module
