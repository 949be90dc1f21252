"""Run each seed in a process of its own, forked after all imports: no state passes from one to the next."""

from __future__ import annotations

import gc
import os
import pickle
import pkgutil
import selectors
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module

import cli
import controllers
import webhook
from dev.fake_api.schema import preload as preload_schema
from dev.fake_api.server import DEFAULT_KINDS
from dev.judge import Finding
from dev.simulator.core.kernel import Kernel
from dev.simulator.scenario import Scenario
from dev.simulator.simulation import simulate
from dev.simulator.world import Entry, chart_digest


@dataclass(frozen=True)
class Report:
    findings: list[Finding]
    history: list[Entry]
    digest: str


def preload() -> None:
    """Import what the product imports only when a feature is on: once, not in each process."""
    for package in (cli, controllers, webhook):
        for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not each.name.endswith(("__main__", "worker")):
                import_module(each.name)
    for name in ("cel_expr_python.ext.ext_optional", "cel_expr_python.ext.ext_strings", "flask.testing"):
        import_module(name)
    for kind in DEFAULT_KINDS:
        preload_schema(kind.schema)
    chart_digest()
    gc.collect()
    gc.freeze()


def run(kernel: Kernel, scenarios: Iterable[Scenario], jobs: int = 0) -> Iterator[tuple[Scenario, Report]]:
    """Each as soon as it is done."""
    preload()
    waiting = iter(scenarios)
    with selectors.DefaultSelector() as selector:
        running = 0
        for _ in range(jobs or os.cpu_count() or 1):
            running += _start_next(kernel, waiting, selector)
        while running:
            for key, _ in selector.select():
                scenario, child = key.data
                selector.unregister(key.fileobj)
                with open(key.fd, "rb") as pipe:
                    content = pipe.read()
                os.waitpid(child, 0)
                running -= 1
                running += _start_next(kernel, waiting, selector)
                yield scenario, pickle.loads(content)  # noqa: S301 - of our own child


def apart(kernel: Kernel, scenario: Scenario, left_out: Collection[int] = ()) -> Report:
    """One, without the operations of these numbers."""
    descriptor, child = _forked(lambda: _report(kernel, scenario, left_out))
    with open(descriptor, "rb") as pipe:
        content = pipe.read()
    os.waitpid(child, 0)
    found: Report = pickle.loads(content)  # noqa: S301 - of our own child
    return found


def _start_next(kernel: Kernel, waiting: Iterator[Scenario], selector: selectors.BaseSelector) -> int:
    scenario = next(waiting, None)
    if scenario is None:
        return 0
    descriptor, child = _forked(lambda: _report(kernel, scenario, ()))
    selector.register(descriptor, selectors.EVENT_READ, (scenario, child))
    return 1


def _report(kernel: Kernel, scenario: Scenario, left_out: Collection[int]) -> Report:
    try:
        outcome = simulate(kernel, scenario, left_out)
    except Exception as error:  # of the simulator itself: it is one failure of one seed, not the end of all
        text = "".join(traceback.format_exception(error)[-6:])
        return Report([Finding("the simulation runs", kernel.now, text)], [], "")
    return Report(outcome.findings, outcome.history, outcome.digest)


def _forked(work: Callable[[], Report]) -> tuple[int, int]:
    """The end of a pipe from which its pickled result can be read, and the child's number."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        os.close(writing)
        return reading, child
    os.close(reading)
    gc.disable()  # it ends before its garbage counts
    with open(writing, "wb") as pipe:
        pickle.dump(work(), pipe)
    os._exit(0)
