"""Plan which annotations of a pod change so that it follows its workload.

A pod's annotation wins. A copy has a mark, which names the workload and the value that was copied: so an annotation
that was changed since is known as the pod's, and only copies are changed or removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from api.ip_reservation import RESERVE, RESERVE_FROM
from kube.types import ObjectMeta, Pod

HASH = "pod-template-hash"
"""Label of a Deployment's pods, whose ReplicaSet is named by it."""


@dataclass(frozen=True)
class Reference:
    """The workload of a pod; *uid* is "" where the pod does not say it."""

    kind: str
    name: str
    uid: str = ""

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


@dataclass(frozen=True)
class Choice:
    """What *workload* says about its pods: "true", "false", or "" for nothing."""

    workload: Reference
    value: str


def workload_of(pod: ObjectMeta) -> Reference | None:
    """A Deployment by the name of the ReplicaSet, which Kubernetes composes: no ReplicaSet has to be read for it."""
    owner = pod.controller
    if owner is None or owner.api_version != "apps/v1":
        return None
    if owner.kind == "StatefulSet":
        return Reference(owner.kind, owner.name, owner.uid)
    deployment = owner.name.removesuffix(f"-{pod.labels.get(HASH, '')}")
    if owner.kind == "ReplicaSet" and deployment != owner.name:
        return Reference("Deployment", deployment)
    return None


def plan(pod: Mapping[str, str], choice: Choice | None) -> Mapping[str, str | None]:
    """Of the annotations of a pod those to be set, or removed: None.

    Nothing changes while its workload is not known: one that is deleted leaves its pods as they are.
    """
    if choice is None:
        return {}
    wanted: dict[str, str | None] = {RESERVE: None, RESERVE_FROM: None}
    if RESERVE in pod and not is_copy(pod):
        wanted[RESERVE] = pod[RESERVE]
    elif choice.value:
        wanted = {RESERVE: choice.value, RESERVE_FROM: f"{choice.workload}={choice.value}"}
    return {name: value for name, value in wanted.items() if pod.get(name) != value}


def is_copy(pod: Mapping[str, str]) -> bool:
    """Whether its annotation is as it was copied from a workload."""
    mark = pod.get(RESERVE_FROM)
    return mark is not None and mark.rpartition("=")[2] == pod.get(RESERVE)


def followed(pod: Pod, choice: Choice | None) -> Pod:
    """*pod* as it is when the plan has been carried out."""
    changed = {**pod.metadata.annotations, **plan(pod.metadata.annotations, choice)}
    kept = {name: value for name, value in changed.items() if value is not None}
    return replace(pod, metadata=replace(pod.metadata, annotations=kept))
