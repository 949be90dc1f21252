"""Where decisions read from: informers of pods, nodes, workloads and the global switch.

The copy of the pods is the one that our own writes go through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
import structlog

from api.elasticity import SWITCH, is_sent
from controllers.elasticity.nodes import Nodes, WatchedNode, differ, sorted_out
from controllers.elasticity.patches import Action, Kind, Patch
from controllers.elasticity.pods import Pod, PodIndex, decode, decode_for_return, facets
from controllers.elasticity.snapshot import ClusterState, Snapshot, Workload, parse
from controllers.manager import Context
from kube.client import Client
from kube.errors import NotFound
from kube.event_recorder import EventRecorder, Regarding
from kube.informer import IndexFunction, Informer
from kube.resources import CONFIG_MAPS, NODES, PODS, STATEFUL_SETS, Resource, Selection
from kube.types import ConfigMap, ObjectMeta, Value, key_of, slim
from settings import ElasticitySettings

REPLICA_SETS = Resource("apps", "v1", "replicasets")
JOBS = Resource("batch", "v1", "jobs")
DESIRED = ("deployment.kubernetes.io/desired-replicas", "rollout.argoproj.io/desired-replicas")
"""What the controllers of Deployments and Argo Rollouts write on a ReplicaSet, in the update that scales it.

In a rolling update a ReplicaSet grows step by step: a share of what it has would begin too low.
"""
FACET, PLACE = "facet", "place"

log = structlog.stdlib.get_logger(__name__)


class PodCache(PodIndex):
    """Safe to share between threads."""

    def __init__(self, client: Client, informer: Informer[Pod]) -> None:
        super().__init__(lambda facet: informer.by_index(FACET, facet))
        self._client, self._informer = client, informer
        informer.add_index(FACET, facets)
        self.number_placed_locally = partial(informer.count, FACET, "local")
        self._places: IndexFunction[Pod] | None = None

    def all(self) -> Sequence[Pod]:
        return self._informer.list()

    def count(self, places: IndexFunction[Pod], place: str, without: Iterable[Pod] = ()) -> int:
        """How many have *place* among their *places*, but for those *without*; by one function at a time."""
        if places != self._places:
            self._informer.add_index(PLACE, places)
            self._places = places
        return self._informer.count(PLACE, place, (pod.metadata for pod in without))

    def named_as(self, pod: Pod) -> Pod | None:
        """The pod that has its name now, as it is known; it may be another one."""
        return self._informer.get(key_of(pod.metadata))

    def current(self, pod: Pod) -> Pod | None:
        """As it is known now; None when it is gone, also when another pod has its name."""
        found = self.named_as(pod)
        return found if found is not None and found.metadata.uid == pod.metadata.uid else None

    def patch(self, pod: Pod, patch: Patch) -> None:
        """KubeError."""
        at = pod.metadata
        self._informer.wrote(self._client.patch(PODS, at.name, patch, at.namespace, type=msgspec.Raw))

    def delete(self, pod: Pod) -> None:
        """That version of it. KubeError."""
        at = pod.metadata
        self._client.delete(PODS, at.name, at.namespace, preconditions=at.guard)

    def refresh(self, pod: Pod) -> None:
        """Read it from the API server. KubeError, but for a pod that is gone."""
        at = pod.metadata
        try:
            self._informer.wrote(self._client.get(PODS, at.name, at.namespace, type=msgspec.Raw))
        except NotFound:
            self.forget(pod)

    def forget(self, pod: Pod) -> None:
        """The API server says that it is gone: until the watch does, too, it would be decided on without a pause."""
        self._informer.forget(key_of(pod.metadata), pod.metadata.uid)


class NodeCache:
    """The nodes of *informer*, sorted out once for each change that counts; *pods* are those of the beginning."""

    def __init__(self, informer: Informer[WatchedNode], pods: Iterable[Pod] = ()) -> None:
        self._informer = informer
        self._changes = 0
        # A super node may be gone before this leader could see it, and come back with its pods.
        names = frozenset(pod.node_name for pod in pods if pod.node_name and is_sent(pod.metadata))
        self._sorted = 0, Nodes(names)
        informer.on_change(self._note)

    def __call__(self) -> Nodes:
        changes, (as_of, known) = self._changes, self._sorted
        if as_of != changes:
            found = sorted_out(self._informer.list())
            gone = known.names.difference(node.metadata.name for node in (*found.super, *found.local))
            known = replace(found, names=found.names | gone)
            self._sorted = changes, known
        return known

    def _note(self, old: WatchedNode | None, new: WatchedNode | None) -> None:
        self._changes += differ(old, new)


@dataclass(frozen=True)
class Sources:
    """*workload* is None while that of the pod is not known, or not read."""

    pods: PodCache
    nodes: Callable[[], Nodes]
    settings: Callable[[], ElasticitySettings]
    switch: Callable[[], bool | None]
    workload: Callable[[Pod], Workload | None]

    def snapshot(self, key: str, assumed: Mapping[str, Action], now: datetime) -> Snapshot:
        """*assumed* is read before, of all keys; a pod that only gets a reason may be decided on."""
        deciding = {
            uid: action
            for uid, action in assumed.items()
            if action.pod.key == key and action.kind is not Kind.WAIT
        }
        cluster = ClusterState(self.nodes(), self.settings(), self.switch(), self.workload)
        return Snapshot(self.pods.of_key(key), deciding, cluster, now)


class Ordinals(Value, frozen=True):
    start: int = 0


class RollingUpdate(Value, frozen=True):
    partition: int = 0


class UpdateStrategy(Value, frozen=True):
    type: str = ""
    rolling_update: RollingUpdate = RollingUpdate()


class WorkloadSpec(Value, frozen=True):
    replicas: int = 1
    ordinals: Ordinals = Ordinals()
    update_strategy: UpdateStrategy = UpdateStrategy()
    parallelism: int = 1
    completions: int | None = None


class WorkloadStatus(Value, frozen=True):
    observed_generation: int = 0
    replicas: int = 0
    available_replicas: int = 0
    current_revision: str = ""
    update_revision: str = ""


class WorkloadObject(Value, frozen=True):
    """A ReplicaSet, a StatefulSet or a Job."""

    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


_WORKLOAD = msgspec.json.Decoder(WorkloadObject)


def replicated(raw: msgspec.Raw) -> Workload:
    """A StatefulSet or a ReplicaSet. MsgspecError when it cannot be read."""
    found = _WORKLOAD.decode(raw)
    made, annotations = found.spec.replicas, found.metadata.annotations
    said = next((annotations[name] for name in DESIRED if name in annotations), "")
    is_number = said.isascii() and said.isdigit() and len(said) < 10
    return Workload(slim(found.metadata), int(said) if is_number else made, made, found.spec.ordinals.start)


def job(raw: msgspec.Raw) -> Workload:
    """As many as run at a time. MsgspecError when it cannot be read."""
    found = _WORKLOAD.decode(raw)
    limits = (found.spec.parallelism, found.spec.completions)
    wanted = min(limit for limit in limits if limit is not None)
    return Workload(slim(found.metadata), wanted, wanted)


def workload_of(by_kind: Mapping[str, Informer[Workload]], pod: Pod) -> Workload | None:
    """The pod's own; None while it is not known, or not read."""
    owner = pod.metadata.controller
    if owner is None or owner.kind not in by_kind:
        return None
    found = by_kind[owner.kind].get(f"{pod.metadata.namespace}/{owner.name}")
    return found if found and found.metadata.uid == owner.uid else None


class GlobalSwitch:
    """The global switch of the ConfigMap; a value that cannot be read is reported on it, once."""

    def __init__(self, config_maps: Informer[ConfigMap], recorder: EventRecorder) -> None:
        self._config_maps, self._recorder = config_maps, recorder
        self._reported = ""

    def read(self) -> bool | None:
        found = next(iter(self._config_maps.list()), ConfigMap())
        value, problem = parse(found.data.get(SWITCH))
        if problem and problem != self._reported:
            regarding = Regarding.of(found, CONFIG_MAPS, "ConfigMap")
            log.warning("global switch not readable", **found.metadata.about, error=problem)
            self._recorder.event(regarding, "BadSwitch", problem, type="Warning")
        self._reported = problem
        return value


@dataclass(frozen=True)
class ElasticityInformers:
    pods: Informer[Pod]
    nodes: Informer[WatchedNode]
    switches: Informer[ConfigMap]


@contextmanager
def informed(
    context: Context, settings: Callable[[], ElasticitySettings]
) -> Iterator[tuple[Sources, ElasticityInformers]]:
    """Complete informers, unless it is time to stop; they list now, not before."""
    begun, informers = settings(), context.informers
    where = Selection(begun.switch.namespace, field_selector=f"metadata.name={begun.switch.name}")
    found = ElasticityInformers(
        informers.of(PODS, Pod, decode=decode_for_return if begun.return_home.enabled else decode),
        informers.of(NODES, WatchedNode),
        informers.of(CONFIG_MAPS, ConfigMap, where),
    )
    workloads = {"StatefulSet": informers.of(STATEFUL_SETS, Workload, decode=replicated)}
    """For their ordinals; the others only while a share of their replicas is local."""
    if begun.percentages:
        workloads["ReplicaSet"] = informers.of(REPLICA_SETS, Workload, decode=replicated)
        workloads["Job"] = informers.of(JOBS, Workload, decode=job)
    every: Sequence[Informer[Any]] = (found.pods, found.nodes, found.switches, *workloads.values())
    try:
        context.wait_synced(*every)
        switch = GlobalSwitch(found.switches, context.recorder)
        pods = PodCache(context.client, found.pods)
        nodes = NodeCache(found.nodes, pods.all())
        yield Sources(pods, nodes, settings, switch.read, partial(workload_of, workloads)), found
    finally:
        for informer in every:
            informers.release(informer)
