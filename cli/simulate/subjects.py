"""The pods of a cluster as a change of values is judged by: of each no more than that is kept, since there are many."""

from __future__ import annotations

from typing import Any

from kube.types import ObjectMeta, Pod, PodStatus, Toleration, Value
from kube.types import PodSpec as KnownSpec
from webhook.elasticity.webhook import NewPod
from webhook.elasticity.webhook import PodSpec as NewSpec


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

    def as_it_is(self) -> Pod:
        return Pod(self.metadata, KnownSpec(host_network=self.spec.host_network), self.status)

    def as_new(self) -> NewPod:
        """A pod like it, before it has a node."""
        return NewPod(self.metadata, NewSpec(tolerations=self.spec.tolerations))

    @property
    def reach(self) -> dict[str, Any]:
        """What of the spec says which nodes it may reach, as it is written."""
        return {"affinity": self.spec.affinity} if self.spec.affinity is not None else {}
