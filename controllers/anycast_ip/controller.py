"""Wire the feature: informer, work queue and workers, the batched cloud, and the resync."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import structlog

from api.anycast_ip import ADDRESS, ADDRESS_ID, BOUND
from cloud.batched import BatchedCloud
from cloud.client import Cloud, caller
from cloud.errors import CloudError, NotConfigured
from controllers.anycast_ip.allow_list import AllowList, Announcements
from controllers.anycast_ip.brake import Brake, Unbinds, read_unbinds
from controllers.anycast_ip.claim import instance_of
from controllers.anycast_ip.egress import EgressChecks
from controllers.anycast_ip.memory import Locks, Memory, Waits
from controllers.anycast_ip.pool import Adoption, Upkeep
from controllers.anycast_ip.reconciler import Reconciler
from controllers.anycast_ip.reporter import ConditionReconciler, Reporter
from controllers.anycast_ip.resync import Orphans, Resync
from controllers.anycast_ip.sources import (
    ClaimStore,
    Inventory,
    Nodes,
    ReportedNode,
    Sources,
    cluster_identity,
    decode,
)
from controllers.controller import CLOCK, Clock, Controller, Watch
from controllers.manager import Context
from controllers.workqueue import Reconcile, WorkQueue
from kube.errors import Backoff, KubeError
from kube.informer import Informer
from kube.resources import NODES
from kube.store import Store
from kube.types import ConfigMap
from settings import AnycastIPSettings, Settings

PAUSES = Backoff(base=0.5, cap=30.0)
RECONFIGURED = Backoff(base=10.0, cap=10.0)
"""Between two looks whether the settings are complete."""
WORKERS = 128
"""So many nodes wait for the cloud at a time: more than a call serves, so that a full one goes at once."""
PERIOD = 1.0
"""Seconds from one look whether something is due beside the nodes to the next: nodes may wait for it."""
CONDITION_WORKERS = 2
"""So many conditions are written at a time, however many nodes change theirs at once."""

log = structlog.stdlib.get_logger(__name__)


def run(context: Context, settings: Callable[[], Settings]) -> None:
    """Work until the context stops; wait for complete cloud settings before."""
    client = context.client

    def connect() -> Cloud:
        within, sleep = context.grace, context.sleep
        return Cloud(caller(settings().cloud, may_write=context.check, writes_within=within, sleep=sleep))

    cloud = context.wait_for(connect, RECONFIGURED, "complete settings of the cloud", NotConfigured)
    if cloud is None:
        return
    informer = context.informers.of(NODES, ReportedNode, decode=decode)
    if not context.wait_synced(informer):
        return

    def begin() -> Begun:
        uuid, incarnation = cluster_identity(client)
        claims = ClaimStore(client, context.namespace, CLOCK.monotonic, incarnation)
        return Begun(uuid, claims, read_unbinds(client, settings().leader_election))

    begun = context.wait_for(begin, PAUSES, "initial cluster state", ValueError)
    if begun and not context.stop.is_set():
        context.run(*assemble(context, cloud, informer, lambda: settings().anycast_ip, begun, CLOCK))


@dataclass(frozen=True)
class Begun:
    """What is read once: the cluster's *uuid* in tags, all claims, and what earlier leaders have unbound."""

    uuid: str
    claims: ClaimStore
    unbound: Unbinds


def assemble(
    context: Context,
    cloud: Cloud,
    informer: Informer[ReportedNode],
    settings: Callable[[], AnycastIPSettings],
    begun: Begun,
    clocks: Clock,
) -> Sequence[Controller]:
    """All controllers, with all nodes and claims queued."""
    client, clock, claims = context.client, clocks.monotonic, begun.claims
    queue = WorkQueue("anycast_ip", pauses=PAUSES, clock=clock)
    batched = BatchedCloud(cloud, lambda: reconciler.try_refused(), clock)
    inventory = Inventory(cloud, begun.uuid, clock)
    sources = Sources(Nodes(client, informer), claims, inventory, settings, clocks, queue.add)
    brake = Brake(sources, client, begun.unbound, context.annotate)
    egress = EgressChecks(sources, client, context.namespace)
    memory = Memory(Waits(clock), Locks(), Announcements(clocks.now), brake, egress)
    reporter = Reporter(context.recorder, sources)
    conditions = ConditionReconciler(sources, reporter.trouble)
    reconciler = Reconciler(sources, memory, batched, reporter, queue, conditions.queue.add)
    allow_list = AllowList(sources, memory.announcements, Store(client, context.namespace, ConfigMap))

    looks = {
        "resync": Resync(sources, context.annotate).look,
        "orphans": Orphans(sources, context.recorder).look,
        "pool": Upkeep(sources).look,
        "adoption": Adoption(sources, reconciler.try_refused).look,
        "egress": egress.look,
        "brake": brake.look,
    }
    side_work: dict[str, Reconcile] = {name: partial(_look, look) for name, look in looks.items()}
    controllers = [
        Controller(WorkQueue(f"anycast_ip_{name}", pauses=PAUSES, clock=clock), reconcile, first=[name])
        for name, reconcile in {**side_work, "allow_list": allow_list.reconcile}.items()
    ]
    nodes = Watch(informer, partial(_to_reconcile, claims))
    controllers += [
        Controller(queue, reconciler.reconcile, nodes, workers=WORKERS),
        Controller(conditions.queue, conditions.reconcile, workers=CONDITION_WORKERS),
    ]
    sources.enqueue_all()
    return controllers


def _look(look: Callable[[], None], name: str) -> float:
    """What fails is tried again in the next period."""
    try:
        look()
    except (CloudError, KubeError) as error:
        log.warning("side work failed", name=name, error=str(error))
    return PERIOD


def _to_reconcile(claims: ClaimStore, old: ReportedNode | None, new: ReportedNode | None) -> Iterator[str]:
    """The node, and claims to its instance: a node that comes or goes may be their heir.

    Not for what the kubelet reports all the time, nor for annotations and conditions of others.
    """
    if old and new and _view(old) == _view(new):
        return
    for node in filter(None, (old, new)):
        yield node.metadata.uid
        for claim in claims.having(instance_of(node)):
            yield claim.uid


def _view(node: ReportedNode) -> object:
    proof = [node.metadata.annotations.get(each) for each in (ADDRESS_ID, ADDRESS, BOUND)]
    return node.spec, node.metadata.labels, proof, node.condition
