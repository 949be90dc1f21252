"""The manager: elect a leader, start and stop all controllers, and give them what they share."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import structlog

from controllers.controller import Controller
from controllers.informers import LONGEST_SILENCE, Informers
from controllers.workqueue import Stopping, working
from kube.client import Client
from kube.errors import Backoff, KubeError
from kube.event_recorder import EventRecorder, Regarding
from kube.informer import Informer
from kube.leader_election import LeaderElector, StillWorking
from runtime import SimpleQueue, secrets, threading, time
from settings import LeaderElection

T = TypeVar("T")

STOP_WITHIN = 20.0
"""Seconds for all controllers to end: less than the pod is given, so that the log names the one that did not."""
CHECK = 1.0
"""Seconds between two checks for a stale informer."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Context:
    """What a controller works with until *stop*.

    *client* writes only while this process leads: it raises LeadershipLost, and a write that begins ends before another
    process may lead. For writes elsewhere, *check* raises the same; they end within *grace* seconds. It asks the clock.
    """

    client: Client
    informers: Informers
    recorder: EventRecorder
    check: Callable[[], None]
    stop: threading.Event
    namespace: str = "drawbridge"
    """The namespace of Drawbridge itself."""
    grace: float = math.inf
    annotate: Callable[[Mapping[str, str]], None] = lambda _: None
    """Write these annotations to the leader's Lease, now; without an election, nowhere. KubeError."""

    def wait_synced(self, *informers: Informer[Any]) -> bool:
        """Wait until all are complete; False if the context stopped before. Raises StaleInformer."""
        for informer in informers:
            while not informer.wait_synced(0.1):
                if self.stop.is_set():
                    return False
                self.informers.check()
        return not self.stop.is_set()

    def sleep(self, seconds: float) -> None:
        """Stopping when the context stops before."""
        if self.stop.wait(seconds):
            raise Stopping("a wait was cut short")

    def wait_for(
        self, attempt: Callable[[], T], pauses: Backoff, what: str, *errors: type[Exception]
    ) -> T | None:
        """Repeat *attempt* until it raises no KubeError and none of *errors*; None if the context stops before."""
        failures = 0
        passing: tuple[type[Exception], ...] = (KubeError, *errors)
        while not self.stop.is_set():
            try:
                return attempt()
            except passing as error:
                failures += 1
                log.warning("waiting for a prerequisite", resource=what, error=str(error))
                self.stop.wait(pauses.delay(failures))
        return None

    @contextmanager
    def running(self, *controllers: Controller) -> Iterator[None]:
        """Within the block, the *controllers* work; on exit, they finish what runs."""
        with ExitStack() as stack:
            for controller in controllers:
                work = working(controller.queue, controller.reconcile, controller.workers, self.check)
                stack.enter_context(work)
            for controller in controllers:
                controller.start()
            yield

    def run(self, *controllers: Controller) -> None:
        """As `running`, until the context stops."""
        with self.running(*controllers):
            self.stop.wait()


Run = Callable[[Context], None]
"""Works until its context stops, or raises."""


def manage(
    controllers: Mapping[str, Run],
    client: Client,
    recorder: EventRecorder,
    election: LeaderElection,
    stop: threading.Event,
) -> None:
    """Run *controllers* while this process leads, until *stop*.

    What one of them raises ends all and is raised here. LeadershipLost when another process may lead; StillWorking when
    a controller did not end in time: nothing may follow but the end of the process.
    """
    elector = LeaderElector(client, election, identity()) if election.leader_elect else None

    def lead(stop: threading.Event) -> None:
        informers = Informers(client)
        namespace = os.environ.get("POD_NAMESPACE") or election.resource_namespace
        context = Context(client, informers, recorder, lambda: None, stop, namespace)
        if elector:
            check, grace = elector.check, elector.grace
            fenced = client.fenced(check, grace)
            context = replace(context, client=fenced, check=check, grace=grace, annotate=elector.annotate)
        try:
            run_all({**controllers, "informers": _check_informers}, context)
        finally:
            informers.stop()

    if elector:
        elector.run(stop, lead)
    else:
        lead(stop)


def run_all(controllers: Mapping[str, Run], context: Context, *, within: float = STOP_WITHIN) -> None:
    """Each controller on a thread until the context's stop; when one raises all end, and its error is raised.

    Daemon threads: one that hangs must not keep a process that has lost its leadership.
    """
    failures: SimpleQueue[BaseException] = SimpleQueue()
    threads = [
        threading.Thread(
            target=_run, args=(controller, context, failures), name=f"controller-{name}", daemon=True
        )
        for name, controller in controllers.items()
    ]
    for thread in threads:
        thread.start()
    context.stop.wait()
    deadline = time.monotonic() + within
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    hanging = [thread.name for thread in threads if thread.is_alive()]
    error = None if failures.empty() else failures.get()
    if hanging:
        raise StillWorking(f"not ended within {within:g} s: {', '.join(hanging)}") from error
    if error:
        raise error


def own_pod() -> Regarding:
    return Regarding.pod(*(os.environ.get(name, "") for name in ("POD_NAMESPACE", "POD_NAME", "POD_UID")))


def identity() -> str:
    """Unique also when a restarted container has the name of the one before it: its pod's."""
    return f"{os.environ.get('POD_NAME', 'controllers')}_{secrets.token_hex(4)}"


def _check_informers(context: Context) -> None:
    known = frozenset[str]()
    while not context.stop.wait(CHECK):
        context.informers.check()
        silent = context.informers.silent()
        for kind in sorted(silent - known):
            log.warning("informer silent", kind=kind)
            context.recorder.event(
                own_pod(),
                "WatchSilent",
                f"The API server has sent no {kind} for {LONGEST_SILENCE:.0f} seconds, or refuses to: what needs them"
                " waits, and all else goes on. The log has the cause; drawbridge doctor checks the permissions",
                type="Warning",
            )
        known = silent


def _run(controller: Run, context: Context, failures: SimpleQueue[BaseException]) -> None:
    try:
        controller(context)
    except BaseException as error:
        failures.put(error)
    finally:
        context.stop.set()
