"""Deployments and StatefulSets, of which little more than one annotation is kept, and the pods that follow them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from api.ip_reservation import RESERVE, RESERVE_FROM, choice_of
from controllers.informers import Informers
from controllers.ip_reservation.opt_in_planner import Choice, Reference, workload_of
from kube.compact import only
from kube.informer import Informer
from kube.resources import DEPLOYMENTS, STATEFUL_SETS
from kube.types import Namespace, ObjectMeta, Pod, Value, complete, key_of

KINDS = {"Deployment": DEPLOYMENTS, "StatefulSet": STATEFUL_SETS}
FOLLOWERS, IN_NAMESPACE = "workload", "namespace"
"""Indexes of pods, and of workloads."""


class Workload(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


complete(Workload)
_DECODER = msgspec.json.Decoder(Workload)


def decode(encoded: msgspec.Raw) -> Workload:
    """MsgspecError when it cannot be read."""
    found = _DECODER.decode(encoded).metadata
    return Workload(
        ObjectMeta(
            name=found.name,
            namespace=sys.intern(found.namespace),
            uid=found.uid,
            resource_version=found.resource_version,
            annotations=only(found.annotations, (RESERVE,)),
        )
    )


@dataclass(frozen=True)
class Workloads:
    """*by_kind* has an informer of each kind."""

    by_kind: Mapping[str, Informer[Workload]]

    @property
    def informers(self) -> Sequence[Informer[Workload]]:
        return tuple(self.by_kind.values())

    def choice_for(self, pod: ObjectMeta) -> Choice | None:
        """None for a pod whose workload is of another kind, or is not known, or was replaced since."""
        reference = workload_of(pod)
        if reference is None:
            return None
        found = self.by_kind[reference.kind].get(f"{pod.namespace}/{reference.name}")
        if found is None or reference.uid not in ("", found.metadata.uid):
            return None
        return Choice(reference, choice_of(found.metadata.annotations))


def workloads_of(informers: Informers) -> Workloads:
    found = {
        kind: informers.of(resource, Workload, decode=decode, optional=True)
        for kind, resource in KINDS.items()
    }
    for each in found.values():
        each.add_index(IN_NAMESPACE, lambda workload: (workload.metadata.namespace,))
    return Workloads(found)


def follows(pod: Pod) -> Iterable[str]:
    """The index value of a pod that can follow a workload."""
    reference = workload_of(pod.metadata)
    return (_index_key(reference, pod.metadata.namespace),) if reference else ()


class Followers:
    """Enqueues the keys of pods that may have to follow; the methods, and what one returns, are change handlers."""

    def __init__(self, pods: Informer[Pod], workloads: Workloads, enqueue: Callable[[str], None]) -> None:
        self._pods, self._workloads, self._enqueue = pods, workloads, enqueue

    def pod_changed(self, _old: Pod | None, new: Pod | None) -> None:
        """Also when nothing of it changed that counts: a write of ours may have met another one."""
        if new is None:
            return
        choice = self._workloads.choice_for(new.metadata)
        if choice and (choice.value or RESERVE_FROM in new.metadata.annotations):
            self._enqueue(key_of(new.metadata))

    def namespace_changed(self, old: Namespace | None, new: Namespace | None) -> None:
        """One that is selected from now on."""
        if old is not None or new is None:
            return
        for kind, informer in self._workloads.by_kind.items():
            for each in informer.by_index(IN_NAMESPACE, new.metadata.name):
                self._enqueue_followers(kind, each)

    def workload_changed(self, kind: str) -> Callable[[Workload | None, Workload | None], None]:
        def observe(old: Workload | None, new: Workload | None) -> None:
            if new is not None and (old is None or _choice(old) != _choice(new)):
                self._enqueue_followers(kind, new)

        return observe

    def _enqueue_followers(self, kind: str, workload: Workload) -> None:
        at = workload.metadata
        for pod in self._pods.by_index(FOLLOWERS, _index_key(Reference(kind, at.name), at.namespace)):
            self._enqueue(key_of(pod.metadata))


def _choice(workload: Workload) -> str:
    return choice_of(workload.metadata.annotations)


def _index_key(reference: Reference, namespace: str) -> str:
    return f"{namespace}/{reference}"
