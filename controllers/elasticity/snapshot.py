"""What one decision rests on: the pods of a key, what was decided of them before, nodes, switches and settings."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Protocol

import msgspec
import structlog

from api.elasticity import SWITCH
from controllers.elasticity.annotations import Wanted, Wish, parse, wish_of
from controllers.elasticity.nodes import Nodes, WatchedNode
from controllers.elasticity.patches import Action, Kind
from controllers.elasticity.planner import Ordinal, Siblings, Standing, standing
from controllers.elasticity.pod_cache import PodCache
from controllers.elasticity.pods import Pod, decode, oldest_first
from controllers.elasticity.workload_replicas import Replicas, WorkloadReplicas
from controllers.manager import Context
from kube.event_recorder import EventRecorder, Regarding
from kube.informer import Informer
from kube.list_watch import Selection
from kube.resources import CONFIG_MAPS, NODES, PODS, STATEFUL_SETS
from kube.types import ConfigMap, ObjectMeta, Value, complete
from settings import ElasticitySettings

log = structlog.stdlib.get_logger(__name__)

INDEX = "apps.kubernetes.io/pod-index"
PATIENCE = 10.0
"""Seconds from its creation for which a pod waits until its workload is known."""


class Ordinals(Value, frozen=True):
    start: int = 0


class StatefulSetSpec(Value, frozen=True):
    replicas: int = 1
    ordinals: Ordinals = Ordinals()


class StatefulSet(Value, frozen=True):
    """All that is read of one."""

    metadata: ObjectMeta = ObjectMeta()
    spec: StatefulSetSpec = StatefulSetSpec()


complete(StatefulSet)
_DECODER = msgspec.json.Decoder(StatefulSet)


def slim(raw: msgspec.Raw) -> StatefulSet:
    """Without labels and annotations. MsgspecError when it cannot be read."""
    found = _DECODER.decode(raw)
    at = found.metadata
    kept = ObjectMeta(name=at.name, namespace=at.namespace, uid=at.uid, resource_version=at.resource_version)
    return StatefulSet(kept, found.spec)


def ordinal_of(pod: Pod) -> int | None:
    """By its label, which has been there since Kubernetes 1.28, or by its name; None for a pod of another owner.

    StatefulSets of other groups may number their pods in another way.
    """
    owner = pod.metadata.controller
    if owner is None or owner.kind != "StatefulSet" or not owner.api_version.startswith("apps/"):
        return None
    name = pod.metadata.labels.get(INDEX) or pod.metadata.name.rpartition("-")[2]
    return int(name) if re.fullmatch(r"[0-9]{1,9}", name) else None


@dataclass(frozen=True)
class Sources:
    """*first_ordinal* is the least ordinal of a pod's StatefulSet, *replicas* how many its workload wants.

    Both are None while that is not known.
    """

    pods: PodCache
    nodes: Callable[[], Nodes]
    settings: Callable[[], ElasticitySettings]
    switch: Callable[[], bool | None]
    first_ordinal: Callable[[Pod], int | None]
    replicas: Callable[[Pod], Replicas | None] = lambda _: None

    def snapshot(self, key: str, assumed: Mapping[str, Action], now: datetime) -> Snapshot:
        """*assumed* is read before; a pod that only gets a reason may be decided on."""
        deciding = {uid: action for uid, action in assumed.items() if action.kind is not Kind.WAIT}
        return Snapshot(deciding, self.pods.having(f"key {key}"), self, now)


class Surroundings(Protocol):
    """What decisions rest on besides pods; Sources has it, too."""

    @property
    def nodes(self) -> Callable[[], Nodes]: ...
    @property
    def settings(self) -> Callable[[], ElasticitySettings]: ...
    @property
    def switch(self) -> Callable[[], bool | None]: ...
    @property
    def first_ordinal(self) -> Callable[[Pod], int | None]: ...
    @property
    def replicas(self) -> Callable[[Pod], Replicas | None]: ...


@dataclass(frozen=True)
class Snapshot:
    """*pods* are those of one key that are not over; *assumed* is by uid."""

    assumed: Mapping[str, Action]
    pods: Sequence[Pod]
    sources: Surroundings
    now: datetime

    @cached_property
    def nodes(self) -> Nodes:
        return self.sources.nodes()

    @cached_property
    def settings(self) -> ElasticitySettings:
        return self.sources.settings()

    @cached_property
    def switch(self) -> bool | None:
        return self.sources.switch()

    @property
    def gated(self) -> list[Pod]:
        return self._idle(pod for pod in self.pods if pod.gated)

    @property
    def stuck(self) -> list[Pod]:
        """Those that the scheduler finds no room for."""
        return self._idle(pod for pod in self.pods if pod.stuck_since is not None)

    @property
    def siblings(self) -> Siblings:
        """How many are local or will be, and how many are on super nodes or on their way there."""
        found = [self._standing(pod) for pod in self.pods]
        return Siblings(found.count(Standing.LOCAL), found.count(Standing.SUPER))

    def wish(self, pod: Pod) -> Wish:
        return wish_of(pod, self.switch, self.settings, lambda: self._wanted(pod))

    def age(self, pod: Pod) -> float:
        created = pod.metadata.creation_timestamp
        return (self.now - created).total_seconds() if created else math.inf

    def ordinal(self, pod: Pod) -> Ordinal:
        number = ordinal_of(pod)
        if number is None:
            return Ordinal()
        first = self.sources.first_ordinal(pod)
        if first is None and self.age(pod) < PATIENCE:
            return Ordinal(unknown="its StatefulSet is not known yet")
        return Ordinal(number - (first or 0))

    def _wanted(self, pod: Pod) -> Wanted:
        """A pod without a controller is the only one of its kind."""
        if (owner := pod.metadata.controller) is None:
            return Wanted(1)
        found, is_new = self.sources.replicas(pod), self.age(pod) < PATIENCE
        if found is not None and (len(self.pods) <= found.made or not is_new):
            return Wanted(found.wanted)
        if is_new:
            return Wanted(unknown=f"its {owner.kind} is not known {'as it is now' if found else 'yet'}")
        return Wanted(
            problem=f"{owner.kind} {owner.name}, of which a share is local, is not known: write a number"
        )

    def _idle(self, pods: Iterable[Pod]) -> list[Pod]:
        return oldest_first(pod for pod in pods if pod.metadata.uid not in self.assumed)

    def _standing(self, pod: Pod) -> Standing:
        now = standing(pod, self.nodes.names)
        action = self.assumed.get(pod.metadata.uid) if now is Standing.GATED else None
        if action is None:
            return now
        return {Kind.LOCAL: Standing.LOCAL, Kind.SUPER: Standing.SUPER}.get(action.kind, now)


@dataclass(frozen=True)
class ElasticityInformers:
    pods: Informer[Pod]
    nodes: Informer[WatchedNode]
    switches: Informer[ConfigMap]
    stateful_sets: Informer[StatefulSet]
    workloads: WorkloadReplicas | None

    def first_ordinal(self, pod: Pod) -> int | None:
        """The least ordinal of its StatefulSet; None while that is not known."""
        owner = pod.metadata.controller
        found = owner and self.stateful_sets.get(f"{pod.metadata.namespace}/{owner.name}")
        return found.spec.ordinals.start if owner and found and found.metadata.uid == owner.uid else None

    def replicas(self, pod: Pod) -> Replicas | None:
        """How many its workload wants; None while that is not known, or not read."""
        owner = pod.metadata.controller
        if owner is None or self.workloads is None:
            return None
        if owner.kind != "StatefulSet":
            return self.workloads.of(pod)
        found = self.stateful_sets.get(f"{pod.metadata.namespace}/{owner.name}")
        if found is None or found.metadata.uid != owner.uid:
            return None
        return Replicas(found.spec.replicas, found.spec.replicas)


@contextmanager
def informed(context: Context, settings: ElasticitySettings) -> Iterator[ElasticityInformers]:
    """Complete informers, unless it is time to stop; they list now, not before."""
    switch, informers = settings.switch, context.informers
    where = Selection(switch.namespace, field_selector=f"metadata.name={switch.name}")
    found = ElasticityInformers(
        informers.of(PODS, Pod, decode=decode),
        informers.of(NODES, WatchedNode),
        informers.of(CONFIG_MAPS, ConfigMap, where),
        informers.of(STATEFUL_SETS, StatefulSet, decode=slim),
        WorkloadReplicas(informers) if settings.percentages else None,
    )
    every: tuple[Informer[Any], ...] = (
        *(found.pods, found.nodes, found.switches, found.stateful_sets),
        *(found.workloads.informers if found.workloads else ()),
    )
    try:
        context.wait_synced(*every)
        yield found
    finally:
        for each in every:
            informers.release(each)


class GlobalSwitch:
    """The global switch of the ConfigMap; a value that cannot be read is reported on it, once."""

    def __init__(
        self,
        config_maps: Informer[ConfigMap],
        recorder: EventRecorder,
        settings: Callable[[], ElasticitySettings],
    ) -> None:
        self._config_maps, self._recorder, self._settings = config_maps, recorder, settings
        self._reported = ""

    def read(self) -> bool | None:
        value, problem = parse(next((each.data.get(SWITCH) for each in self._config_maps.list()), None))
        if problem and problem != self._reported:
            at = self._settings().switch
            regarding = Regarding(CONFIG_MAPS.api_version, "ConfigMap", at.name, at.namespace)
            log.warning("global switch not readable", namespace=at.namespace, name=at.name, error=problem)
            self._recorder.event(regarding, "BadSwitch", problem, type="Warning")
        self._reported = problem
        return value
