"""The feature as the leader runs it: what it follows, whom it asks, and the rounds that it makes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

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
from controllers.manager import Context
from controllers.workqueue import Stopping
from kube.backoff import Backoff
from kube.event_recorder import EventRecorder
from kube.informer import Informer
from kube.types import Node
from settings import AnycastIPSettings, CloudSettings, Settings

PAUSES = Backoff(base=0.5, cap=30.0)
RECONFIGURED = 10.0
"""Seconds after which it is looked whether the settings were made complete."""

log = structlog.stdlib.get_logger(__name__)


def enabled(settings: Settings) -> bool:
    return settings.anycast_ip.enabled


def run(context: Context, settings: Callable[[], Settings]) -> None:
    """Work until the context stops; complete cloud settings are waited for."""
    client, stop = context.client, context.stop
    cloud = _connected(lambda: settings().cloud, context.check, stop)
    if cloud is None:
        return
    book = Book(client, context.namespace, context.check)
    followed = context.informers.of(NODES, Node)
    if not context.wait_synced(followed):
        return

    def begin() -> str:
        uuid = cluster_uuid(client, context.check)
        book.load(incarnation(client))
        return uuid

    uuid = context.wait_for(begin, PAUSES, "initial cluster state", ValueError)
    if uuid and not stop.is_set():
        nodes = Nodes(client, followed, context.check)
        _work(nodes, followed, cloud, book, uuid, lambda: settings().anycast_ip, context.recorder, stop)


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
            log.error("cloud not configured: no address is bound", error=str(error))
            stop.wait(RECONFIGURED)
    return None


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
        rounds.run(wake, stop)


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
