"""A pod's workload as the API server has it now: the caches may be behind, also behind our own last eviction."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import msgspec

from controllers.elasticity.pods import REVISIONS, Pod
from controllers.elasticity.pods import decode as decode_pod
from controllers.elasticity.return_home.occupants import Occupant
from controllers.elasticity.return_home.occupants import decode as decode_occupant
from controllers.elasticity.return_home.planner import Member, never, unavailable
from kube.client import Client, Resource
from kube.resources import PODS, STATEFUL_SETS
from kube.types import ObjectMeta, Value, complete

REPLICA_SETS = Resource("apps", "v1", "replicasets")
CALL_TIMEOUT = 4.0
"""Seconds; less than lies between the end of our leadership and the beginning of another's."""


class _Meta(ObjectMeta, frozen=True):
    generation: int = 0


class _Spec(Value, frozen=True):
    replicas: int = 1


class _Status(Value, frozen=True):
    observed_generation: int = 0
    replicas: int = 0
    available_replicas: int = 0
    current_revision: str = ""
    update_revision: str = ""


class Workload(Value, frozen=True):
    """A ReplicaSet or a StatefulSet."""

    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()
    status: _Status = _Status()


complete(Workload)


@dataclass(frozen=True)
class Current:
    """*pods* are the active ones of the workload, *others* the workloads of the same controller."""

    workload: Workload | None
    others: Sequence[Workload]
    pods: Sequence[tuple[Pod, Occupant]]

    def occupant(self, uid: str) -> Occupant | None:
        return next((each for pod, each in self.pods if pod.metadata.uid == uid), None)


def read(pod: Pod, client: Client) -> Current:
    """KubeError."""
    owner, namespace = pod.metadata.controller, pod.metadata.namespace
    if owner is None:
        return Current(None, (), ())
    is_set = owner.kind == "ReplicaSet"
    found = client.list(
        REPLICA_SETS if is_set else STATEFUL_SETS,
        namespace,
        type=Workload,
        field_selector="" if is_set else f"metadata.name={owner.name}",
        timeout=CALL_TIMEOUT,
    ).items
    own = next((each for each in found if each.metadata.uid == owner.uid), None)
    return Current(own, _of_same_controller(own, found), _pods(pod, client))


def unsettled(current: Current) -> str:
    """Why the workload can miss no pod now."""
    if (own := current.workload) is None or own.metadata.deletion_timestamp is not None:
        return "its workload is gone"
    wanted, status = own.spec.replicas, own.status
    if status.observed_generation < own.metadata.generation:
        return "its controller has not seen the last change"
    if any(each.spec.replicas or each.status.replicas for each in current.others):
        return "a rollout is in progress: another revision has pods"
    if status.update_revision != status.current_revision:
        return "a rollout is in progress: its pods are of two revisions"
    if not (len(current.pods) == status.replicas == status.available_replicas == wanted):
        return f"{status.available_replicas} of {wanted} replicas are available"
    return unavailable([Member(pod, occupant.ready) for pod, occupant in current.pods])


def changed(pod: Pod, current: Current, super_nodes: Collection[str]) -> str:
    """Why the pod is not, or no longer, what the caches said."""
    found = current.occupant(pod.metadata.uid)
    if found is None:
        return "it is gone"
    return "it is on no super node" if found.node_name not in super_nodes else never(found.metadata)


def _of_same_controller(own: Workload | None, found: Sequence[Workload]) -> list[Workload]:
    controller = own.metadata.controller if own else None
    if own is None or controller is None:
        return []
    return [
        each
        for each in found
        if each.metadata.uid != own.metadata.uid
        and each.metadata.controller is not None
        and each.metadata.controller.uid == controller.uid
    ]


def _pods(pod: Pod, client: Client) -> list[tuple[Pod, Occupant]]:
    labels = pod.metadata.labels
    revision = next((f"{name}={labels[name]}" for name in REVISIONS if labels.get(name)), "")
    found = client.list(
        PODS, pod.metadata.namespace, type=msgspec.Raw, label_selector=revision, timeout=CALL_TIMEOUT
    ).items
    both = [(decode_pod(each), decode_occupant(each)) for each in found]
    return [(each, occupant) for each, occupant in both if each.key == pod.key and each.active]
