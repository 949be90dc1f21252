"""The feature as the leader runs it: what it follows, and the one worker that decides."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from controllers.executor import Executor, Work
from controllers.ingress_daemonset.copies import Copies, followed, wait_until_served
from controllers.ingress_daemonset.objects import Grant, Workload
from controllers.ingress_daemonset.readings import Reader
from controllers.ingress_daemonset.reconciler import Reconciler, Settings
from controllers.ingress_daemonset.reporter import Reporter
from controllers.ingress_daemonset.retry_state import Troubles
from controllers.ingress_daemonset.writer import Writer
from controllers.workqueue import WorkQueue, run_workers
from kube.backoff import Backoff
from kube.client import Client
from kube.event_recorder import EventRecorder
from kube.types import key_of
from webhook.ingress_daemonset import KIND
from webhook.ingress_daemonset.node_matching import FollowedNode
from webhook.ingress_daemonset.types import IngressDaemonSet

WRITERS = 16
"""Writes at once: a thousand new nodes are served soon, and the API server has room for others."""
READERS = 8
"""Health checkers read at once, apart from writes: those of a dead node take their time."""
PAUSES = Backoff(base=0.1, cap=30.0)
NOTICE = 0.5
"""Seconds within which a stop is noticed."""


def lead(
    client: Client,
    settings: Settings,
    recorder: EventRecorder,
    stop: threading.Event,
    check: Callable[[], None],
) -> None:
    """Work until *stop*; *check* raises LeadershipLost before a write that is not ours to make any more.

    StaleInformer when decisions would rest on copies that are too old.
    """
    if not wait_until_served(client, stop):
        return
    with followed(client, stop) as copies, _pool(WRITERS) as hand_out, _pool(READERS) as hand_out_reads:
        if not stop.is_set():
            reporter = Reporter(recorder)
            writer = Writer(
                client,
                copies.books,
                reporter,
                check=check,
                stopped=stop.is_set,
                hand_out=hand_out,
                troubles=Troubles(time.monotonic, lambda: datetime.now(UTC)),
            )
            reader = Reader(hand_out_reads, stopped=stop.is_set)
            reconciler = Reconciler(client, copies.books, writer, reporter, reader, settings, check)
            _work(copies, reconciler, settings, stop)


def _work(copies: Copies, reconciler: Reconciler, settings: Settings, stop: threading.Event) -> None:
    queue = WorkQueue("ingress_daemonset", pauses=PAUSES)
    listen(copies, queue, reconciler.pace)
    workers = run_workers(queue, reconciler.reconcile, name="ingress-daemonset", check=reconciler.check)
    last = time.monotonic()
    try:
        while not stop.wait(NOTICE):
            copies.check()
            if time.monotonic() - last >= settings().resync_period:
                last = time.monotonic()
                for each in copies.books.resources.list():
                    queue.add(key_of(each.metadata))
    finally:
        queue.shut_down()
        for worker in workers:
            worker.join()


def listen(copies: Copies, queue: WorkQueue, pace: Callable[[str], float]) -> None:
    """Let each change lead to a look at those IngressDaemonSets that it concerns."""
    books = copies.books

    def look(key: str) -> None:
        queue.add_after(key, pace(key))

    def look_at_all(old: FollowedNode | None, new: FollowedNode | None) -> None:
        if matters(old, new):
            for each in books.resources.list():
                look(key_of(each.metadata))

    def look_at_it(old: IngressDaemonSet | None, new: IngressDaemonSet | None) -> None:
        if seen := new or old:
            look(key_of(seen.metadata))

    def look_at_owner(old: Workload | Grant | None, new: Workload | Grant | None) -> None:
        owner = seen.metadata.controller if (seen := new or old) else None
        if seen and owner and owner.kind == KIND:
            look(f"{seen.metadata.namespace}/{owner.name}")

    books.resources.listen(look_at_it)
    books.nodes.listen(look_at_all)
    books.deployments.listen(look_at_owner)
    books.daemonsets.listen(look_at_owner)
    books.roles.listen(look_at_owner)
    books.bindings.listen(look_at_owner)


def matters(old: FollowedNode | None, new: FollowedNode | None) -> bool:
    """Not what the kubelet reports all the time."""
    return old is None or new is None or _told(old) != _told(new)


def _told(node: FollowedNode) -> tuple[object, ...]:
    at = node.metadata
    where = (node.spec.taints, node.spec.unschedulable, node.address)
    return at.labels, at.annotations, where, node.ready, at.deletion_timestamp


@contextmanager
def _pool(threads: int) -> Iterator[Callable[[Work], None]]:
    pool = Executor("ingress-daemonset", threads)
    try:
        yield pool.submit
    finally:
        pool.close()
