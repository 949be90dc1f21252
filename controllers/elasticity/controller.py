"""The feature as the leader runs it: what it follows, and the turns that it takes."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from controllers.elasticity.daemon_sets import Corrector
from controllers.elasticity.eligibility import Eligibility
from controllers.elasticity.following import Copies, GlobalSwitch, followed
from controllers.elasticity.gate_opener import keep_open
from controllers.elasticity.nodes import SuperNodes, matters
from controllers.elasticity.pod_cache import Book
from controllers.elasticity.pods import Pod
from controllers.elasticity.pvc_lookup import Claims
from controllers.elasticity.reconciler import Reconciler
from controllers.elasticity.reporter import Reporter
from controllers.elasticity.snapshot import Scene
from controllers.elasticity.super_node_reconciler import Registrar
from controllers.elasticity.takeover import Fence, may_have_been_decided_on
from controllers.elasticity.writer import Writer
from controllers.executor import Executor, Work
from controllers.manager import Context
from kube.client import Client
from kube.event_recorder import EventRecorder
from kube.leader_election import LeadershipLost
from settings import ElasticitySettings
from settings import Settings as AllSettings

THREADS = 48
"""As many writes at once as keep a pod from waiting: whoever creates pods has hundreds of requests under way."""
COMPANY = 0.01
"""Seconds between two turns at least, in which pods that are created together gather."""
LOAD = 2.0
"""A turn is followed by a pause of so many times its own length, in which its decisions are written."""
NOTICE = 0.5
"""Seconds within which a stop, or a loss, is noticed."""

Settings = Callable[[], ElasticitySettings]


def enabled(settings: AllSettings) -> bool:
    return settings.elasticity.enabled or settings.elasticity.open_gates


def run(context: Context, settings: Callable[[], AllSettings]) -> None:
    """Work until the context stops. While the feature is off, gates are opened."""

    def now() -> ElasticitySettings:
        return settings().elasticity

    while not context.stop.is_set():
        is_on = now().enabled
        with _while(lambda is_on=is_on: now().enabled == is_on, context.stop) as ending:  # type: ignore[misc]
            (place if is_on else keep_open)(replace(context, stop=ending), now)


def place(context: Context, settings: Settings) -> None:
    """As `run`, for as long as the feature is on."""
    with followed(context, settings()) as copies, _pool() as hand_out:
        if not context.stop.is_set():
            _work(Tools(context, settings, copies, hand_out))


@dataclass(frozen=True)
class Tools:
    """What the leader works with."""

    context: Context
    settings: Settings
    copies: Copies
    hand_out: Callable[[Work], None]
    book: Book = field(default_factory=Book)
    wake: threading.Event = field(default_factory=threading.Event)

    def listen(self) -> None:
        """Take in all that the copies know and are going to hear."""
        self.copies.pods.on_change(lambda old, new: self.wake.set() if self.book.observe(old, new) else None)
        self.copies.nodes.on_change(lambda old, new: self.wake.set() if matters(old, new) else None)
        self.copies.switches.on_change(lambda *_: self.wake.set())

    def fence(self) -> Fence:
        limits = self.settings().max_super_pods
        is_limited = bool(limits.total or limits.per_namespace)
        return Fence(
            self.context.client,
            self.book,
            f"{os.environ.get('POD_NAME', 'controllers')}_{secrets.token_hex(4)}",
            wanted=partial(may_have_been_decided_on, is_limited=is_limited),
            check=self.context.check,
            pause=self.context.stop.wait,
            wake=self.wake.set,
            is_limited=is_limited,
        )

    def reconciler(self, fence: Fence) -> Reconciler:
        return assemble(
            self.context.client,
            self.book,
            self.settings,
            self.context.recorder,
            switch=GlobalSwitch(self.copies, self.context.recorder, self.settings).read,
            nodes=self.copies.super_nodes,
            decidable=fence.decidable,
            first_ordinal=self.copies.first_ordinal,
            check=self.context.check,
            stopped=self.context.stop.is_set,
            hand_out=self.hand_out,
            wake=self.wake.set,
        )

    def corrector(self) -> Corrector:
        return Corrector(
            self.context.client,
            self.book,
            lambda: self.copies.super_nodes().names,
            self.context.recorder,
            self.settings,
            self.context.check,
        )

    def registrar(self) -> Registrar:
        return Registrar(
            self.context.client,
            self.copies.nodes.list,
            self.context.recorder,
            self.settings,
            check=self.context.check,
            now=lambda: datetime.now(UTC),
        )


def _work(tools: Tools) -> None:
    tools.listen()
    with (
        _beside("super-nodes", tools.registrar().run, tools.context.stop) as raise_loss,
        _beside("daemon-sets", tools.corrector().run, tools.context.stop) as raise_other_loss,
    ):
        fence = tools.fence()
        fence.put_up(tools.hand_out)
        checks = (raise_loss, raise_other_loss, fence.raise_loss)
        _run(tools.reconciler(fence), tools.wake, tools.context.stop, checks)


def assemble(
    client: Client,
    book: Book,
    settings: Settings,
    recorder: EventRecorder,
    *,
    switch: Callable[[], bool | None],
    nodes: Callable[[], SuperNodes],
    decidable: Callable[[], Callable[[str], bool]],
    first_ordinal: Callable[[Pod], int | None],
    check: Callable[[], None],
    stopped: Callable[[], bool],
    hand_out: Callable[[Work], None],
    wake: Callable[[], None],
    clock: Callable[[], float] = time.monotonic,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Reconciler:
    """All parts, put together; nothing is begun yet."""
    reporter = Reporter(recorder, now)
    writer = Writer(
        client, book, reporter, check=check, stopped=stopped, hand_out=hand_out, wake=wake, clock=clock
    )
    eligibility = Eligibility(
        Claims(client), lambda: settings().excluded_namespaces, hand_out=hand_out, wake=wake, clock=clock
    )

    def scene() -> Scene:
        may_decide = decidable()

        def may_begin(uid: str) -> bool:
            return may_decide(uid) and writer.may_begin(uid)

        return Scene(writer.under_way(), book, nodes(), settings(), switch(), may_begin, first_ordinal)

    return Reconciler(scene, writer, eligibility, reporter, clock=clock, now=now)


def _run(
    reconciler: Reconciler,
    wake: threading.Event,
    stop: threading.Event,
    checks: Iterable[Callable[[], None]],
) -> None:
    """A turn whenever *wake* is set or one is due; what a check raises ends it."""
    while not stop.is_set():
        wake.clear()
        began = time.monotonic()
        due = reconciler.turn()
        took = time.monotonic() - began
        stop.wait(max(COMPANY, LOAD * took))
        until = time.monotonic() + due
        while not stop.is_set():
            for each in checks:
                each()
            left = until - time.monotonic()
            if left <= 0 or wake.wait(min(left, NOTICE)):
                break


@contextmanager
def _while(holds: Callable[[], bool], stop: threading.Event) -> Iterator[threading.Event]:
    """An event that is set when *stop* is, or when something does not hold any more."""
    ending = threading.Event()

    def watch() -> None:
        while not ending.is_set() and holds() and not stop.wait(NOTICE):
            pass
        ending.set()

    threading.Thread(target=watch, name="elasticity-switch", daemon=True).start()
    try:
        yield ending
    finally:
        ending.set()


@contextmanager
def _pool() -> Iterator[Callable[[Work], None]]:
    pool = Executor("elasticity", THREADS)
    try:
        yield pool.submit
    finally:
        pool.close()


@contextmanager
def _beside(
    name: str, work: Callable[[threading.Event], None], stop: threading.Event
) -> Iterator[Callable[[], None]]:
    """*work* on a thread of its own; to be asked whether it has lost the leadership."""
    lost: list[LeadershipLost] = []

    def run() -> None:
        try:
            work(stop)
        except LeadershipLost as error:
            lost.append(error)

    def raise_loss() -> None:
        if lost:
            raise lost[0]

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield raise_loss
    finally:
        if stop.is_set():
            thread.join(10.0)
