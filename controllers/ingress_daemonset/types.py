"""The children of an IngressDaemonSet, as far as they are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from msgspec import field

from api.ingress_daemonset.types import Metadata
from controllers.ingress_daemonset.actions import Kind
from controllers.ingress_daemonset.desired import digest, shared_digest, without_timestamp
from kube.types import Condition, Value, complete

DEFAULT_GRACE = 30
"""Seconds: the API server's default."""
COMPLETE = "NewReplicaSetAvailable"
"""The reason of the condition Progressing of a Deployment whose rollout has ended."""


class Child(Value, frozen=True, dict=True):
    metadata: Metadata = Metadata()

    def is_of(self, uid: str) -> bool:
        owner = self.metadata.controller
        return owner is not None and owner.uid == uid

    def is_managed(self, uid: str, body: Mapping[str, Any]) -> bool:  # noqa: ARG002 - see Workload
        """Whether it is ours, and can be changed into *body*."""
        return self.is_of(uid)

    @property
    def is_terminating(self) -> bool:
        return self.metadata.deletion_timestamp is not None


class WorkloadStatus(Value, frozen=True):
    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    available_replicas: int = 0
    conditions: tuple[Condition, ...] = ()


class Workload(Child, frozen=True, dict=True):
    """A Deployment or a DaemonSet; *spec* is raw, to be compared with the desired one."""

    spec: dict[str, Any] = {}
    status: WorkloadStatus = WorkloadStatus()

    @property
    def node(self) -> str:
        """On which the pods of a Deployment run."""
        return str(((self.spec.get("template") or {}).get("spec") or {}).get("nodeName", ""))

    @property
    def replicas(self) -> int:
        return int(self.spec.get("replicas", 1))

    @property
    def min_ready_seconds(self) -> int:
        return int(self.spec.get("minReadySeconds", 0))

    @property
    def termination_grace(self) -> int:
        """Of its pods, in seconds."""
        pod = (self.spec.get("template") or {}).get("spec") or {}
        return int(pod.get("terminationGracePeriodSeconds", DEFAULT_GRACE))

    @property
    def available(self) -> bool:
        """Whether health checks may pass; another writer may have scaled it to 0."""
        return self.status.available_replicas >= max(1, self.replicas)

    @property
    def rolled_out(self) -> bool:
        """All pods have the current template and are available, and no other pod is left."""
        observed, status = self.status.observed_generation >= self.metadata.generation, self.status
        complete = status.replicas == status.updated_replicas == self.replicas
        return observed and complete and self.available

    @property
    def was_complete(self) -> bool:
        """Whether its last rollout has ended; pods may have been lost since."""
        return self._progress.reason == COMPLETE

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
        """The same on all nodes that have the same template."""
        return shared_digest(self.spec.get("template") or {})

    @cached_property
    def spec_digest(self) -> str:
        return digest({**self.spec, "template": without_timestamp(self.spec.get("template") or {})})

    def is_managed(self, uid: str, body: Mapping[str, Any]) -> bool:
        """The selector can never be changed; the original controller gave its Deployments another one."""
        wanted: dict[str, Any] = body["spec"]["selector"]
        return self.is_of(uid) and bool(self.spec.get("selector", wanted) == wanted)


class Grant(Child, frozen=True, dict=True):
    """A RoleBinding; the API server writes an empty list as null."""

    role: dict[str, Any] = field(name="roleRef", default_factory=dict)
    subjects: list[dict[str, Any]] | None = None


Children = Mapping[Kind, Sequence[Any]]
"""By kind: objects of a namespace that bear a label of ours, and unmanaged ones of our names."""

complete(Child, WorkloadStatus, Workload, Grant)
