"""Wire the feature: informer, work queue and workers, the batched cloud, and the resync."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

import structlog

from api.anycast_ip import ADDRESS, ADDRESS_ID, BOUND
from cloud.batched import BatchedCloud
from cloud.client import Cloud, connect
from cloud.errors import NotConfigured
from cloud.types import Quota
from controllers.anycast_ip.adoption import Adoption
from controllers.anycast_ip.allow_list import AllowList, AllowListStore
from controllers.anycast_ip.brake import Brake
from controllers.anycast_ip.brake import annotation as unbinds
from controllers.anycast_ip.brake_watch import BrakeWatch, Releases, read_releases
from controllers.anycast_ip.claim import instance_of
from controllers.anycast_ip.claim_store import ClaimStore, cluster_uuid, incarnation
from controllers.anycast_ip.condition import ReportedNode, decode, held_by
from controllers.anycast_ip.condition_reconciler import ConditionReconciler
from controllers.anycast_ip.egress_store import ProbePods
from controllers.anycast_ip.egress_watch import EgressWatch
from controllers.anycast_ip.memory import Clocks, Memory
from controllers.anycast_ip.orphans import Orphans
from controllers.anycast_ip.quotas import annotation
from controllers.anycast_ip.reconciler import Reconciler
from controllers.anycast_ip.reporter import Reporter
from controllers.anycast_ip.resync import Inventory, Resync
from controllers.anycast_ip.sources import NODES, Nodes, Sources
from controllers.anycast_ip.upkeep import Upkeep
from controllers.liveness import RUNNING, Heartbeat
from controllers.manager import Context
from controllers.workqueue import Stopping, WorkQueue
from kube.errors import Backoff
from kube.event_recorder import EventRecorder
from kube.informer import Informer
from settings import AnycastIPSettings, CloudSettings, Settings

PAUSES = Backoff(base=0.5, cap=30.0)
RECONFIGURED = 10.0
"""Seconds between two looks whether the settings are complete."""
WORKERS = 8
"""They wait for the API server only: what waits for the cloud is suspended."""
CONDITION_WORKERS = 2
"""So many conditions are written at a time, however many nodes change theirs at once."""
TICK = 0.2
LONG_AGO = datetime.min.replace(tzinfo=UTC)

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
        published = Published(AllowListStore(client, context.namespace), context.annotate)
        edges = Edges(nodes, claims, cloud, KnownCluster(uuid, releases), context.recorder, published)
        feature = assemble(edges, lambda: settings().anycast_ip, Clocks())
        feature.start(informer)
        _work(feature, context)


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

    allow_list: AllowListStore
    annotate: Callable[[Mapping[str, str]], None] = lambda _: None


@dataclass(frozen=True)
class KnownCluster:
    """Its *uuid* in tags, and what earlier leaders and operators have said of releases."""

    uuid: str
    releases: Releases


@dataclass(frozen=True)
class Edges:
    """What the feature reads and writes."""

    nodes: Nodes
    claims: ClaimStore
    cloud: Cloud
    cluster: KnownCluster
    recorder: EventRecorder
    published: Published


class Chore(Protocol):
    """What is due apart from single nodes."""

    def turn(self) -> None: ...


@dataclass(frozen=True)
class Feature:
    """All parts, put together."""

    sources: Sources
    queue: WorkQueue
    reconciler: Reconciler
    conditions: ConditionReconciler
    resync: Resync
    chores: Sequence[Chore]

    def start(self, informer: Informer[ReportedNode]) -> None:
        """Queue what *informer* has, in order, and from now on what changes."""
        self.enqueue_all()
        informer.on_change(self._on_change)

    def enqueue_all(self) -> None:
        """The oldest node first, then the claims whose nodes are gone."""
        nodes = sorted(
            self.sources.nodes.list(), key=lambda each: each.metadata.creation_timestamp or LONG_AGO
        )
        for uid in dict.fromkeys([*(each.metadata.uid for each in nodes), *self.sources.claims.claims]):
            self.reconciler.add(uid)

    def _on_change(self, old: ReportedNode | None, new: ReportedNode | None) -> None:
        """Queue the node, and claims to its instance: a node that comes or goes may be their heir."""
        if not _matters(old, new):
            return
        for node in filter(None, (old, new)):
            self.reconciler.add(node.metadata.uid)
            for claim in self.sources.claims.having(instance_of(node)):
                self.reconciler.add(claim.uid)

    def turn(self) -> None:
        """What is due apart from single nodes."""
        if self.resync.turn(self.sources.settings()):
            self.enqueue_all()
        for each in self.chores:
            each.turn()


def assemble(edges: Edges, settings: Callable[[], AnycastIPSettings], clocks: Clocks) -> Feature:
    clock = clocks.monotonic
    queue = WorkQueue("anycast_ip", pauses=PAUSES, clock=clock)
    cloud = BatchedCloud(edges.cloud, lambda: reconciler.try_refused(), clock)
    inventory = Inventory(edges.cloud, edges.cluster.uuid, clock)
    brake = Brake(
        clocks.now, edges.cluster.releases.unbound, lambda times: edges.published.annotate(unbinds(times))
    )
    sources = Sources(edges.nodes, edges.claims, inventory, cloud, Memory(clocks, brake), settings)
    reporter = Reporter(edges.recorder, clocks.now, edges.claims.regarding)
    conditions = ConditionReconciler(sources, reporter.trouble)
    reconciler = Reconciler(sources, reporter, queue, conditions.queue.add)

    def report(quotas: Sequence[Quota]) -> None:
        reporter.quotas(quotas)
        edges.published.annotate(annotation(quotas, clocks.now()))

    resync = Resync(edges.cloud, inventory, report, clock)
    chores = (
        Orphans(sources, edges.recorder, reconciler.add),
        Upkeep(sources, reconciler.add),
        Adoption(sources, reconciler.add),
        EgressWatch(sources, reconciler.add),
        BrakeWatch(sources, edges.cluster.releases.confirmed, reconciler.add),
        AllowList(sources, edges.published.allow_list, reconciler.add),
    )
    return Feature(sources, queue, reconciler, conditions, resync, chores)


def _work(feature: Feature, context: Context) -> None:
    beat = Heartbeat("anycast_ip_resync")
    with ExitStack() as stack:
        for each in feature.sources.cloud.batchers:
            RUNNING.add(each)
            stack.callback(RUNNING.discard, each)
        conditions = feature.conditions
        stack.enter_context(context.working(conditions.queue, conditions.reconcile, CONDITION_WORKERS))
        stack.enter_context(context.working(feature.queue, feature.reconciler.reconcile, WORKERS))
        stack.enter_context(feature.sources.cloud.running())
        while not context.stop.is_set():
            beat()
            context.check()
            try:
                feature.turn()
            except Stopping:
                return
            context.stop.wait(TICK)


def _matters(old: ReportedNode | None, new: ReportedNode | None) -> bool:
    """Not what the kubelet reports all the time, nor annotations and conditions of others."""
    return old is None or new is None or _view(old) != _view(new)


def _view(node: ReportedNode) -> object:
    annotations = node.metadata.annotations
    proof = [annotations.get(each) for each in (ADDRESS_ID, ADDRESS, BOUND)]
    return node.spec, node.metadata.labels, proof, held_by(node)
