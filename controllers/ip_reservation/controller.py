"""Wire the controllers of reservations: releases, late and restored ones, pods that opt in, and promises to pods."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial

import structlog

from calico.ledger import Ledger
from calico.reservations import NotServed, Reservations
from calico.segment import IPReservation, Record
from controllers.clock import CLOCK
from controllers.controller import Controller, Watch
from controllers.informers import LONGEST_SILENCE, StaleInformer
from controllers.ip_reservation.caches import Caches, caches_of
from controllers.ip_reservation.calls import LiveReader
from controllers.ip_reservation.confirmations import PodAddresses
from controllers.ip_reservation.history import HistoryReconciler
from controllers.ip_reservation.late_reservations import (
    Departures,
    LateReconciler,
    Removals,
    RestoreReconciler,
)
from controllers.ip_reservation.opt_in import OptInReconciler, Workloads, workloads_of
from controllers.ip_reservation.pools import PoolWatch
from controllers.ip_reservation.release_reconciler import SEGMENTS, Crowding, ReleaseReconciler
from controllers.ip_reservation.reporter import Reporter
from controllers.ip_reservation.same_address import SameAddressReconciler
from controllers.ip_reservation.snapshot import SnapshotReader
from controllers.ip_reservation.swaps import Arrivals, SwapReconciler
from controllers.manager import Context
from controllers.workqueue import WorkQueue
from kube.errors import Backoff, KubeError
from kube.leader_election import LeadershipLost
from runtime import time
from settings import IPReservationSettings, Settings

PAUSES = Backoff(base=0.1, cap=15.0)
"""Failures are retried soon: addresses wait for it."""
LATE_WORKERS, RESTORE_WORKERS = 8, 4
"""They wait for the ledger together, so that their reservations share its writes."""
DEADLINE = 8.0
"""Seconds for one reservation; a leader that stops waits for those that have begun."""
LAST_WORK = 5.0
"""Seconds for queued reservations when the leader stops."""
WORKLOADS_WITHIN = 10.0
"""Seconds in which workloads are known before the first pod is judged."""
LOOK = 10.0
"""Seconds between two looks whether reservations have moved."""
PRESSURE_PAUSE = 0.1
"""Seconds between passes at least while a pool runs low."""

log = structlog.get_logger(__name__)


def run(context: Context, settings: Callable[[], Settings]) -> None:
    """Wait until Calico's IPReservation is served, then work until the context stops."""

    def current() -> IPReservationSettings:
        return settings().ip_reservation

    reservations = Reservations(context.client, current().calico_api_version)
    resource = context.wait_for(reservations.resource, PAUSES, "Calico's IPReservation", NotServed)
    if resource is None:
        return
    caches = caches_of(context.informers, resource)
    workloads = workloads_of(context.informers, caches.pods) if current().workload_opt_in else None
    if context.wait_synced(*caches.informers):
        _wait_for_workloads(context, workloads)
        _Leader(context, current, reservations, caches, workloads).work()


def _wait_for_workloads(context: Context, workloads: Workloads | None) -> None:
    """A moment: nothing but their own annotations depends on them, and they may not be readable."""
    end = time.monotonic() + WORKLOADS_WITHIN
    for informer in workloads.informers if workloads else ():
        while not (informer.wait_synced(0.1) or context.stop.is_set() or time.monotonic() > end):
            pass


class _Leader:
    """What the controllers share. A part that is off has none: it is switched on by a restart, done by the chart."""

    def __init__(
        self,
        context: Context,
        settings: Callable[[], IPReservationSettings],
        reservations: Reservations,
        caches: Caches,
        workloads: Workloads | None,
    ) -> None:
        self.context, self.settings, self.reservations = context, settings, reservations
        self.caches, self.workloads = caches, workloads
        self.live = LiveReader(context.client, reservations, CLOCK)
        self.reporter = Reporter(context.recorder, reservations.resource)
        self.ledger = Ledger(reservations, os.environ.get("POD_NAME", "controllers"))
        self.addresses, self.removals = PodAddresses(CLOCK), Removals(CLOCK)

    def work(self) -> None:
        late, restored = self.late(), self.restored()
        history = HistoryReconciler(self.context, self.settings)
        self.caches.pods.on_change(self.addresses.observe)
        controllers = [late, restored, self.swaps(), *self.annotating(), *self.releases()]
        if self.settings().pools.keeps_history:
            controllers.append(history.controller())
        with self.context.running(*controllers):
            while not self.context.stop.wait(LOOK):
                self.check_served()
            _finish((late.queue, restored.queue), self.context.check)
        history.finish()

    def late(self) -> Controller:
        """For pods that go without a record."""
        departures = Departures(self.caches, CLOCK)
        followed = self.workloads.followed if self.workloads else lambda pod: pod
        settings, reporter = self.settings, self.reporter
        late = LateReconciler(departures, self.caches, self.live, self.reserve, settings, reporter, followed)
        watch = Watch(self.caches.pods, departures.observe)
        return Controller("ip_reservation_late", late.reconcile, watch, workers=LATE_WORKERS, rate=PAUSES)

    def restored(self) -> Controller:
        """For segments that another client has changed."""
        settings, reporter, watch = (
            self.settings,
            self.reporter,
            Watch(self.caches.segments, self.removals.observe),
        )
        restore = RestoreReconciler(self.removals, self.caches, self.reserve, settings, reporter, CLOCK)
        return Controller(
            "ip_reservation_restore", restore.reconcile, watch, workers=RESTORE_WORKERS, rate=PAUSES
        )

    def swaps(self) -> Controller:
        """For pods that come up with an address of another pod."""
        arrivals = Arrivals(self.caches, self.addresses, self.settings, CLOCK)
        swaps = SwapReconciler(arrivals, self.live, self.settings, self.reporter)
        segments = Watch(self.caches.segments, arrivals.observe_segment)
        pods = Watch(self.caches.pods, arrivals.observe_pod)
        return Controller("ip_reservation_swaps", swaps.reconcile, segments, pods, rate=PAUSES)

    def annotating(self) -> Iterator[Controller]:
        """For pods that follow their workloads, and pods to which addresses were promised."""
        client, settings, reporter = self.context.client, self.settings, self.reporter
        if self.workloads:
            yield OptInReconciler(self.caches, self.workloads, client, settings, reporter).controller()
        if settings().same_address.enabled:
            yield SameAddressReconciler(self.caches, client, settings, reporter).controller()

    def releases(self) -> Iterator[Controller]:
        """For all segments together, and the pools that limit them."""
        queue, crowding = WorkQueue("ip_reservation_rounds", pauses=PAUSES), Crowding()
        pools = PoolWatch(self.context, self.settings, partial(queue.add_after, SEGMENTS, PRESSURE_PAUSE))
        if self.settings().pools.enabled:
            yield pools.controller()
        is_over = self.is_over
        reader = SnapshotReader(self.caches, self.live, self.addresses, CLOCK, pools.read, is_over)
        at = self.reservations, self.removals, self.settings, self.reporter, CLOCK, is_over
        watch = Watch(self.caches.segments, crowding.observe)
        yield Controller(queue, ReleaseReconciler(reader, *at).reconcile, watch, first=[SEGMENTS])

    def reserve(self, records: Sequence[Record]) -> IPReservation:
        return self.ledger.reserve(records, time.monotonic() + DEADLINE)

    def is_over(self) -> bool:
        self.context.check()
        return self.context.stop.is_set()

    def check_served(self) -> None:
        """Raise StaleInformer when another group serves reservations by now: a new process follows that one."""
        segments = self.caches.segments.source
        if segments.silence <= LONGEST_SILENCE:
            return
        with suppress(KubeError, NotServed):
            api_version = self.settings().calico_api_version
            served = Reservations(self.context.client, api_version).resource(timeout=DEADLINE)
            if served != segments.resource:
                raise StaleInformer(f"IPReservation is served in {served.api_version} now")


def _finish(queues: Sequence[WorkQueue], check: Callable[[], None]) -> None:
    """Finish queued reservations while we lead: the next leader does not know pods and records that are gone."""
    deadline = time.monotonic() + LAST_WORK
    try:
        while not all(queue.idle for queue in queues) and time.monotonic() < deadline:
            check()
            time.sleep(0.05)
    except LeadershipLost:
        log.warning("late reservations abandoned, leadership lost")
