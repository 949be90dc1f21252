"""Wire the feature: informer, work queue and workers, the batched cloud, and the resync."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import structlog

from api.anycast_ip import ADDRESS, ADDRESS_ID, BOUND
from cloud.batched import BatchedCloud
from cloud.client import Cloud, connect
from cloud.errors import NotConfigured
from cloud.types import Quota
from controllers.anycast_ip.allow_list import AllowList, Announcements
from controllers.anycast_ip.brake import Brake, Confirmations, Releases, read_releases
from controllers.anycast_ip.brake import annotation as unbinds
from controllers.anycast_ip.claim import instance_of
from controllers.anycast_ip.condition import ConditionReconciler, held_by
from controllers.anycast_ip.egress import EgressChecks, EgressResults, ProbePods
from controllers.anycast_ip.inventory import Inventory, annotation
from controllers.anycast_ip.pool import Adoption, Upkeep
from controllers.anycast_ip.reader import Locks, Memory, Waits
from controllers.anycast_ip.reconciler import Reconciler
from controllers.anycast_ip.reporter import Reporter
from controllers.anycast_ip.resync import Orphans, Resync
from controllers.anycast_ip.sources import (
    NODES,
    ClaimStore,
    Nodes,
    ReportedNode,
    Sources,
    cluster_uuid,
    decode,
    incarnation,
)
from controllers.clock import CLOCK, Clock
from controllers.controller import Controller, Watch
from controllers.liveness import RUNNING
from controllers.manager import Context
from controllers.workqueue import Reconcile, Stopping, WorkQueue
from kube.errors import Backoff
from kube.event_recorder import EventRecorder
from kube.informer import Informer
from kube.store import Store
from kube.types import ConfigMap
from settings import AnycastIPSettings, CloudSettings, Settings

PAUSES = Backoff(base=0.5, cap=30.0)
RECONFIGURED = 10.0
"""Seconds between two looks whether the settings are complete."""
WORKERS = 128
"""So many nodes wait for the cloud at a time: more than a call serves, so that a full one goes at once."""
CONDITION_WORKERS = 2
"""So many conditions are written at a time, however many nodes change theirs at once."""

log = structlog.stdlib.get_logger(__name__)


def run(context: Context, settings: Callable[[], Settings]) -> None:
    """Work until the context stops; wait for complete cloud settings before."""
    client, stop = context.client, context.stop
    cloud = _connected(lambda: settings().cloud, context)
    if cloud is None:
        return
    claims = ClaimStore(client, context.namespace)
    informer = context.informers.of(NODES, ReportedNode, decode=decode)
    if not context.wait_synced(informer):
        return

    def begin() -> tuple[str, Releases]:
        uuid = cluster_uuid(client)
        claims.load(incarnation(client))
        return uuid, read_releases(client, settings().leader_election)

    begun = context.wait_for(begin, PAUSES, "initial cluster state", ValueError)
    if begun and not stop.is_set():
        uuid, releases = begun
        probes = ProbePods(client, context.namespace)
        nodes = Nodes(client, informer, probes)
        published = Published(Store(client, context.namespace, ConfigMap), context.annotate)
        given = Dependencies(nodes, claims, cloud, KnownCluster(uuid, releases), context.recorder, published)
        feature = assemble(given, lambda: settings().anycast_ip, CLOCK, informer)
        feature.sources.enqueue_all()
        with ExitStack() as stack:
            for batcher in feature.cloud.batchers:
                RUNNING.add(batcher)
                stack.callback(RUNNING.discard, batcher)
            stack.enter_context(feature.cloud.running())
            context.run(*feature.controllers)


def _connected(settings: Callable[[], CloudSettings], context: Context) -> Cloud | None:
    """As soon as the settings are complete; None when it is time to stop before."""
    stop = context.stop

    def sleep(seconds: float) -> None:
        if stop.wait(seconds):
            raise Stopping("a wait for the cloud was cut short")

    while not stop.is_set():
        try:
            return connect(settings(), may_write=context.check, writes_within=context.grace, sleep=sleep)
        except NotConfigured as error:
            log.error("cloud not configured", error=str(error))
            stop.wait(RECONFIGURED)
    return None


@dataclass(frozen=True)
class Published:
    """Where others read of the addresses: *annotate* writes to the leader's Lease."""

    allow_list: Store[ConfigMap]
    annotate: Callable[[Mapping[str, str]], None] = lambda _: None


@dataclass(frozen=True)
class KnownCluster:
    """Its *uuid* in tags, and what earlier leaders and operators have said of releases."""

    uuid: str
    releases: Releases


@dataclass(frozen=True)
class Dependencies:
    """What the feature reads and writes."""

    nodes: Nodes
    claims: ClaimStore
    cloud: Cloud
    cluster: KnownCluster
    recorder: EventRecorder
    published: Published


@dataclass(frozen=True)
class Feature:
    """All parts, put together."""

    sources: Sources
    reconciler: Reconciler
    cloud: BatchedCloud
    controllers: Sequence[Controller]


def assemble(
    given: Dependencies,
    settings: Callable[[], AnycastIPSettings],
    clocks: Clock,
    informer: Informer[ReportedNode],
) -> Feature:
    clock = clocks.monotonic
    queue = WorkQueue("anycast_ip", pauses=PAUSES, clock=clock)
    cloud = BatchedCloud(given.cloud, lambda: reconciler.try_refused(), clock)
    inventory = Inventory(given.cloud, given.cluster.uuid, clock)
    sources = Sources(given.nodes, given.claims, inventory, settings, clocks, queue.add)
    brake = Brake(
        clocks.now, given.cluster.releases.unbound, lambda times: given.published.annotate(unbinds(times))
    )
    memory = Memory(Waits(clock), Locks(), Announcements(clocks.now), brake, EgressChecks(clock))
    reporter = Reporter(given.recorder, clocks.now, given.claims.regarding)
    conditions = ConditionReconciler(sources, reporter.trouble)
    reconciler = Reconciler(sources, memory, cloud, reporter, queue, conditions.queue.add)

    def report(quotas: Sequence[Quota]) -> None:
        reporter.quotas(quotas)
        given.published.annotate(annotation(quotas, clocks.now()))

    def periodic(name: str, reconcile: Reconcile) -> Controller:
        return Controller(
            WorkQueue(f"anycast_ip_{name}", pauses=PAUSES, clock=clock), reconcile, first=[name]
        )

    enqueue = sources.enqueue
    egress = EgressResults(memory.egress, given.nodes.probes, lambda: settings().egress_check, enqueue, clock)
    return Feature(
        sources,
        reconciler,
        cloud,
        (
            periodic("resync", Resync(given.cloud, sources, report).reconcile),
            periodic("orphans", Orphans(sources, given.recorder).reconcile),
            periodic("pool", Upkeep(sources).reconcile),
            periodic("adoption", Adoption(sources).reconcile),
            periodic("egress", egress.reconcile),
            periodic(
                "brake", Confirmations(brake, given.cluster.releases.confirmed, enqueue, clock).reconcile
            ),
            periodic(
                "allow_list", AllowList(sources, memory.announcements, given.published.allow_list).reconcile
            ),
            Controller(
                queue,
                reconciler.reconcile,
                Watch(informer, partial(_to_reconcile, given.claims)),
                workers=WORKERS,
            ),
            Controller(conditions.queue, conditions.reconcile, workers=CONDITION_WORKERS),
        ),
    )


def _to_reconcile(claims: ClaimStore, old: ReportedNode | None, new: ReportedNode | None) -> Iterator[str]:
    """The node, and claims to its instance: a node that comes or goes may be their heir."""
    if not _matters(old, new):
        return
    for node in filter(None, (old, new)):
        yield node.metadata.uid
        for claim in claims.having(instance_of(node)):
            yield claim.uid


def _matters(old: ReportedNode | None, new: ReportedNode | None) -> bool:
    """Not what the kubelet reports all the time, nor annotations and conditions of others."""
    return old is None or new is None or _view(old) != _view(new)


def _view(node: ReportedNode) -> object:
    annotations = node.metadata.annotations
    proof = [annotations.get(each) for each in (ADDRESS_ID, ADDRESS, BOUND)]
    return node.spec, node.metadata.labels, proof, held_by(node)
