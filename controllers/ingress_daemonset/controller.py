"""The feature as the leader runs it: what it follows, and the one worker that decides."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from controllers.executor import Executor, Work
from controllers.ingress_daemonset.copies import Copies, NotServed, copies_of, require_served
from controllers.ingress_daemonset.objects import Grant, Workload
from controllers.ingress_daemonset.readings import Reader
from controllers.ingress_daemonset.reconciler import Reconciler
from controllers.ingress_daemonset.reporter import Reporter
from controllers.ingress_daemonset.retry_state import Troubles
from controllers.ingress_daemonset.writer import Writer
from controllers.manager import Context
from controllers.workqueue import WorkQueue
from kube.backoff import Backoff
from kube.types import key_of
from settings import IngressDaemonSetSettings, Settings
from webhook.ingress_daemonset import KIND
from webhook.ingress_daemonset.node_matching import FollowedNode
from webhook.ingress_daemonset.types import IngressDaemonSet

WRITERS = 16
"""Writes at once: a thousand new nodes are served soon, and the API server has room for others."""
READERS = 8
"""Health checkers read at once, apart from writes: those of a dead node take their time."""
PAUSES = Backoff(base=0.1, cap=30.0)
SERVED_PAUSES = Backoff(base=0.5, cap=15.0)


def enabled(settings: Settings) -> bool:
    return settings.ingress_daemonset.enabled


def run(context: Context, settings: Callable[[], Settings]) -> None:
    """Work until the context stops; the CRD is waited for."""
    client = context.client
    if not context.wait_for(lambda: require_served(client), SERVED_PAUSES, "IngressDaemonSets", NotServed):
        return
    copies = copies_of(context.informers)
    if not context.wait_synced(*copies.followed.values()):
        return

    def now() -> IngressDaemonSetSettings:
        return settings().ingress_daemonset

    with _pool(WRITERS) as hand_out, _pool(READERS) as hand_out_reads:
        reporter = Reporter(context.recorder)
        writer = Writer(
            client,
            copies.books,
            reporter,
            check=context.check,
            stopped=context.stop.is_set,
            hand_out=hand_out,
            troubles=Troubles(time.monotonic, lambda: datetime.now(UTC)),
        )
        reader = Reader(hand_out_reads, stopped=context.stop.is_set)
        reconciler = Reconciler(client, copies.books, writer, reporter, reader, now, context.check)
        _work(context, copies, reconciler, now)


def _work(
    context: Context, copies: Copies, reconciler: Reconciler, settings: Callable[[], IngressDaemonSetSettings]
) -> None:
    queue = WorkQueue("ingress_daemonset", pauses=PAUSES)
    listen(copies, queue, reconciler.pace)
    with context.working(queue, reconciler.reconcile):
        while not context.stop.wait(settings().resync_period):
            for each in copies.books.resources.list():
                queue.add(key_of(each.metadata))


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
