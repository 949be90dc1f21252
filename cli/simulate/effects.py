"""What a change of settings does to pods, for the features that say so of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from cli.inventory import Inventory
from cli.output import Document
from kube.resources import NAMESPACES, PODS, Selection
from kube.types import Namespace, ObjectMeta, PodStatus, Toleration, Value
from settings import Settings


@dataclass(frozen=True)
class Change:
    """Of settings."""

    now: Settings
    then: Settings

    def concerns(self, feature: str) -> bool:
        return bool(getattr(self.now, feature) != getattr(self.then, feature))


class Effect(Document, frozen=True):
    """What becomes of an object: *begins* or *ends*, with why."""

    feature: str
    kind: str
    name: str
    begins: bool
    what: str


class Released(Document, frozen=True):
    ip: str
    pod: str
    why: str


class Spec(Value, frozen=True):
    host_network: bool = False
    tolerations: tuple[Toleration, ...] = ()
    affinity: dict[str, Any] | None = None


class Subject(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: Spec = Spec()
    status: PodStatus = PodStatus()

    @property
    def name(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}"


Judge = Callable[[Subject, Namespace, Settings], str]
"""Of a pod and its namespace: what a feature does to it with these settings, or nothing."""


def judged(inventory: Inventory, change: Change, judge: Judge, name: str) -> Iterator[Effect]:
    """*name* is that of the feature's values."""
    namespaces = {each.metadata.name: each for each in inventory.cached(NAMESPACES, Namespace)}
    # The API server lists several namespaces at a time.
    reads = {each: partial(inventory.cached, PODS, Subject, Selection(each)) for each in namespaces}
    for namespace, pods in inventory.cluster.read_all(reads).items():
        for pod in pods:
            before, after = (judge(pod, namespaces[namespace], each) for each in (change.now, change.then))
            if bool(before) != bool(after):
                yield Effect(name, "pod", pod.name, bool(after), after or f"no more: {before}")
