"""Copy the annotation of a Deployment or StatefulSet to its running pods, where deletions are decided by it.

A pod's annotation wins. A copy has a mark, which names the workload and the value that was copied: so an annotation
that was changed since is known as the pod's, and only copies are changed or removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import msgspec
from msgspec.structs import replace

from api.ip_reservation import RESERVE, RESERVE_FROM, choice_of
from controllers.controller import Controller, Watch
from controllers.informers import Informers
from controllers.ip_reservation.caches import Caches
from controllers.ip_reservation.calls import annotate
from controllers.ip_reservation.reporter import Reporter
from kube.client import Client
from kube.errors import Backoff, KubeError
from kube.informer import Informer
from kube.resources import DEPLOYMENTS, STATEFUL_SETS
from kube.types import Namespace, ObjectMeta, Pod, Value, compact, key_of
from settings import IPReservationSettings

WORKERS = 8
"""Each of them waits for one write."""
PAUSES = Backoff(base=0.2, cap=30.0)
HASH = "pod-template-hash"
"""Label of a Deployment's pods, whose ReplicaSet is named by it."""
KINDS = {"Deployment": DEPLOYMENTS, "StatefulSet": STATEFUL_SETS}
FOLLOWERS = "workload"
"""The index of pods by the workload that they can follow."""


@dataclass(frozen=True)
class Reference:
    """The workload of a pod; *uid* is "" where the pod does not say it."""

    kind: str
    name: str
    uid: str = ""

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


def workload_of(pod: ObjectMeta) -> Reference | None:
    """A Deployment by the name of the ReplicaSet, so that no ReplicaSet has to be read for it.

    Kubernetes composes it of the Deployment's name and the hash (``pkg/controller/deployment/sync.go``).
    """
    owner = pod.controller
    if owner is None or owner.api_version != "apps/v1":
        return None
    if owner.kind == "StatefulSet":
        return Reference(owner.kind, owner.name, owner.uid)
    deployment = owner.name.removesuffix(f"-{pod.labels.get(HASH, '')}")
    if owner.kind == "ReplicaSet" and deployment != owner.name:
        return Reference("Deployment", deployment)
    return None


def plan(pod: Mapping[str, str], mark: str | None) -> Mapping[str, str | None]:
    """Of the annotations of a pod those to be set, or removed: None.

    *mark* is that of a copy: what its workload says is behind the "=". Nothing changes while its workload is not known:
    one that is deleted leaves its pods as they are.
    """
    if mark is None:
        return {}
    wanted: dict[str, str | None] = {RESERVE: None, RESERVE_FROM: None}
    if RESERVE in pod and not is_copy(pod):
        wanted[RESERVE] = pod[RESERVE]
    elif value := mark.rpartition("=")[2]:
        wanted = {RESERVE: value, RESERVE_FROM: mark}
    return {name: value for name, value in wanted.items() if pod.get(name) != value}


def is_copy(pod: Mapping[str, str]) -> bool:
    """Whether its annotation is as it was copied from a workload."""
    mark = pod.get(RESERVE_FROM)
    return mark is not None and mark.rpartition("=")[2] == pod.get(RESERVE)


def followed(pod: Pod, mark: str | None) -> Pod:
    """*pod* as it is when the plan has been carried out."""
    changed = {**pod.metadata.annotations, **plan(pod.metadata.annotations, mark)}
    kept = {name: value for name, value in changed.items() if value is not None}
    return replace(pod, metadata=replace(pod.metadata, annotations=kept))


class Workload(Value, frozen=True):
    """A Deployment or StatefulSet, of which little more than one annotation is kept."""

    metadata: ObjectMeta = ObjectMeta()

    @property
    def choice(self) -> str:
        """What it says about its pods: "true", "false", or "" for nothing."""
        return choice_of(self.metadata.annotations)


_WORKLOAD = msgspec.json.Decoder(Workload)


def decode_workload(encoded: msgspec.Raw) -> Workload:
    """MsgspecError when it cannot be read."""
    found = _WORKLOAD.decode(encoded).metadata
    return Workload(compact(replace(found, labels={}), (RESERVE,)))


Workloads = Mapping[str, Informer[Workload]]
"""By kind."""


def workloads_of(informers: Informers, pods: Informer[Pod]) -> Workloads:
    """The *pods* are indexed by the workload that they can follow."""
    pods.add_index(FOLLOWERS, follows)
    return {
        kind: informers.of(resource, Workload, decode=decode_workload, optional=True)
        for kind, resource in KINDS.items()
    }


def follows(pod: Pod) -> Iterable[str]:
    """The index value of a pod that can follow a workload."""
    reference = workload_of(pod.metadata)
    return (f"{pod.metadata.namespace}/{reference}",) if reference else ()


@dataclass(frozen=True)
class OptInReconciler:
    """Have one pod, by its key, follow its workload. What is switched off, or goes, is left as it is."""

    caches: Caches
    workloads: Workloads
    client: Client
    settings: Callable[[], IPReservationSettings]
    reporter: Reporter

    def controller(self) -> Controller:
        of_workloads = [
            Watch(informer, partial(self.workload_changed, kind)) for kind, informer in self.workloads.items()
        ]
        namespaces = Watch(self.caches.namespaces, self.namespace_changed)
        watches = namespaces, Watch(self.caches.pods, self.pod_changed), *of_workloads
        return Controller("ip_reservation_opt_in", self.reconcile, *watches, workers=WORKERS, rate=PAUSES)

    def pod_changed(self, _old: Pod | None, new: Pod | None) -> Iterable[str]:
        """Also when nothing of it changed that counts: a write of ours may have met another one."""
        if new and plan(new.metadata.annotations, self._mark_for(new.metadata)):
            yield key_of(new.metadata)

    def namespace_changed(self, old: Namespace | None, new: Namespace | None) -> Iterable[str]:
        """One that is selected from now on."""
        for pod in self.caches.pods_of(new) if old is None and new is not None else ():
            yield from self.pod_changed(None, pod)

    def workload_changed(self, kind: str, old: Workload | None, new: Workload | None) -> Iterable[str]:
        if new is None or (old is not None and old.choice == new.choice):
            return ()
        reference = f"{new.metadata.namespace}/{Reference(kind, new.metadata.name)}"
        return (key_of(pod.metadata) for pod in self.caches.pods.by_index(FOLLOWERS, reference))

    def followed(self, pod: Pod) -> Pod:
        """With the annotation of its workload, which is copied to it a moment later."""
        return followed(pod, self._mark_for(pod.metadata))

    def reconcile(self, key: str) -> None:
        """Raises KubeError when it is to be tried again."""
        pod = self.caches.pods.get(key)
        if pod is None or not self._is_concerned(pod):
            return
        workload = str(workload_of(pod.metadata))
        changes = plan(pod.metadata.annotations, self._mark_for(pod.metadata))
        try:
            if changes and annotate(self.client, pod, changes):
                self.reporter.followed(pod, workload, changes)
        except KubeError as error:
            self.reporter.not_followed(pod, workload, error)
            raise

    def _is_concerned(self, pod: Pod) -> bool:
        is_selected = self.caches.namespaces.get(pod.metadata.namespace) is not None
        stays = not (pod.terminating or pod.finished or pod.spec.host_network)
        return is_selected and stays and self.settings().workload_opt_in

    def _mark_for(self, pod: ObjectMeta) -> str | None:
        """None for a pod whose workload is of another kind, or is not known, or was replaced since."""
        if (reference := workload_of(pod)) is None:
            return None
        found = self.workloads[reference.kind].get(f"{pod.namespace}/{reference.name}")
        if found is None or reference.uid not in ("", found.metadata.uid):
            return None
        return f"{reference}={found.choice}"
