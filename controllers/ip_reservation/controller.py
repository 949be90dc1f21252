"""The feature as the leader runs it: what it follows, and the workers that release and catch up."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from calico.errors import NotServed
from calico.ledger import Ledger
from calico.reservations import Reservations
from calico.segment import Limits
from controllers.ip_reservation.following import PODS, Copies, copies_of
from controllers.ip_reservation.late_reservations import LateReservations
from controllers.ip_reservation.releaser import Releaser
from controllers.ip_reservation.restore import OwnReleases, Restore
from controllers.manager import Context
from controllers.owners import Owners
from controllers.workqueue import WorkQueue
from kube.backoff import Backoff
from kube.leader_election import LeadershipLost
from kube.types import Pod
from settings import IPReservationSettings, Settings

PAUSES = Backoff(base=0.1, cap=15.0)
"""What failed, be it a round, a late reservation or the look for Calico, is tried again soon: addresses wait for it."""
LATE_WORKERS, RESTORE_WORKERS = 8, 4
"""They wait for the ledger together, so that their reservations share its writes."""

LAST_WORK = 5.0
"""Seconds that late reservations are given when the leader is told to stop."""

log = structlog.get_logger(__name__)


def enabled(settings: Settings) -> bool:
    return settings.ip_reservation.enabled


def run(context: Context, settings: Callable[[], Settings]) -> None:
    """Work until the context stops; Calico's IPReservation is waited for."""

    def now() -> IPReservationSettings:
        return settings().ip_reservation

    reservations = Reservations(context.client, now().calico_api_version, before_write=context.check)
    resource = context.wait_for(reservations.resource, PAUSES, "Calico's IPReservation", NotServed)
    if resource is None:
        return
    copies = copies_of(context.informers, resource)
    if context.wait_synced(copies.segments, copies.namespaces, copies.pods):
        _work(Tools(context, now, reservations, copies))


@dataclass(frozen=True)
class Tools:
    """What the workers work with."""

    context: Context
    settings: Callable[[], IPReservationSettings]
    reservations: Reservations
    copies: Copies

    def rounds(self, own: OwnReleases) -> Releaser:
        return Releaser(
            self.copies.segments,
            self.copies.pods,
            self.reservations,
            read_pod=lambda namespace, name: self.context.client.get(PODS, name, namespace, type=Pod),
            settings=self.settings,
            recorder=self.context.recorder,
            own=own,
        )

    def restore(self, queue: WorkQueue, own: OwnReleases, ledger: Ledger) -> Restore:
        return Restore(
            queue,
            segments=self.copies.segments,
            reservations=self.reservations,
            ledger=ledger,
            own=own,
            settings=self.settings,
            recorder=self.context.recorder,
        )

    def late(self, queue: WorkQueue, ledger: Ledger) -> LateReservations:
        return LateReservations(
            queue,
            segments=self.copies.segments,
            namespaces=self.copies.namespaces,
            reservations=self.reservations,
            ledger=ledger,
            owner_is_deleted=Owners(self.context.client).is_deleted,
            settings=self.settings,
            recorder=self.context.recorder,
        )

    def ledger(self) -> Ledger:
        return Ledger(
            self.reservations,
            os.environ.get("POD_NAME", "controllers"),
            limits=lambda: Limits(self.settings().segment_max_entries),
            max_age=lambda: self.settings().segment_max_age,
        )


def _work(tools: Tools) -> None:
    context = tools.context
    late_queue = WorkQueue("ip_reservation_late", pauses=PAUSES)
    restore_queue = WorkQueue("ip_reservation_restore", pauses=PAUSES)
    round_queue = WorkQueue("ip_reservation_rounds", pauses=PAUSES)
    ledger, own = tools.ledger(), OwnReleases()
    late, restore = tools.late(late_queue, ledger), tools.restore(restore_queue, own, ledger)
    with (
        context.working(late_queue, late.reconcile, LATE_WORKERS),
        context.working(restore_queue, restore.reconcile, RESTORE_WORKERS),
        context.working(round_queue, tools.rounds(own).reconcile),
    ):
        tools.copies.segments.on_change(restore.observe)
        tools.copies.pods.on_change(late.observe)
        round_queue.add("round")
        context.stop.wait()
        _work_off((late_queue, restore_queue), context.check)


def _work_off(queues: Sequence[WorkQueue], check: Callable[[], None]) -> None:
    """Let what waits be done, while we lead: the next leader does not learn of pods and records that are gone."""
    deadline = time.monotonic() + LAST_WORK
    try:
        while not all(queue.idle for queue in queues) and time.monotonic() < deadline:
            check()
            time.sleep(0.05)
    except LeadershipLost:
        log.warning("addresses that wait to be reserved late are left")
