"""The feature as the leader runs it: what it follows, whom it asks, and the rounds that it makes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial

import structlog

from cloud.client import Cloud
from cloud.errors import NotConfigured
from cloud.factory import connect
from controllers.anycast_ip.claim_store import Book
from controllers.anycast_ip.cloud_actions import InCloud
from controllers.anycast_ip.cluster_id import cluster_uuid, incarnation
from controllers.anycast_ip.dispatch import Dispatch
from controllers.anycast_ip.lanes import THREADS
from controllers.anycast_ip.node_actions import InCluster
from controllers.anycast_ip.node_writer import NODES, Nodes
from controllers.anycast_ip.orphans import Orphans
from controllers.anycast_ip.reconciler import Reconciler
from controllers.anycast_ip.reporter import Reporter
from controllers.anycast_ip.resync import Sweep
from controllers.executor import Executor
from controllers.workqueue import StaleInformer, Stopping
from kube.backoff import Backoff
from kube.client import Client
from kube.errors import KubeError
from kube.event_recorder import EventRecorder
from kube.informer import Informer
from kube.types import Node
from settings import AnycastIPSettings, CloudSettings

PAUSES = Backoff(base=0.5, cap=30.0)
LONGEST_SILENCE = 300.0
"""Seconds without a LIST or a watch of the nodes that succeeded; a quiet watch is opened again after about a minute."""
RECONFIGURED = 10.0
"""Seconds after which it is looked whether the settings were made complete."""

log = structlog.stdlib.get_logger(__name__)


def lead(
    client: Client,
    settings: Callable[[], AnycastIPSettings],
    cloud_settings: Callable[[], CloudSettings],
    namespace: str,
    recorder: EventRecorder,
    stop: threading.Event,
    check: Callable[[], None],
) -> None:
    """Work until *stop*; *check* raises LeadershipLost before a write that is not ours to make any more.

    StaleInformer when decisions would rest on a copy of the nodes that is too old.
    """
    cloud = _connected(cloud_settings, check, stop)
    if cloud is None:
        return
    book = Book(client, namespace, check)
    with _following(Informer(client, NODES, Node), stop) as followed:
        uuid = _begun(client, book, check, stop)
        if uuid and not stop.is_set():
            nodes = Nodes(client, followed, check)
            _work(nodes, followed, cloud, book, uuid, settings, recorder, stop)


def _connected(
    settings: Callable[[], CloudSettings], check: Callable[[], None], stop: threading.Event
) -> Cloud | None:
    """As soon as the settings are complete; None when it is time to stop before."""

    def sleep(seconds: float) -> None:
        if stop.wait(seconds):
            raise Stopping("a wait for the cloud was cut short")

    while not stop.is_set():
        try:
            return connect(settings(), may_write=check, sleep=sleep)
        except NotConfigured as error:
            log.error("no address is bound before this is set right", error=str(error))
            stop.wait(RECONFIGURED)
    return None


def _begun(client: Client, book: Book, check: Callable[[], None], stop: threading.Event) -> str:
    """The cluster's uuid, when all claims have been read; nothing when it is time to stop before."""
    failures = 0
    while not stop.is_set():
        try:
            uuid = cluster_uuid(client, check)
            book.load(incarnation(client))
            return uuid
        except (KubeError, ValueError) as error:
            failures += 1
            log.warning("waiting for what is to be known at first", error=str(error))
            stop.wait(PAUSES.delay(failures))
    return ""


def _work(
    nodes: Nodes,
    followed: Informer[Node],
    cloud: Cloud,
    book: Book,
    uuid: str,
    settings: Callable[[], AnycastIPSettings],
    recorder: EventRecorder,
    stop: threading.Event,
) -> None:
    wake = threading.Event()
    with _pool() as hand_out:
        rounds = assemble(nodes, cloud, book, uuid, settings, recorder, hand_out=hand_out, done=wake.set)
        followed.on_change(lambda old, new: wake.set() if _matters(old, new) else None)
        rounds.run(wake, stop, partial(_check, followed))


def assemble(
    nodes: Nodes,
    cloud: Cloud,
    book: Book,
    uuid: str,
    settings: Callable[[], AnycastIPSettings],
    recorder: EventRecorder,
    *,
    hand_out: Callable[[Callable[[], None]], None],
    done: Callable[[], None],
    clock: Callable[[], float] = time.monotonic,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Reconciler:
    """All parts, put together; nothing is begun yet."""
    reporter = Reporter(recorder, now, book.regarding)
    in_cloud = InCloud(cloud, book, uuid, settings, clock)
    in_cluster = InCluster(nodes, book, uuid, settings, now, reporter.opened)
    steps = {**in_cloud.steps, **in_cluster.steps}
    dispatch = Dispatch(
        steps, failed=reporter.failure, waiting=reporter.waiting, hand_out=hand_out, done=done, clock=clock
    )
    sweep = Sweep(cloud, uuid, reporter.quotas, clock)
    orphans = Orphans(nodes, book, sweep, recorder, settings, clock=clock, now=now)
    return Reconciler(
        nodes,
        book,
        sweep,
        orphans,
        dispatch,
        reporter,
        settings,
        hand_out=hand_out,
        done=done,
        clock=clock,
        now=now,
    )


@contextmanager
def _pool() -> Iterator[Callable[[Callable[[], None]], None]]:
    pool = Executor("anycast-ip", THREADS)
    try:
        yield pool.submit
    finally:
        pool.close()


def _matters(old: Node | None, new: Node | None) -> bool:
    """Not what the kubelet reports all the time."""
    if old is None or new is None:
        return True
    before, after = old.metadata, new.metadata
    return (old.spec, before.labels, before.annotations) != (new.spec, after.labels, after.annotations)


@contextmanager
def _following(informer: Informer[Node], stop: threading.Event) -> Iterator[Informer[Node]]:
    """*informer*, complete."""
    informer.start()
    try:
        while not informer.wait_synced(0.5) and not stop.is_set():
            _check(informer)
        yield informer
    finally:
        informer.stop()


def _check(followed: Informer[Node]) -> None:
    if followed.silence > LONGEST_SILENCE:
        raise StaleInformer(f"nothing was heard of {followed.kind} for {followed.silence:.0f} s")
