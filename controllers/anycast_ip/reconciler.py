"""Round after round, each node takes its next step, together with all others that the same call can serve."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from datetime import datetime

import structlog

from cloud.types import Address
from controllers.anycast_ip.claim_store import Book
from controllers.anycast_ip.dispatch import Dispatch
from controllers.anycast_ip.node_writer import Nodes
from controllers.anycast_ip.orphans import Orphans
from controllers.anycast_ip.planner import is_leaving, next_step
from controllers.anycast_ip.reporter import Reporter, count, is_open, refusal
from controllers.anycast_ip.resync import Sweep, compare
from controllers.anycast_ip.snapshot import Scene, cases
from controllers.anycast_ip.state import Case, Do, Known, Note, Step
from controllers.liveness import Heartbeat
from settings import AnycastIPSettings
from webhook.anycast_ip import wanted

SHORTEST, LONGEST = 0.1, 5.0
"""Seconds between two rounds."""
NOTICE = 0.5
"""Seconds within which a stop is noticed."""
LOAD, LEAST_LOAD = 20.0, 4.0
"""A round is followed by a pause of so many times its own length; of the first, up to BREAK."""
BREAK = 0.6
"""Seconds in which the calls under way, as many as a lane has, keep the cloud busy at its rate."""
SPENT = 3600.0
"""Seconds for which an address that was given up is not taken for a free one, though a list may still have it."""
BLINDLY = (Do.CLOSE, Do.FREE)
"""Steps for which nothing has to be known of any address."""

log = structlog.stdlib.get_logger(__name__)


def pause_after(took: float) -> float:
    """Seconds to the next round: a twentieth of a processor is enough for rounds, unless nodes would wait for them."""
    return max(SHORTEST, min(LOAD * took, BREAK), LEAST_LOAD * took)


class Reconciler:
    """*hand_out* takes work for another thread, which calls *done* when some has been done.

    *clock* is monotonic, *now* the time of day.
    """

    def __init__(
        self,
        nodes: Nodes,
        book: Book,
        sweep: Sweep,
        orphans: Orphans,
        dispatch: Dispatch,
        reporter: Reporter,
        settings: Callable[[], AnycastIPSettings],
        *,
        hand_out: Callable[[Callable[[], None]], None],
        done: Callable[[], None],
        clock: Callable[[], float],
        now: Callable[[], datetime],
    ) -> None:
        self._nodes, self._book, self._sweep, self._orphans = nodes, book, sweep, orphans
        self._dispatch, self._reporter, self._settings = dispatch, reporter, settings
        self._hand_out, self._done, self._clock, self._now = hand_out, done, clock, now
        self._known: dict[str, Known] = {}
        self._spent: dict[str, float] = {}

    def run(self, wake: threading.Event, stop: threading.Event) -> None:
        """Until *stop*, a round whenever *wake* is set or something is due. LeadershipLost."""
        beat = Heartbeat("anycast_ip_rounds")
        while not stop.is_set():
            beat()
            wake.clear()
            began = self._clock()
            due = self.turn()
            stop.wait(pause_after(self._clock() - began))
            self._rest(wake, stop, min(due, self._clock() + LONGEST))

    def _rest(self, wake: threading.Event, stop: threading.Event, until: float) -> None:
        while not stop.is_set() and (left := until - self._clock()) > 0:
            if wake.wait(min(left, NOTICE)):
                return

    def turn(self) -> float:
        """One round; returns when the next is due, on the clock."""
        if self._dispatch.lost:
            raise self._dispatch.lost
        settings = self._settings()
        self._begin_reading(settings)
        busy = self._dispatch.busy
        self._take_in_news(busy)
        planned = [(case, self._step(case, settings)) for case in self._cases(settings, busy)]
        count(planned, settings)
        for case, step in planned:
            self._say(case, step)
        return min(self._dispatch.start(planned), self._sweep.due)

    def _begin_reading(self, settings: AnycastIPSettings) -> None:
        self._sweep.hasten(settings.resync_period)
        if self._sweep.due <= self._clock():
            self._sweep.begin(settings.resync_period)
            self._hand_out(self._sweep_and_wake)
        if self._orphans.is_due(settings.reverse_reconcile):
            self._hand_out(lambda: self._orphans.run(settings.reverse_reconcile))

    def _sweep_and_wake(self) -> None:
        self._sweep.run()
        self._done()

    def _take_in_news(self, busy: frozenset[str]) -> None:
        if (news := self._sweep.news()) is not None:
            self._forget_spent({each.id for each in news})
            idle = {uid: known for uid, known in self._known.items() if uid not in busy}
            opened = {uid for uid, node in self._nodes.by_uid().items() if is_open(node)}
            compare(news, self._book.claims, idle, opened)

    def _forget_spent(self, listed: Collection[str]) -> None:
        """What is not listed any more for long cannot be mistaken for a free address."""
        now = self._clock()
        self._spent = {each: now if each in listed else at for each, at in self._spent.items()}
        self._spent = {each: at for each, at in self._spent.items() if now - at < SPENT}

    def _cases(self, settings: AnycastIPSettings, busy: frozenset[str]) -> list[Case]:
        scene = Scene(self._nodes.by_uid(), self._book.claims, self._unspent())
        for uid in self._known.keys() - scene.nodes.keys() - scene.claims.keys() - busy:
            del self._known[uid]
            self._dispatch.forget(uid)
        return cases(scene, self._known, settings, busy=busy, now=self._now())

    def _unspent(self) -> Sequence[Address]:
        return [each for each in self._sweep.addresses or () if each.id not in self._spent]

    def _step(self, case: Case, settings: AnycastIPSettings) -> Step:
        if case.node and wanted(case.node, settings):
            case.known.was_wanted = True
        if case.claim and not is_leaving(case.node, case.claim, settings):
            case.known.confirmed = False
        step = next_step(case, settings)
        if self._sweep.addresses is None and step.do not in BLINDLY:
            return Step(Do.NOTHING, self._blind(step))
        return step

    def _blind(self, step: Step) -> Note | None:
        """Before the cluster's addresses were read once, nothing is known well enough to act upon."""
        if self._sweep.error is None or step.do is Do.NOTHING:
            return step.note
        return refusal("FailedAllocateAnycastIp", self._sweep.error)

    def _say(self, case: Case, step: Step) -> None:
        if step.note:
            self._reporter.note(case, step.note)
        if step.do is Do.CLOSE:
            self._reporter.closed(case)
        if step.do in (Do.FORGET, Do.RENEW) and case.claim:
            self._spent[case.claim.address] = self._clock()
