"""Wire the controllers of reservations: releases, late and restored ones, pods that opt in, and promises to pods."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import structlog

from calico.ledger import Ledger
from calico.reservations import NotServed, Reservations
from calico.segment import IPReservation, Record
from controllers.clock import CLOCK
from controllers.informers import LONGEST_SILENCE, StaleInformer
from controllers.ip_reservation.compaction import MANY, is_small
from controllers.ip_reservation.confirmations import PodAddresses
from controllers.ip_reservation.history_reconciler import HistoryReconciler
from controllers.ip_reservation.observers import Departures, Removals
from controllers.ip_reservation.opt_in import opting_in
from controllers.ip_reservation.pools import PoolWatch
from controllers.ip_reservation.reconcilers import (
    LateReconciler,
    ReleaseReconciler,
    RestoreReconciler,
    Settings,
)
from controllers.ip_reservation.reporter import Reporter
from controllers.ip_reservation.same_address import keeping_promises
from controllers.ip_reservation.snapshot import Caches, LiveReader, SnapshotReader, caches_of
from controllers.ip_reservation.swap_reporter import SwapReporter
from controllers.ip_reservation.swaps import Arrivals, SwapReconciler
from controllers.manager import Context
from controllers.workqueue import WorkQueue
from kube.errors import Backoff, KubeError
from kube.leader_election import LeadershipLost
from runtime import time
from settings import IPReservationSettings
from settings import Settings as AllSettings

PAUSES = Backoff(base=0.1, cap=15.0)
"""Failures are retried soon: addresses wait for it."""
LATE_WORKERS, RESTORE_WORKERS = 8, 4
"""They wait for the ledger together, so that their reservations share its writes."""
DEADLINE = 8.0
"""Seconds for one reservation; a leader that stops waits for those that have begun."""
SEGMENTS = "segments"
"""The one key of the release queue."""
LAST_WORK = 5.0
"""Seconds for queued reservations when the leader stops."""

WORKLOADS_WITHIN = 10.0
"""Seconds in which workloads are known before the first pod is judged."""
LOOK = 10.0
"""Seconds between two looks whether reservations have moved."""
BREATH = 0.1
"""Seconds between passes at least while a pool runs low."""

Handler = Callable[[IPReservation | None, IPReservation | None], None]

log = structlog.get_logger(__name__)


def run(context: Context, settings: Callable[[], AllSettings]) -> None:
    """Wait until Calico's IPReservation is served, then work until the context stops."""

    def now() -> IPReservationSettings:
        return settings().ip_reservation

    reservations = Reservations(context.client, now().calico_api_version)
    resource = context.wait_for(reservations.resource, PAUSES, "Calico's IPReservation", NotServed)
    if resource is None:
        return
    caches = caches_of(context.informers, resource, opt_in=now().workload_opt_in)
    if context.wait_synced(*caches.informers):
        _wait_for_workloads(context, caches)
        _work(context, now, reservations, caches)


def _wait_for_workloads(context: Context, caches: Caches) -> None:
    """A moment: nothing but their own annotations depends on them, and they may not be readable."""
    end = time.monotonic() + WORKLOADS_WITHIN
    for each in caches.workloads.informers if caches.workloads else ():
        while not (each.wait_synced(0.1) or context.stop.is_set() or time.monotonic() > end):
            pass


def _work(context: Context, settings: Settings, reservations: Reservations, caches: Caches) -> None:
    late_queue = WorkQueue("ip_reservation_late", pauses=PAUSES)
    restore_queue = WorkQueue("ip_reservation_restore", pauses=PAUSES)
    release_queue = WorkQueue("ip_reservation_rounds", pauses=PAUSES)
    clock, reporter = CLOCK, Reporter(context.recorder, reservations.resource)
    live = LiveReader(context.client, reservations, clock)
    ledger = Ledger(reservations, os.environ.get("POD_NAME", "controllers"))

    def reserve(records: Sequence[Record]) -> IPReservation:
        return ledger.reserve(records, time.monotonic() + DEADLINE)

    departures = Departures(late_queue.add, caches.namespaces.get, clock)
    removals = Removals(restore_queue.add, clock)
    late = LateReconciler(departures, caches, live, reserve, settings, reporter)
    restore = RestoreReconciler(removals, caches, reserve, settings, reporter, clock)
    addresses = PodAddresses(clock)
    swaps_queue = WorkQueue("ip_reservation_swaps", pauses=PAUSES)
    arrivals = Arrivals(swaps_queue.add, caches, addresses, settings, clock)
    swaps = SwapReconciler(arrivals, live, settings, SwapReporter(context.recorder))
    pools = PoolWatch(context, settings, partial(release_queue.add_after, SEGMENTS, BREATH))

    def is_over() -> bool:
        context.check()
        return context.stop.is_set()

    reader = SnapshotReader(caches, live, addresses, clock, pools.read, is_over)
    release = ReleaseReconciler(reader, reservations, removals, settings, reporter, clock, is_over)
    with (
        pools.following(),
        HistoryReconciler(context, settings).following(),
        context.working(late_queue, late.reconcile, LATE_WORKERS),
        context.working(restore_queue, restore.reconcile, RESTORE_WORKERS),
        context.working(release_queue, release.reconcile),
        context.working(swaps_queue, swaps.reconcile),
        opting_in(context, caches, settings, reporter),
        keeping_promises(context, caches, settings),
    ):
        caches.segments.on_change(removals.observe)
        caches.segments.on_change(_crowding(release_queue.add))
        caches.pods.on_change(departures.observe)
        caches.pods.on_change(addresses.observe)
        caches.segments.on_change(arrivals.observe_segment)
        caches.pods.on_change(arrivals.observe_pod)
        release_queue.add(SEGMENTS)
        while not context.stop.wait(LOOK):
            _check_served(context, settings, caches)
        _finish((late_queue, restore_queue), context.check)


def _check_served(context: Context, settings: Settings, caches: Caches) -> None:
    """Raise StaleInformer when another group serves reservations by now: a new process follows that one."""
    segments = caches.segments.source
    if segments.silence <= LONGEST_SILENCE:
        return
    with suppress(KubeError, NotServed):
        served = Reservations(context.client, settings().calico_api_version).resource(timeout=DEADLINE)
        if served != segments.resource:
            raise StaleInformer(f"IPReservation is served in {served.api_version} now")


def _crowding(enqueue: Callable[[str], None]) -> Handler:
    """A change handler of segments: between two passes, a storm makes more of them than Calico should read."""
    small = set[str]()

    def observe(old: IPReservation | None, new: IPReservation | None) -> None:
        if old is not None:
            small.discard(old.metadata.name)
        if new is not None and is_small(new):
            small.add(new.metadata.name)
        if old is None and len(small) >= MANY:
            enqueue(SEGMENTS)

    return observe


def _finish(queues: Sequence[WorkQueue], check: Callable[[], None]) -> None:
    """Finish queued reservations while we lead: the next leader does not know pods and records that are gone."""
    deadline = time.monotonic() + LAST_WORK
    try:
        while not all(queue.idle for queue in queues) and time.monotonic() < deadline:
            check()
            time.sleep(0.05)
    except LeadershipLost:
        log.warning("late reservations abandoned, leadership lost")
