"""The feature as the leader runs it: what it follows, and the workers that release and catch up."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import structlog

from calico.errors import NotServed
from calico.ledger import Ledger
from calico.reservations import Reservations
from calico.segment import Limits
from controllers.ip_reservation.following import PODS, Copies, followed
from controllers.ip_reservation.late_reservations import LateReservations
from controllers.ip_reservation.releaser import Releaser
from controllers.ip_reservation.restore import OwnReleases, Restore
from controllers.owners import Owners
from controllers.workqueue import Reconcile, WorkQueue, run_workers
from kube.backoff import Backoff
from kube.client import Client
from kube.errors import KubeError
from kube.event_recorder import EventRecorder
from kube.leader_election import LeadershipLost
from kube.types import Pod
from settings import IPReservationSettings

PAUSES = Backoff(base=0.1, cap=15.0)
"""What failed, be it a round, a late reservation or the look for Calico, is tried again soon: addresses wait for it."""
LATE_WORKERS, RESTORE_WORKERS = 8, 4
"""They wait for the ledger together, so that their reservations share its writes."""

LAST_WORK = 5.0
"""Seconds that late reservations are given when the leader is told to stop."""

log = structlog.get_logger(__name__)


def lead(
    client: Client,
    settings: Callable[[], IPReservationSettings],
    recorder: EventRecorder,
    stop: threading.Event,
    check: Callable[[], None],
) -> None:
    """Work until *stop*; *check* raises LeadershipLost before a write that is not ours to make any more.

    StaleInformer when decisions would rest on copies that are too old.
    """
    reservations = Reservations(client, settings().calico_api_version, before_write=check)
    if not _wait_until_served(reservations, stop):
        return
    with followed(client, reservations.resource(), stop) as copies:
        if not stop.is_set():
            _work(Tools(client, settings, recorder, reservations, copies), stop, check)


@dataclass(frozen=True)
class Tools:
    """What the workers work with."""

    client: Client
    settings: Callable[[], IPReservationSettings]
    recorder: EventRecorder
    reservations: Reservations
    copies: Copies

    def rounds(self, own: OwnReleases) -> Releaser:
        return Releaser(
            self.copies.segments,
            self.copies.pods,
            self.reservations,
            read_pod=lambda namespace, name: self.client.get(PODS, name, namespace, type=Pod),
            settings=self.settings,
            recorder=self.recorder,
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
            recorder=self.recorder,
        )

    def late(self, queue: WorkQueue, ledger: Ledger) -> LateReservations:
        return LateReservations(
            queue,
            segments=self.copies.segments,
            namespaces=self.copies.namespaces,
            reservations=self.reservations,
            ledger=ledger,
            owner_is_deleted=Owners(self.client).is_deleted,
            settings=self.settings,
            recorder=self.recorder,
        )

    def ledger(self) -> Ledger:
        return Ledger(
            self.reservations,
            os.environ.get("POD_NAME", "controllers"),
            limits=lambda: Limits(self.settings().segment_max_entries),
            max_age=lambda: self.settings().segment_max_age,
        )


def _work(tools: Tools, stop: threading.Event, check: Callable[[], None]) -> None:
    late_queue = WorkQueue("ip_reservation_late", pauses=PAUSES)
    restore_queue = WorkQueue("ip_reservation_restore", pauses=PAUSES)
    round_queue = WorkQueue("ip_reservation_rounds", pauses=PAUSES)
    ledger, own = tools.ledger(), OwnReleases()
    late, restore = tools.late(late_queue, ledger), tools.restore(restore_queue, own, ledger)
    with (
        _working(late_queue, late.reconcile, LATE_WORKERS, check),
        _working(restore_queue, restore.reconcile, RESTORE_WORKERS, check),
        _working(round_queue, tools.rounds(own).reconcile, 1, check),
    ):
        tools.copies.segments.on_change(restore.observe)
        tools.copies.pods.on_change(late.observe)
        round_queue.add("round")
        while not stop.wait(1.0):
            tools.copies.check()
        _work_off((late_queue, restore_queue), check)


def _work_off(queues: Sequence[WorkQueue], check: Callable[[], None]) -> None:
    """Let what waits be done, while we lead: the next leader does not learn of pods and records that are gone."""
    deadline = time.monotonic() + LAST_WORK
    try:
        while not all(queue.idle for queue in queues) and time.monotonic() < deadline:
            check()
            time.sleep(0.05)
    except LeadershipLost:
        log.warning("addresses that wait to be reserved late are left")


def _wait_until_served(reservations: Reservations, stop: threading.Event) -> bool:
    failures = 0
    while not stop.is_set():
        try:
            reservations.resource()
        except (NotServed, KubeError) as error:
            failures += 1
            log.warning("waiting for Calico's IPReservation", error=str(error))
            stop.wait(PAUSES.delay(failures))
        else:
            return True
    return False


@contextmanager
def _working(
    queue: WorkQueue, reconcile: Reconcile, workers: int, check: Callable[[], None]
) -> Iterator[None]:
    threads = run_workers(queue, reconcile, workers=workers, name=queue.name, check=check)
    try:
        yield
    finally:
        queue.shut_down()
        for thread in threads:
            thread.join()
