"""The feature as the leader runs it: what it follows, and the workers that release and catch up."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar

import structlog

from calico.errors import NotServed
from calico.ledger import Ledger
from calico.reservations import Reservations
from calico.segment import IPReservation, Limits
from controllers.ip_reservation.late import LateReservations
from controllers.ip_reservation.rounds import Rounds
from controllers.owners import Owners
from controllers.runtime import Reconcile, WorkQueue, run_workers
from kube.backoff import Backoff
from kube.client import Client, Resource
from kube.errors import KubeError
from kube.events import Recorder
from kube.objects import Namespace, Pod
from kube.reflector import Reflector
from kube.store import Object
from settings import IPReservationSettings
from webhook.ip_reservation import NAMESPACE_LABEL, NAMESPACE_LABEL_VALUES

PODS = Resource("", "v1", "pods")
NAMESPACES = Resource("", "v1", "namespaces", namespaced=False)
SELECTED = f"{NAMESPACE_LABEL} in ({','.join(NAMESPACE_LABEL_VALUES)})"

PAUSES = Backoff(base=0.1, cap=15.0)
"""What failed, be it a round, a late reservation or the look for Calico, is tried again soon: addresses wait for it."""
LATE_WORKERS = 8
"""They wait for the ledger together, so that their reservations share its writes."""

T = TypeVar("T", bound=Object)

log = structlog.get_logger(__name__)


def lead(
    client: Client,
    settings: Callable[[], IPReservationSettings],
    recorder: Recorder,
    stop: threading.Event,
    check: Callable[[], None],
) -> None:
    """Work until *stop*; *check* raises LeadershipLost before a write that is not ours to make any more."""
    reservations = Reservations(client, settings().calico_api_version, before_write=check)
    if not _wait_until_served(reservations, stop):
        return
    with (
        _following(Reflector(client, reservations.resource(), IPReservation), stop) as segments,
        _following(Reflector(client, NAMESPACES, Namespace, label_selector=SELECTED), stop) as namespaces,
        _following(Reflector(client, PODS, Pod), stop) as pods,
        ExitStack() as workers,
    ):
        if stop.is_set():
            return
        segments.add_index("uid", _uids_of_segment)
        pods.add_index("uid", _uid_of_pod)
        rounds = Rounds(
            segments, pods, reservations, read_pod=_pod_reader(client), settings=settings, recorder=recorder
        )
        late_queue = WorkQueue("ip_reservation_late", pauses=PAUSES)
        late = LateReservations(
            late_queue,
            segments=segments,
            namespaces=namespaces,
            reservations=reservations,
            ledger=Ledger(
                reservations,
                os.environ.get("POD_NAME", "controllers"),
                limits=lambda: Limits(settings().segment_max_entries),
                max_age=lambda: settings().segment_max_age,
            ),
            owner_is_deleted=Owners(client).is_deleted,
            settings=settings,
            recorder=recorder,
        )
        round_queue = WorkQueue("ip_reservation_rounds", pauses=PAUSES)
        workers.enter_context(_working(late_queue, late.reconcile, LATE_WORKERS, check))
        workers.enter_context(_working(round_queue, rounds.reconcile, 1, check))
        pods.on_change(late.observe)
        round_queue.add("round")
        stop.wait()


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
def _following(reflector: Reflector[T], stop: threading.Event) -> Iterator[Reflector[T]]:
    """*reflector*, complete."""
    reflector.start()
    try:
        while not reflector.wait_synced(0.5) and not stop.is_set():
            pass
        yield reflector
    finally:
        reflector.stop()


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


def _pod_reader(client: Client) -> Callable[[str, str], Pod]:
    return lambda namespace, name: client.get(PODS, name, namespace, type=Pod)


def _uids_of_segment(segment: IPReservation) -> Iterable[str]:
    return {record.uid for record in segment.records} if segment.ours else ()


def _uid_of_pod(pod: Pod) -> Iterable[str]:
    return (pod.metadata.uid,)
