"""A pod's workload as the API server has it now: the caches may be behind, also behind our own last eviction."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import msgspec

from api.elasticity import never_returns
from controllers.elasticity.pods import REVISIONS, Pod, decode_for_return
from controllers.elasticity.return_home.planner import unavailable
from controllers.elasticity.snapshot import ordinal_of
from controllers.elasticity.sources import REPLICA_SETS, WorkloadObject
from kube.client import Client
from kube.resources import PODS, STATEFUL_SETS
from kube.types import at_any_time

POD_NAME, REVISION = "statefulset.kubernetes.io/pod-name", "controller-revision-hash"
"""The labels of each pod of a StatefulSet."""
ROLLING_UPDATE, ON_DELETE = "RollingUpdate", "OnDelete"


class Workload(WorkloadObject, frozen=True):
    """A ReplicaSet or a StatefulSet."""

    def updates(self, pod: Pod) -> bool:
        """Whether it replaces that pod itself when there is a new revision; a ReplicaSet has only one."""
        strategy = self.spec.update_strategy
        least = self.spec.ordinals.start + strategy.rolling_update.partition
        return strategy.type == ROLLING_UPDATE and (ordinal_of(pod) or 0) >= least

    def revision_after(self, pod: Pod) -> str:
        """That of the pod which it makes when that one is deleted: below the partition, the one before."""
        is_new = self.updates(pod) or self.spec.update_strategy.type == ON_DELETE
        return self.status.update_revision if is_new else self.status.current_revision


@dataclass(frozen=True)
class Current:
    """*pods* are the active ones of the workload, *others* the workloads of the same controller."""

    workload: Workload | None
    others: Sequence[Workload]
    pods: Sequence[Pod]

    def find(self, uid: str) -> Pod | None:
        return next((pod for pod in self.pods if pod.metadata.uid == uid), None)


def read(pod: Pod, client: Client) -> Current:
    """KubeError."""
    owner, namespace = pod.metadata.controller, pod.metadata.namespace
    if owner is None:
        return Current(None, (), ())
    kind, selector = STATEFUL_SETS, f"metadata.name={owner.name}"
    if owner.kind == "ReplicaSet":
        kind, selector = REPLICA_SETS, ""  # with the others of its controller
    found = client.list(kind, namespace, type=Workload, field_selector=selector).items
    own = next((workload for workload in found if workload.metadata.uid == owner.uid), None)
    others = [each for each in found if own and each is not own and _owner(each) == _owner(own) != ""]
    return Current(own, others, _pods(pod, client))


def unsettled(current: Current) -> str | None:
    """Why the workload can miss no pod now."""
    if (own := current.workload) is None or own.metadata.deletion_timestamp is not None:
        return "its workload is gone"
    wanted, status = own.spec.replicas, own.status
    if status.observed_generation < own.metadata.generation:
        return "its controller has not seen the last change"
    if any(workload.spec.replicas or workload.status.replicas for workload in current.others):
        return "a rollout is in progress: another revision has pods"
    if any(own.updates(pod) and _revision(pod) != status.update_revision for pod in current.pods):
        return "a rollout is in progress: its pods are of two revisions"
    if not (len(current.pods) == status.replicas == status.available_replicas == wanted):
        return f"{status.available_replicas} of {wanted} replicas are available"
    return unavailable(current.pods)


def changed(pod: Pod, current: Current, super_nodes: Collection[str]) -> str | None:
    """Why the pod is not, or no longer, what the caches said."""
    found = current.find(pod.metadata.uid)
    if found is None:
        return "it is gone"
    return (
        "it is not on a super node" if found.node_name not in super_nodes else never_returns(found.metadata)
    )


def altered(pod: Pod, current: Current) -> str | None:
    """Why its replacement would be of another revision, which is for the user to decide."""
    own = current.workload
    if own is None or own.revision_after(pod) == _revision(pod):
        return None
    if own.spec.update_strategy.type == ON_DELETE:
        return "its StatefulSet has updateStrategy OnDelete, so an eviction would update it"
    return (
        "it is below the partition of its StatefulSet, so an eviction would return it to the revision before"
    )


def _revision(pod: Pod) -> str:
    return pod.metadata.labels.get(REVISION, "") if ordinal_of(pod) is not None else ""


def _owner(of: Workload | Pod) -> str:
    controller = of.metadata.controller
    return controller.uid if controller else ""


def _pods(pod: Pod, client: Client) -> list[Pod]:
    """Those of a StatefulSet are of all its revisions."""
    labels, is_of_set = pod.metadata.labels, ordinal_of(pod) is not None
    those = next((f"{name}={labels[name]}" for name in REVISIONS if labels.get(name)), "")
    selector = POD_NAME if is_of_set else those
    found = client.list(PODS, pod.metadata.namespace, type=msgspec.Raw, label_selector=selector).items
    others = [other for each in found if (other := at_any_time(decode_for_return, each)).active]
    return [
        other for other in others if (_owner(other) == _owner(pod) if is_of_set else other.key == pod.key)
    ]
