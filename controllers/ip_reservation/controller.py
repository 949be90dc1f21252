"""Wire the controllers of reservations: releases, late and restored ones, pods that opt in, and promises to pods."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import structlog

from calico.ledger import Ledger
from calico.reservations import NotServed, Reservations
from calico.segment import IPReservation, NotReserved, Record
from controllers.controller import CLOCK
from controllers.informers import LONGEST_SILENCE, StaleInformer
from controllers.ip_reservation.caches import Caches, caches_of
from controllers.ip_reservation.calls import PAUSES, LiveReader
from controllers.ip_reservation.confirmations import PodAddresses
from controllers.ip_reservation.late_reservations import LateReconciler, RestoreReconciler
from controllers.ip_reservation.opt_in import OptInReconciler, Workloads, workloads_of
from controllers.ip_reservation.pools import PoolWatch
from controllers.ip_reservation.release_reconciler import SEGMENTS, ReleaseReconciler
from controllers.ip_reservation.reporter import Reporter
from controllers.ip_reservation.same_address import SameAddressReconciler
from controllers.ip_reservation.snapshot import SnapshotReader
from controllers.ip_reservation.standing import EpochReconciler, MarkReconciler, StandingReconciler
from controllers.ip_reservation.swaps import SwapReconciler
from controllers.manager import Context
from controllers.workqueue import WorkQueue
from kube.errors import KubeError
from kube.leader_election import LeadershipLost
from runtime import time
from settings import IPReservationSettings, Settings

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
    workloads = workloads_of(context.informers, caches.pods) if current().workload_opt_in else {}
    if context.wait_synced(caches.segments, caches.namespaces, caches.pods):
        _wait_for_workloads(context, workloads)
        name = settings().certs.configuration_name
        epochs = EpochReconciler(context.client, name, caches, lambda: current().standing.enabled, CLOCK)
        _work(context, current, reservations, epochs, workloads)


def _wait_for_workloads(context: Context, workloads: Workloads) -> None:
    """A moment: nothing but their own annotations depends on them, and they may not be readable."""
    end = time.monotonic() + WORKLOADS_WITHIN
    for informer in workloads.values():
        while not (informer.wait_synced(0.1) or context.stop.is_set() or time.monotonic() > end):
            pass


def _work(
    context: Context,
    settings: Callable[[], IPReservationSettings],
    reservations: Reservations,
    epochs: EpochReconciler,
    workloads: Workloads,
) -> None:
    """A part that is off has no controller: it is switched on by a restart, done by the chart."""
    clock, reporter, client = CLOCK, Reporter(context.recorder, reservations.resource), context.client
    caches = epochs.caches
    ledger = Ledger(reservations, os.environ.get("POD_NAME", "controllers"))

    def reserve(records: Sequence[Record]) -> IPReservation:
        try:
            return ledger.reserve(records, time.monotonic() + DEADLINE)
        except NotReserved as error:
            if isinstance(error.__cause__, (KubeError, NotServed, type(None))):
                raise KubeError(str(error)) from error  # no bug: it is tried again, without a traceback
            raise

    def is_over() -> bool:
        context.check()
        return context.stop.is_set()

    live, addresses = LiveReader(client, reservations, clock, is_over), PodAddresses(clock)
    passes = WorkQueue("ip_reservation_rounds", pauses=PAUSES)
    pools = PoolWatch(context, settings, partial(passes.add_after, SEGMENTS, PRESSURE_PAUSE))
    reader = SnapshotReader(caches, live, addresses, pools.read)
    restore = RestoreReconciler(caches, reserve, settings, reporter, clock)
    release = ReleaseReconciler(reader, reservations, restore.note_own, settings, reporter)
    opt_in = OptInReconciler(caches, workloads, client, settings, reporter) if workloads else None
    followed = opt_in.followed if opt_in else lambda pod: pod
    late = LateReconciler(caches, live, reserve, settings, reporter, followed).controller()
    restored = restore.controller()
    swaps = SwapReconciler(caches, live, addresses, settings, reporter).controller()
    optional = [pools.controller()] if settings().follows_pools else []
    if opt_in:
        optional.append(opt_in.controller())
    if settings().same_address.enabled:
        optional.append(SameAddressReconciler(caches, client, settings, reporter).controller())
    if settings().standing.enabled:
        standing = StandingReconciler(caches, reservations, epochs, lambda: pools.known, settings, reporter)
        optional += [
            standing.controller(),
            MarkReconciler(caches, client, epochs, standing.marking).controller(),
        ]
    caches.pods.on_change(addresses.observe)
    with context.running(epochs.controller(), late, restored, swaps, *optional, release.controller(passes)):
        while not context.stop.wait(LOOK):
            _check_served(context, settings, caches)
        _finish((late.queue, restored.queue), context.check)


def _check_served(context: Context, settings: Callable[[], IPReservationSettings], caches: Caches) -> None:
    """Raise StaleInformer when another group serves reservations by now: a new process follows that one."""
    segments = caches.segments.source
    if segments.silence <= LONGEST_SILENCE:
        return
    with suppress(KubeError, NotServed):
        served = Reservations(context.client, settings().calico_api_version).resource(timeout=DEADLINE)
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
