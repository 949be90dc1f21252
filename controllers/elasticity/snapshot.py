"""What one decision rests on: the pods of a key, what was decided of them before, nodes, switches and settings."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

import msgspec

from controllers.elasticity.annotations import Wish, wish_of
from controllers.elasticity.nodes import Nodes
from controllers.elasticity.planner import Ordinal, Siblings, Standing, standing
from controllers.elasticity.pod_cache import PodCache
from controllers.elasticity.pods import Pod, oldest_first
from controllers.elasticity.writer import Action, Kind
from kube.types import ObjectMeta, OwnerReference, Value, complete
from settings import ElasticitySettings

INDEX = "apps.kubernetes.io/pod-index"


class Ordinals(Value, frozen=True):
    start: int = 0


class StatefulSetSpec(Value, frozen=True):
    ordinals: Ordinals = Ordinals()


class StatefulSet(Value, frozen=True):
    """All that is read of one."""

    metadata: ObjectMeta = ObjectMeta()
    spec: StatefulSetSpec = StatefulSetSpec()


complete(StatefulSet)


def slim(raw: msgspec.Raw) -> StatefulSet:
    """Without labels and annotations. MsgspecError when it cannot be read."""
    found = _DECODER.decode(raw)
    at = found.metadata
    kept = ObjectMeta(name=at.name, namespace=at.namespace, uid=at.uid, resource_version=at.resource_version)
    return StatefulSet(kept, found.spec)


def stateful_set_of(pod: Pod) -> OwnerReference | None:
    """Of Kubernetes itself: others may number their pods in another way."""
    owner = pod.metadata.controller
    is_one = owner is not None and owner.kind == "StatefulSet" and owner.api_version.startswith("apps/")
    return owner if is_one else None


def ordinal_of(pod: Pod) -> int | None:
    """By its label, which has been there since Kubernetes 1.28, or by its name."""
    name = pod.metadata.labels.get(INDEX) or pod.metadata.name.rpartition("-")[2]
    return int(name) if re.fullmatch(r"[0-9]{1,9}", name) else None


_DECODER = msgspec.json.Decoder(StatefulSet)


PATIENCE = 10.0
"""Seconds from its creation for which a pod waits until its StatefulSet is known."""


@dataclass(frozen=True)
class Sources:
    """*first_ordinal* is the least ordinal of a pod's StatefulSet, None while that is not known."""

    pods: PodCache
    nodes: Callable[[], Nodes]
    settings: Callable[[], ElasticitySettings]
    switch: Callable[[], bool | None]
    first_ordinal: Callable[[Pod], int | None]

    def snapshot(self, key: str, assumed: Mapping[str, Action], now: datetime) -> Snapshot:
        """*assumed* is read before."""
        return Snapshot(assumed, self.pods.having(f"key {key}"), self, now)


@dataclass(frozen=True)
class Snapshot:
    """*pods* are those of one key that are not over; *assumed* is by uid."""

    assumed: Mapping[str, Action]
    pods: Sequence[Pod]
    sources: Sources
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
        return wish_of(pod, self.switch, self.settings)

    def age(self, pod: Pod) -> float:
        created = pod.metadata.creation_timestamp
        return (self.now - created).total_seconds() if created else math.inf

    def ordinal(self, pod: Pod) -> Ordinal:
        number = ordinal_of(pod) if stateful_set_of(pod) else None
        if number is None:
            return Ordinal()
        first = self.sources.first_ordinal(pod)
        if first is None and self.age(pod) < PATIENCE:
            return Ordinal(unknown="its StatefulSet is not known yet")
        return Ordinal(number - (first or 0))

    def _idle(self, pods: Iterable[Pod]) -> list[Pod]:
        return oldest_first(pod for pod in pods if pod.metadata.uid not in self.assumed)

    def _standing(self, pod: Pod) -> Standing:
        now = standing(pod, self.nodes.names)
        action = self.assumed.get(pod.metadata.uid) if now is Standing.GATED else None
        if action is None:
            return now
        return {Kind.LOCAL: Standing.LOCAL, Kind.SUPER: Standing.SUPER}.get(action.kind, now)
