"""How many replicas a workload wants, of which a share stays local. Watched only while percentages are enabled."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from controllers.elasticity.pods import Pod
from controllers.informers import Informers
from kube.client import Resource
from kube.informer import Informer
from kube.types import ObjectMeta, Value, complete

REPLICA_SETS = Resource("apps", "v1", "replicasets")
JOBS = Resource("batch", "v1", "jobs")
DESIRED = ("deployment.kubernetes.io/desired-replicas", "rollout.argoproj.io/desired-replicas")
"""What the controllers of Deployments and Argo Rollouts write on a ReplicaSet, in the update that scales it.

In a rolling update a ReplicaSet grows step by step: a share of what it has would begin too low.
"""


@dataclass(frozen=True)
class Replicas:
    """*wanted* by the workload; *made* at most by the pods' own controller, which is less in a rolling update."""

    wanted: int
    made: int


class Workload(Value, frozen=True):
    """All that is kept of a ReplicaSet or a Job."""

    metadata: ObjectMeta = ObjectMeta()
    wanted: int = 1
    made: int = 1


class _ReplicaSetSpec(Value, frozen=True):
    replicas: int = 1


class _ReplicaSet(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _ReplicaSetSpec = _ReplicaSetSpec()


class _JobSpec(Value, frozen=True):
    parallelism: int = 1
    completions: int | None = None


class _Job(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _JobSpec = _JobSpec()


complete(Workload, _ReplicaSet, _Job)
_REPLICA_SET, _JOB = msgspec.json.Decoder(_ReplicaSet), msgspec.json.Decoder(_Job)


def replica_set(raw: msgspec.Raw) -> Workload:
    """MsgspecError when it cannot be read."""
    found = _REPLICA_SET.decode(raw)
    made, annotations = found.spec.replicas, found.metadata.annotations
    said = next((annotations[name] for name in DESIRED if name in annotations), "")
    is_number = said.isascii() and said.isdigit() and len(said) < 10
    return Workload(_slim(found.metadata), int(said) if is_number else made, made)


def job(raw: msgspec.Raw) -> Workload:
    """As many as run at a time. MsgspecError when it cannot be read."""
    found = _JOB.decode(raw)
    limits = (found.spec.parallelism, found.spec.completions)
    wanted = min(each for each in limits if each is not None)
    return Workload(_slim(found.metadata), wanted, wanted)


class WorkloadReplicas:
    """Of ReplicaSets and Jobs. The caller releases *informers*."""

    def __init__(self, informers: Informers) -> None:
        self._by_kind = {
            "ReplicaSet": informers.of(REPLICA_SETS, Workload, decode=replica_set),
            "Job": informers.of(JOBS, Workload, decode=job),
        }

    @property
    def informers(self) -> tuple[Informer[Workload], ...]:
        return tuple(self._by_kind.values())

    def of(self, pod: Pod) -> Replicas | None:
        """None while its workload is not known."""
        owner = pod.metadata.controller
        informer = self._by_kind.get(owner.kind) if owner else None
        found = informer and owner and informer.get(f"{pod.metadata.namespace}/{owner.name}")
        is_it = owner and found and found.metadata.uid == owner.uid
        return Replicas(found.wanted, found.made) if found and is_it else None


def _slim(at: ObjectMeta) -> ObjectMeta:
    return ObjectMeta(name=at.name, namespace=at.namespace, uid=at.uid, resource_version=at.resource_version)
