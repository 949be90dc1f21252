"""What is read of the objects that an IngressDaemonSet has made."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from controllers.ingress_daemonset.desired import digest, shared_digest, without_timestamp
from kube.types import Condition, Value, complete
from webhook.ingress_daemonset.types import Metadata


def is_of(metadata: Metadata, uid: str) -> bool:
    return metadata.controller is not None and metadata.controller.uid == uid


def has_selector(held: Workload, body: Mapping[str, Any]) -> bool:
    """Whether it could become *body*."""
    wanted: dict[str, Any] = body["spec"]["selector"]
    return bool(held.spec.get("selector", wanted) == wanted)


class WorkloadStatus(Value, frozen=True):
    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    available_replicas: int = 0
    conditions: tuple[Condition, ...] = ()


class Workload(Value, frozen=True, dict=True):
    """A Deployment or a DaemonSet; its *spec* is raw, to be compared with what it should be."""

    metadata: Metadata = Metadata()
    spec: dict[str, Any] = {}
    status: WorkloadStatus = WorkloadStatus()

    @property
    def replicas(self) -> int:
        return int(self.spec.get("replicas", 1))

    @property
    def available(self) -> bool:
        return self.status.available_replicas >= self.replicas

    @property
    def rolled_out(self) -> bool:
        """All pods are of the template as it is now, none other is left, and all are available."""
        seen, status = self.status.observed_generation >= self.metadata.generation, self.status
        complete = status.replicas == status.updated_replicas == self.replicas
        return seen and complete and self.available

    @property
    def was_complete(self) -> bool:
        """Whether its last rollout came to its end once; pods may have been lost since."""
        return self._progress.reason == "NewReplicaSetAvailable"

    @property
    def is_stuck(self) -> bool:
        """By the Deployment controller's own deadline."""
        return self._progress.reason == "ProgressDeadlineExceeded"

    @property
    def _progress(self) -> Condition:
        found = (each for each in self.status.conditions if each.type == "Progressing")
        return next(found, Condition())

    @cached_property
    def template_digest(self) -> str:
        """The same on all nodes that got the same template."""
        return shared_digest(self.spec.get("template") or {})

    @cached_property
    def spec_digest(self) -> str:
        return digest({**self.spec, "template": without_timestamp(self.spec.get("template") or {})})

    def is_of(self, uid: str) -> bool:
        return is_of(self.metadata, uid)


class Grant(Value, frozen=True):
    """A Role or a RoleBinding; the API server writes an empty list as null."""

    metadata: Metadata = Metadata()
    rules: list[dict[str, Any]] | None = None
    subjects: list[dict[str, Any]] | None = None

    def is_of(self, uid: str) -> bool:
        return is_of(self.metadata, uid)


complete(WorkloadStatus, Workload, Grant)
