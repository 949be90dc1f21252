"""Copy the annotation of a Deployment or StatefulSet to its running pods, where deletions are decided by it.

A pod's annotation wins. A copy has a mark, which names the workload and the value that was copied: so an annotation
that was changed since is known as the pod's, and only copies are changed or removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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


@dataclass(frozen=True)
class Choice:
    """What *workload* says about its pods: "true", "false", or "" for nothing."""

    workload: Reference
    value: str


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


@dataclass(frozen=True)
class Workloads:
    """*by_kind* has an informer of each kind; *pods* are indexed by the workload that they can follow.

    The handlers of changes return the keys of pods that may have to follow.
    """

    by_kind: Mapping[str, Informer[Workload]]
    pods: Informer[Pod]

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
        return Choice(reference, found.choice)

    def followed(self, pod: Pod) -> Pod:
        """With the annotation of its workload, which is copied to it a moment later."""
        return followed(pod, self.choice_for(pod.metadata))

    def pod_changed(self, _old: Pod | None, new: Pod | None) -> Iterable[str]:
        """Also when nothing of it changed that counts: a write of ours may have met another one."""
        choice = self.choice_for(new.metadata) if new else None
        if new and choice and (choice.value or RESERVE_FROM in new.metadata.annotations):
            yield key_of(new.metadata)

    def namespace_changed(self, old: Namespace | None, new: Namespace | None) -> Iterable[str]:
        """One that is selected from now on."""
        if old is not None or new is None:
            return
        for kind, informer in self.by_kind.items():
            for workload in informer.list():
                if workload.metadata.namespace == new.metadata.name:
                    yield from self._followers(kind, workload)

    def workload_changed(self, kind: str, old: Workload | None, new: Workload | None) -> Iterable[str]:
        if new is not None and (old is None or old.choice != new.choice):
            yield from self._followers(kind, new)

    def _followers(self, kind: str, workload: Workload) -> Iterable[str]:
        at = workload.metadata
        pods = self.pods.by_index(FOLLOWERS, f"{at.namespace}/{Reference(kind, at.name)}")
        return (key_of(pod.metadata) for pod in pods)


def workloads_of(informers: Informers, pods: Informer[Pod]) -> Workloads:
    by_kind = {
        kind: informers.of(resource, Workload, decode=decode_workload, optional=True)
        for kind, resource in KINDS.items()
    }
    pods.add_index(FOLLOWERS, follows)
    return Workloads(by_kind, pods)


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
        workloads = self.workloads
        of_workloads = [
            Watch(informer, partial(workloads.workload_changed, kind))
            for kind, informer in workloads.by_kind.items()
        ]
        namespaces = Watch(self.caches.namespaces, workloads.namespace_changed)
        watches = namespaces, Watch(self.caches.pods, workloads.pod_changed), *of_workloads
        return Controller("ip_reservation_opt_in", self.reconcile, *watches, workers=WORKERS, rate=PAUSES)

    def reconcile(self, key: str) -> None:
        """Raises KubeError when it is to be tried again."""
        pod = self.caches.pods.get(key)
        if pod is None or not self._is_concerned(pod):
            return
        workload = str(workload_of(pod.metadata))
        changes = plan(pod.metadata.annotations, self.workloads.choice_for(pod.metadata))
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
