"""A cluster of pods in which leaders of elasticity live, die, are stopped in the middle of a write, and hear late."""

# ruff: noqa: A002 (``type`` as in the client)

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import msgspec

from controllers.elasticity.book import Book
from controllers.elasticity.edits import TOLERATION
from controllers.elasticity.feature import assemble
from controllers.elasticity.fence import Fence, may_have_been_decided_on
from controllers.elasticity.nodes import FollowedNode, SuperNodes, super_nodes
from controllers.elasticity.placement import Standing, standing
from controllers.elasticity.pods import Pod, decode
from kube.client import Resource
from kube.errors import Conflict, Forbidden, Invalid, NotFound, Unreachable
from kube.lease import LeadershipLost
from settings import ElasticitySettings
from tests.api_server import merged
from tests.factories import NOW
from tests.fakes import FakeClock, FakeRecorder
from webhook.elasticity import GATE, INSTANCE_TYPE, LOCAL_REPLICAS, SUPER_NODE, TAINT
from webhook.elasticity.affinity import bound_to_super_nodes, kept_off_super_nodes

HOME, AWAY = "home-1", "eklet-subnet-1"
STUCK = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
SETTINGS = ElasticitySettings(enabled=True)


class Killed(BaseException):
    """A leader's end, in the middle of whatever it was at."""


class Cluster:
    """Pods with the rules by which an API server lets them be changed; each change is an event."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self._decoded: dict[str, Pod] = {}
        self.others: dict[tuple[str, str], dict[str, Any]] = {}
        self.events: list[tuple[dict[str, Any] | None, dict[str, Any] | None]] = []
        self.stuck: list[Callable[[], object]] = []
        self.first_ordinals: dict[str, int] = {}
        """Of StatefulSets, by uid."""
        self.writes: list[str] = []
        self.ungated: list[str] = []
        self._version = 0

    def put(self, raw: Mapping[str, Any]) -> dict[str, Any]:
        self._version += 1
        stored = merged(copy.deepcopy(dict(raw)), {"metadata": {"resourceVersion": str(self._version)}})
        name = stored["metadata"]["name"]
        self.events.append((self.pods.get(name), stored))
        self.pods[name], self._decoded[name] = stored, decode(raw_of(stored))
        return dict(stored)

    def edit(self, name: str, change: Mapping[str, Any]) -> None:
        """As somebody else would."""
        self.put(merged(self.pods[name], change))

    def remove(self, name: str) -> None:
        self._version += 1
        self.events.append((self.pods.pop(name), None))
        del self._decoded[name]

    def patch(self, name: str, patch: Mapping[str, Any]) -> dict[str, Any]:
        held = self._existing(name)
        _guard(held, patch["metadata"].get("uid"), patch["metadata"].get("resourceVersion"))
        new = merged(held, patch)
        _validate(held["spec"], new["spec"])
        self.writes.append(name)
        if is_gated(held) and not is_gated(new):
            self.ungated.append(held["metadata"]["uid"])
        return self.put(new)

    def delete(self, name: str, uid: str | None, version: str | None) -> None:
        _guard(self._existing(name), uid, version)
        self.writes.append(name)
        self.remove(name)

    def get(self, name: str) -> dict[str, Any]:
        return self._existing(name)

    def _existing(self, name: str) -> dict[str, Any]:
        if name not in self.pods:
            raise NotFound(404, "NotFound", name)
        return self.pods[name]

    def decoded(self) -> list[Pod]:
        return list(self._decoded.values())

    def pod(self, name: str) -> Pod:
        return self._decoded[name]

    def names(self, wanted: Callable[[Pod], bool]) -> list[str]:
        return [pod.metadata.name for pod in self.decoded() if wanted(pod)]

    def local(self, key: str) -> int:
        return sum(
            pod.key == key and standing(pod, frozenset({AWAY})) is Standing.LOCAL for pod in self.decoded()
        )

    def sent(self) -> int:
        return sum(
            standing(pod, frozenset({AWAY})) is Standing.SUPER or pod.may_be_sent for pod in self.decoded()
        )


class Client:
    """One leader's way to the cluster; *fault* is what becomes of its next write, *before* runs ahead of each call."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.fault = ""
        self.before: Callable[[], object] = lambda: None
        self.reads = 0

    def patch(
        self, _resource: Resource, name: str, patch: Any, _namespace: str, *, type: object, timeout: float
    ) -> msgspec.Raw:
        return raw_of(self._write(lambda: self.cluster.patch(name, patch)))

    def delete(
        self,
        _resource: Resource,
        name: str,
        _namespace: str,
        *,
        uid: str,
        resource_version: str,
        timeout: float,
    ) -> None:
        self._write(lambda: self.cluster.delete(name, uid, resource_version))

    def get(
        self,
        resource: Resource,
        name: str,
        _namespace: str | None = None,
        *,
        type: Any,
        timeout: float = 1.0,
    ) -> Any:
        self.before()
        self.reads += 1
        if resource.plural == "pods":
            return raw_of(self.cluster.get(name))
        if (resource.plural, name) not in self.cluster.others:
            raise NotFound(404, "NotFound", name)
        return msgspec.convert(self.cluster.others[resource.plural, name], type)

    def _write(self, do: Callable[[], Any]) -> Any:
        self.before()
        fault, self.fault = self.fault, ""
        if fault == "forbidden":
            raise Forbidden(403, "Forbidden", "not you")
        if fault == "killed before":
            raise Killed
        if fault in ("stuck", "stuck and killed"):
            self.cluster.stuck.append(do)
            raise Killed if "killed" in fault else Unreachable("timed out")
        done = do()
        if fault == "killed after":
            raise Killed
        if fault == "lost":
            raise Unreachable("no answer")
        return done


class Leader:
    """Its writes wait in *queue* until they are let go; what it hears of the cluster, it hears when it is let.

    *before* runs ahead of each call with which it fences the pods that it finds.
    """

    def __init__(self, cluster: Cluster, clock: FakeClock, **parts: Any) -> None:
        self.cluster, self.clock = cluster, clock
        self.settings: ElasticitySettings = parts.get("settings", SETTINGS)
        self.switch: bool | None = parts.get("switch")
        self.nodes: SuperNodes = parts.get("nodes", fleet())
        self.client, self.book, self.recorder = Client(cluster), Book(), FakeRecorder()
        self.queue: list[Callable[[], None]] = []
        self.may_lead, self.stopped = True, False
        self.heard = len(cluster.events)
        for pod in cluster.decoded():
            self.book.observe(None, pod)
        self.client.before = parts.get("before", lambda: None)
        self.fence = self._fenced(parts.get("check", self._check))
        self.client.before = lambda: None
        client: Any = self.client
        recorder: Any = self.recorder
        self.accountant = assemble(
            client,
            self.book,
            lambda: self.settings,
            recorder,
            switch=lambda: self.switch,
            nodes=lambda: self.nodes,
            decidable=self.fence.decidable,
            first_ordinal=lambda pod: cluster.first_ordinals.get(pod.key.partition("/")[0]),
            check=self._check,
            stopped=lambda: self.stopped,
            hand_out=self.queue.append,
            wake=lambda: None,
            clock=clock,
            now=lambda: NOW + timedelta(seconds=clock()),
        )

    def _fenced(self, check: Callable[[], None]) -> Fence:
        limits = self.settings.max_super_pods
        is_limited = bool(limits.total or limits.per_namespace)
        client: Any = self.client

        def wanted(pod: Pod) -> bool:
            return may_have_been_decided_on(pod, is_limited=is_limited)

        fence = Fence(
            client,
            self.book,
            "somebody",
            wanted=wanted,
            check=check,
            pause=lambda _: self.stopped,
            is_limited=is_limited,
            clock=self.clock,
        )
        fence.put_up(lambda work: work())
        return fence

    def _check(self) -> None:
        if not self.may_lead:
            raise LeadershipLost("somebody else leads")

    def hear(self, count: int | None = None) -> None:
        end = len(self.cluster.events) if count is None else self.heard + count
        for old, new in self.cluster.events[self.heard : end]:
            self.book.observe(old and decode(raw_of(old)), new and decode(raw_of(new)))
        self.heard = min(end, len(self.cluster.events))

    def turn(self) -> None:
        self.accountant.turn()

    def let_go(self, index: int = 0, fault: str = "") -> None:
        self.client.fault = fault
        self.queue.pop(index % len(self.queue))()
        self.client.fault = ""

    def settle(self, turns: int = 20) -> None:
        """Hear all and do all, until there is nothing left to do."""
        for _ in range(turns):
            self.hear()
            self.turn()
            while self.queue:
                self.let_go()
            self.clock.advance(5.0)


class World:
    """One cluster and its leader of the moment."""

    def __init__(self, **parts: Any) -> None:
        self.clock, self.cluster = FakeClock(0.0), Cluster()
        self._parts, self._born = parts, 0
        self.leader = Leader(self.cluster, self.clock, **parts)

    def create(self, count: int = 1, key: str = "web", **parts: Any) -> list[str]:
        """Pods as they are after admission, the gate with them unless *gated* is False."""
        names = []
        for _ in range(count):
            self._born += 1
            self.cluster.put(raw_pod(f"{key}-{self._born}", key, self.clock(), **parts))
            names.append(f"{key}-{self._born}")
        return names

    def take_over(self, before: Callable[[], object] = lambda: None) -> None:
        self.leader.may_lead = False
        self.leader = Leader(self.cluster, self.clock, before=before, **self._parts)

    def bind(self, name: str, node: str) -> None:
        status = {"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "True"}]}
        self.cluster.edit(name, {"spec": {"nodeName": node}, "status": status})

    def bind_all(self) -> None:
        for pod in list(self.cluster.decoded()):
            if pod.unbound and not pod.gated:
                self.bind(pod.metadata.name, AWAY if pod.placed == "super" else HOME)

    def no_room(self, name: str) -> None:
        since = (NOW + timedelta(seconds=self.clock())).isoformat()
        self.cluster.edit(name, {"status": {"conditions": [{**STUCK, "lastTransitionTime": since}]}})

    def annotations(self, name: str) -> dict[str, str]:
        found: dict[str, str] = self.cluster.pods[name]["metadata"].get("annotations", {})
        return found

    def placements(self, key: str = "web") -> dict[str, int]:
        """How many pods of *key* were placed where."""
        placed = [pod.placed for pod in self.cluster.decoded() if pod.metadata.name.startswith(f"{key}-")]
        return {each: placed.count(each) for each in sorted(set(placed))}


def raw_pod(
    name: str,
    key: str = "web",
    at: float = 0.0,
    *,
    n: str | None = "2",
    gated: bool = True,
    owned: bool = True,
    kind: str = "ReplicaSet",
    namespace: str = "shop",
    annotations: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": key, "uid": f"owner-{key}", "controller": True}
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{name}",
        "labels": {"pod-template-hash": "1"},
        "annotations": ({LOCAL_REPLICAS: n} if n is not None else {}) | dict(annotations or {}),
        "ownerReferences": [owner] if owned else [],
        "creationTimestamp": (NOW + timedelta(seconds=at)).isoformat(),
    }
    gates = {"schedulingGates": [{"name": GATE}]} if gated else {}
    return {
        "metadata": metadata,
        "spec": {"containers": [{"name": "app", "image": "app"}], **gates, **(spec or {})},
        "status": {"phase": "Pending"},
    }


def node(name: str, labels: Mapping[str, str] | None = None, **spec: Any) -> FollowedNode:
    """A ready node with what a kubelet labels it with; *labels* and *spec* over that."""
    known = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name}
    metadata = {"name": name, "labels": {**known, **(labels or {})}}
    allocatable = spec.pop("allocatable", {})
    status = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": allocatable}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, FollowedNode)


def super_node(name: str = AWAY, labels: Mapping[str, str] | None = None, **spec: Any) -> FollowedNode:
    """As we register it, *taints* beside its own."""
    own = {INSTANCE_TYPE: SUPER_NODE, "topology.kubernetes.io/zone": "ap-guangzhou-3"}
    taints = [{"key": TAINT.key, "effect": TAINT.effect}, *spec.pop("taints", ())]
    return node(name, {**own, **(labels or {})}, taints=taints, **spec)


def fleet(*others: FollowedNode) -> SuperNodes:
    """One node at home, one super node, and *others*."""
    return super_nodes([node(HOME), super_node(), *others])


def raw_of(pod: Mapping[str, Any]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(pod))


def is_gated(raw: Mapping[str, Any]) -> bool:
    return {"name": GATE} in raw["spec"].get("schedulingGates", [])


def _guard(held: Mapping[str, Any], uid: str | None, version: str | None) -> None:
    metadata = held["metadata"]
    if uid not in (None, metadata["uid"]) or version not in (None, metadata["resourceVersion"]):
        raise Conflict(409, "Conflict", metadata["name"])


def _validate(old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Of a pod's spec, gates may only go, tolerations only come, and affinity only be tightened while it is gated."""
    for field in old.keys() | new.keys():
        if field == "tolerations":
            kept = [each for each in new.get(field, []) if each in old.get(field, [])]
            allowed = kept == old.get(field, []) or TOLERATION in old.get(field, [])
        elif field == "schedulingGates":
            allowed = all(each in old.get(field, []) for each in new.get(field, []))
        elif field == "affinity" and old.get("schedulingGates"):
            tightened = (bound_to_super_nodes(old), kept_off_super_nodes(old), old)
            allowed = new.get(field) in [each.get(field) for each in tightened]
        else:
            allowed = old.get(field) == new.get(field)
        if not allowed:
            raise Invalid(422, "Invalid", f"spec.{field} must not be changed so")
