"""The history of nodes, Deployments, ReplicaSets and pods, as watches tell it that owe nothing to Drawbridge."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from kube.client import Client, Resource
from kube.types import ObjectMeta, Value, complete
from lab.history import Observation
from lab.session import Lab
from lab.watching import Observations, observed_by_now, watching

SECONDS = 60
BUILT_IN = "node.kubernetes.io/"
NEVER = datetime.fromtimestamp(0, UTC)


class Managed(Value, frozen=True):
    time: datetime | None = None


class Meta(ObjectMeta, frozen=True):
    generation: int = 0
    managed_fields: tuple[Managed, ...] = ()


class Thing(Value, frozen=True):
    metadata: Meta = Meta()
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def uid(self) -> str:
        return self.metadata.uid

    @property
    def annotations(self) -> dict[str, str]:
        return self.metadata.annotations

    @property
    def owner(self) -> str:
        """The uid of its controller."""
        return self.metadata.controller.uid if self.metadata.controller else ""

    @property
    def leaving(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    @property
    def revision(self) -> int:
        return int(self.metadata.resource_version)

    @property
    def written_at(self) -> datetime:
        """When the last write to it arrived, by the API server's clock, to the second."""
        return max((each.time for each in self.metadata.managed_fields if each.time), default=NEVER)


class SeenNode(Thing, frozen=True):
    @property
    def evicts(self) -> bool:
        """Whether Kubernetes itself takes away the pods there, but those of daemons when the node is not ready."""
        taints = self.spec.get("taints") or ()
        return any(each["effect"] == "NoExecute" and not each["key"].startswith(BUILT_IN) for each in taints)


class SeenDeployment(Thing, frozen=True):
    @property
    def template(self) -> dict[str, Any]:
        found: dict[str, Any] = self.spec["template"]
        return found

    @property
    def node(self) -> str:
        return str(self.template["spec"].get("nodeName", ""))

    @property
    def replicas(self) -> int:
        return int(self.spec["replicas"])

    @property
    def rolled_out(self) -> bool:
        """By the word of the Deployment controller."""
        counts = {self.status.get(each, 0) for each in ("replicas", "updatedReplicas", "availableReplicas")}
        seen: int = self.status.get("observedGeneration", 0)
        return seen >= self.metadata.generation and counts == {self.replicas}


class SeenReplicaSet(Thing, frozen=True):
    pass


class SeenPod(Thing, frozen=True):
    @property
    def node(self) -> str:
        return str(self.spec.get("nodeName", ""))

    @property
    def ready(self) -> bool:
        conditions = self.status.get("conditions") or ()
        return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)


NODES = Resource("", "v1", "nodes", namespaced=False)
DEPLOYMENTS = Resource("apps", "v1", "deployments")
REPLICA_SETS = Resource("apps", "v1", "replicasets")
PODS = Resource("", "v1", "pods")
KINDS: dict[Resource, type[Thing]] = {
    NODES: SeenNode,
    DEPLOYMENTS: SeenDeployment,
    REPLICA_SETS: SeenReplicaSet,
    PODS: SeenPod,
}
complete(Managed, Meta, Thing, *KINDS.values())


class Record:
    """Any thread may look into it."""

    def __init__(self, client: Client, observations: Observations) -> None:
        self._client, self._observations = client, observations
        self._lock = threading.Lock()
        self._heard: list[Observation] = []
        self._latest: dict[str, Thing] = {}

    def until_now(self, lab: Lab, namespace: str, nodes: str) -> list[Observation]:
        """What happened in *namespace*, and to the nodes whose names begin with *nodes*: nothing is missing."""
        lab.wait(lambda: self._has_heard(namespace, nodes), SECONDS, "the record to be complete")
        with self._lock:
            return [each for each in self._heard if _is_in(each.object, namespace, nodes)]

    def _has_heard(self, namespace: str, nodes: str) -> bool:
        """Whether it knows all that is there now as it is, and nothing that is gone."""
        there = {each.uid: each.revision for each in self._listed(namespace, nodes)}
        self._listen()
        with self._lock:
            latest = [each for each in self._latest.values() if _is_in(each, namespace, nodes)]
        known = {each.uid: each.revision for each in latest}
        return known.keys() == there.keys() and all(known[uid] >= there[uid] for uid in there)

    def _listed(self, namespace: str, nodes: str) -> Iterator[Thing]:
        for resource, kind in KINDS.items():
            place = namespace if resource.namespaced else None
            listed: Sequence[Thing] = self._client.list(resource, place, type=kind).items
            yield from (each for each in listed if _is_in(each, namespace, nodes))

    def _listen(self) -> None:
        with self._lock:
            for each in observed_by_now(self._observations):
                self._heard.append(each)
                thing: Any = each.object
                if each.gone:
                    self._latest.pop(thing.uid, None)
                else:
                    self._latest[thing.uid] = thing


def _is_in(thing: Any, namespace: str, nodes: str) -> bool:
    if isinstance(thing, SeenNode):
        return thing.name.startswith(nodes)
    return bool(thing.metadata.namespace == namespace)


@contextmanager
def recording(client: Client) -> Iterator[Record]:
    """From now until the end of the block."""
    with watching(client, KINDS) as observations:
        yield Record(client, observations)
