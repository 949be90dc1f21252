"""A cluster of pods in which leaders of elasticity live, die, are stopped in the middle of a write, and hear late."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec

import kube.client
from api.elasticity import GATE, LOCAL_REPLICAS, TAINT
from controllers.controller import Clock, Controller
from controllers.elasticity.controller import Elasticity
from controllers.elasticity.eligibility import CLAIMS, CLASSES, VOLUMES
from controllers.elasticity.filters import Reach
from controllers.elasticity.nodes import Nodes, WatchedNode, sorted_out
from controllers.elasticity.pods import Pod, PodIndex, decode
from controllers.elasticity.room import SuperNodes
from controllers.elasticity.snapshot import ClusterState, Snapshot, Workload
from controllers.elasticity.sources import ElasticityInformers, NodeCache, PodCache, Sources
from controllers.workqueue import _reconcile
from dev.fake_api import FakeAPI, Objects, Reply, Request, refusal
from dev.fake_api.front import Connection
from kube.errors import api_error
from kube.informer import Identity, Informer, identity_of
from kube.leader_election import LeadershipLost
from kube.resources import PODS
from kube.types import INSTANCE_TYPE, SUPER_NODE, ConfigMap
from settings import ElasticitySettings
from settings.elasticity import MaxSuperPods
from tests.factories import NOW
from tests.fakes import FakeClock, FakeRecorder

OTHERS = (CLAIMS, VOLUMES, CLASSES)
HOME, AWAY = "home-1", "eklet-subnet-1"
STUCK = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
SETTINGS = ElasticitySettings(enabled=True)


class Killed(BaseException):
    """A leader's end, in the middle of whatever it was at."""


class Cluster:
    """Pods of a fake API server."""

    def __init__(self) -> None:
        self.api = FakeAPI()
        self.stuck: list[Callable[[], object]] = []
        self.workloads: dict[str, Workload] = {}
        """By uid."""
        self.writes: list[str] = []
        self.others = Objects(self.api, *OTHERS, namespace="shop")
        """Volumes and their claims by plural and name."""
        self._decoded: dict[bytes, Pod] = {}

    @property
    def pods(self) -> dict[str, dict[str, Any]]:
        """Copies of all by name."""
        return {each["metadata"]["name"]: each for each in self.api.list(PODS)}

    def put(self, raw: Mapping[str, Any]) -> None:
        self.api.put(PODS, raw)

    def edit(self, name: str, change: Mapping[str, Any]) -> None:
        """As another client would."""
        self.api.edit(PODS, name, change, self._namespace_of(name))

    def remove(self, name: str) -> None:
        self.api.remove(PODS, name, self._namespace_of(name))

    def decoded(self) -> list[Pod]:
        return [self._of(each) for each in self.api.encoded(PODS)]

    def pod(self, name: str) -> Pod:
        return next(each for each in self.decoded() if each.metadata.name == name)

    def names(self, wanted: Callable[[Pod], bool]) -> list[str]:
        return [pod.metadata.name for pod in self.decoded() if wanted(pod)]

    def carry_out(self, call: Request) -> Reply:
        """Without the faults of any leader's connection."""
        reply = self.api.answer(call)
        if call.method != "GET" and reply.status < 400:
            self.writes.append(call.path.rpartition("/")[2])
        return reply

    def _namespace_of(self, name: str) -> str:
        return self.pod(name).metadata.namespace

    def _of(self, encoded: bytes) -> Pod:
        if encoded not in self._decoded:
            self._decoded[encoded] = decode(msgspec.Raw(encoded))
        return self._decoded[encoded]


class Client(kube.client.Client):
    """One leader's way to the cluster; *fault* is what becomes of its next write, *before* runs ahead of each call."""

    def __init__(self, cluster: Cluster) -> None:
        connection: Any = Connection(lambda call, _seconds: self._handle(call))
        super().__init__(connection)
        self.cluster = cluster
        self.fault = ""
        self.before: Callable[[], object] = lambda: None
        self.reads = 0

    def _handle(self, call: Request) -> Reply:
        self.before()
        if call.method == "GET":
            self.reads += 1
            return self.cluster.carry_out(call)
        fault, self.fault = self.fault, ""
        if fault == "forbidden":
            return refusal(403, "Forbidden", "not you")
        if fault in ("stuck", "stuck and killed"):
            self.cluster.stuck.append(lambda: _carried_out(self.cluster, call))
            raise Killed if "killed" in fault else ConnectionResetError("timed out")
        reply = self.cluster.carry_out(call)
        if fault == "lost":
            raise ConnectionResetError("no answer")
        return reply


def _carried_out(cluster: Cluster, call: Request) -> None:
    """Raises what its caller would have seen."""
    reply = cluster.carry_out(call)
    if reply.status >= 400:
        raise api_error(reply.status, reply.body)


class Feed:
    """The source of an informer: what it delivers, it delivers when a test says so."""

    kind, stopped, silence = "objects", False, 0.0

    def __init__(self, decode: Callable[[msgspec.Raw], Any]) -> None:
        self.version = 0
        self.informer: Informer[Any] = Informer(self, decode)  # type: ignore[arg-type]

    def attach(self, sink: Any) -> None:
        pass

    def list(self, objects: Iterable[Mapping[str, Any]]) -> None:
        encoded = [raw_of(each) for each in objects]
        self.informer.begin()
        for each in encoded:
            self.informer.add(self._identity(each), each)
        self.informer.end(self.version)

    def apply(self, old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> None:
        raw = raw_of(new or old or {})
        kind = "DELETED" if new is None else "MODIFIED" if old else "ADDED"
        self.informer.apply(kind, self._identity(raw), raw)

    def _identity(self, raw: msgspec.Raw) -> Identity:
        identity = identity_of(raw)
        self.version = max(self.version, int(identity.resource_version or 0))
        return identity


class PodFeed(Feed):
    """Of the pods of a cluster: those that there are, and what is heard of them later."""

    def __init__(self, api: FakeAPI, decode: Callable[[msgspec.Raw], Any]) -> None:
        super().__init__(decode)
        self._api, self._heard = api, api.version
        self.list(api.list(PODS))

    def hear(self) -> None:
        for each in self._api.changes(self._heard):
            if each.key[0] == PODS:
                self.apply(each.old and each.old.raw, each.new and each.new.raw)
            self._heard = each.version


class Leader:
    """Its writes wait in *queue* until `let_go`; changes of the cluster are known when they are heard.

    *before* runs ahead of each call with which it fences the pods that it finds. Its clock is so many seconds *ahead*
    of the API server's.
    """

    def __init__(self, cluster: Cluster, clock: FakeClock, **parts: Any) -> None:
        self.clock = clock
        self.settings: ElasticitySettings = parts.get("settings", SETTINGS)
        self._switch: bool | None = parts.get("switch")
        self.recorder = FakeRecorder()
        self.may_lead = True
        self.check: Callable[[], None] = parts.get("check", self._check)
        self.client = Client(cluster)
        fenced = self.client.fenced(lambda: self.check(), math.inf)
        pods = PodFeed(cluster.api, decode)
        self.hear = pods.hear
        self._nodes = Feed(msgspec.json.Decoder(WatchedNode).decode)
        nodes = NodeCache(self._nodes.informer, pods.informer.list())
        self.set_nodes(parts.get("nodes", fleet()))
        recorder: Any = self.recorder
        ahead = parts.get("ahead", 0.0)
        sources = Sources(
            PodCache(fenced, pods.informer),
            nodes,
            lambda: self.settings,
            lambda: self._switch,
            lambda pod: cluster.workloads.get(pod.key.split("/")[1]),
        )
        self._switches = Feed(msgspec.json.Decoder(ConfigMap).decode)
        informers = ElasticityInformers(pods.informer, self._nodes.informer, self._switches.informer)
        self.parts = Elasticity(
            sources,
            informers,
            fenced,
            recorder,
            Clock(lambda: NOW + timedelta(seconds=clock() + ahead), clock),
        )
        for each in (self.parts.takeover, self.parts.placement):
            each.start()
        self.client.before = parts.get("before", lambda: None)
        self._fence()
        self.client.before, self.check = lambda: None, self._check

    @property
    def queue(self) -> Sequence[str]:
        """Of the pods that are to be written to."""
        writes = self.parts.writer.queue
        with writes._changed:
            writes._promote()
            return list(writes._waiting)

    def set_switch(self, on: bool | None) -> None:
        self._switch = on
        self._switches.list(
            [{"metadata": {"name": "switch", "resourceVersion": str(self._switches.version + 1)}}]
        )

    def turn(self) -> None:
        """Decide on every key that is due."""
        self.parts.upkeep()
        while self._step(self.parts.placement):
            pass

    def decide(self) -> None:
        """Hear all, and take a turn; what is decided waits to be written."""
        self.hear()
        self.turn()

    def let_go(self, index: int = 0, fault: str = "") -> None:
        queue, writes = self.queue, self.parts.writer.queue
        writes._waiting = {queue[index % len(queue)]: None} | writes._waiting
        self.client.fault = fault
        self._step(self.parts.writer)
        self.client.fault = ""

    def look(self) -> None:
        """At what is due now: the queue alone says so, without its regular look at all."""
        self.hear()
        while self._step(self.parts.placement):
            pass
        while self.queue:
            self.let_go()

    def settle(self, turns: int = 20) -> None:
        """Hear all and do all, until there is nothing left to do."""
        for pause in (0.1, 4.9) * turns:  # what is looked up is decided on a moment later
            self.decide()
            while self.queue:
                self.let_go()
            self.clock.advance(pause)

    def set_nodes(self, nodes: Nodes) -> None:
        """Each with a version that follows from its content."""
        raws = [msgspec.to_builtins(each) for each in (*nodes.super, *nodes.local)]
        for raw in raws:
            raw["metadata"]["resourceVersion"] = str(zlib.crc32(msgspec.json.encode(raw)))
        self._nodes.list(raws)

    def _fence(self) -> None:
        while self.parts._takeover.due:
            if not self._step(self.parts.takeover):
                if not self.may_lead:
                    return
                self.clock.advance(0.2)

    def _step(self, controller: Controller) -> bool:
        """Whether a key was due."""
        queue, reconcile = controller.queue, controller.reconcile
        try:
            self.check()
            if (key := queue.get(wait=False)) is None:
                return False
            try:
                _reconcile(queue, reconcile, key)
            finally:
                queue.done(key)
        except LeadershipLost:
            self.may_lead = False
            return False
        return True

    def _check(self) -> None:
        if not self.may_lead:
            raise LeadershipLost("another process leads")


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

    def replace(self, name: str, **parts: Any) -> None:
        """By a pod of another revision of its StatefulSet."""
        raw = raw_pod(name, kind="StatefulSet", revision="2", **parts)
        self.cluster.remove(name)
        self.cluster.put({**raw, "metadata": {**raw["metadata"], "uid": "another"}})

    def pass_by(self, seconds: float) -> None:
        """The leader takes a turn every five *seconds*."""
        self.leader.settle(round(seconds / 5.0))

    def take_over(self, before: Callable[[], object] = lambda: None, **parts: Any) -> None:
        self.leader.may_lead = False
        self.leader = Leader(self.cluster, self.clock, before=before, **self._parts | parts)

    def bind(self, name: str, node: str) -> None:
        status = {"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "True"}]}
        self.cluster.edit(name, {"spec": {"nodeName": node}, "status": status})

    def bind_all(self) -> None:
        """The API server binds no pod that terminates."""
        for pod in list(self.cluster.decoded()):
            if pod.active and not (pod.node_name or pod.gated):
                self.bind(pod.metadata.name, AWAY if pod.placed == "super" else HOME)

    def no_room(self, name: str, behind: float = 0.0) -> None:
        """By the scheduler, whose clock is so many seconds *behind* the leader's."""
        since = (NOW + timedelta(seconds=self.clock() - behind)).isoformat()
        self.cluster.edit(name, {"status": {"conditions": [{**STUCK, "lastTransitionTime": since}]}})

    def stuck(self, key: str = "web", **parts: Any) -> str:
        """A pod without LOCAL_REPLICAS that local nodes have no room for."""
        (name,) = self.create(1, key, **{"gated": False, "n": None} | parts)
        self.no_room(name)
        return name

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
    revision: str = "1",
    annotations: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": key, "uid": f"owner-{key}", "controller": True}
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{name}",
        "labels": {"pod-template-hash": revision},
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


def node(name: str, labels: Mapping[str, str] | None = None, **spec: Any) -> WatchedNode:
    """A ready node with what a kubelet labels it with; *labels* and *spec* over that."""
    known = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name}
    metadata = {"name": name, "labels": {**known, **(labels or {})}}
    allocatable = spec.pop("allocatable", {})
    status = {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": allocatable}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, WatchedNode)


def super_node(name: str = AWAY, labels: Mapping[str, str] | None = None, **spec: Any) -> WatchedNode:
    """As we register it, *taints* beside its own."""
    own = {INSTANCE_TYPE: SUPER_NODE, "topology.kubernetes.io/zone": "ap-guangzhou-3"}
    taints = [{"key": TAINT.key, "effect": TAINT.effect}, *spec.pop("taints", ())]
    return node(name, {**own, **(labels or {})}, taints=taints, **spec)


def cap_of(total: int) -> ElasticitySettings:
    """With so many pods on super nodes at most."""
    return ElasticitySettings(enabled=True, max_super_pods=MaxSuperPods(total=total))


def with_subnets(**each: Sequence[object]) -> ElasticitySettings:
    """One for each of the values of a field, in their order."""
    [(field, values)] = each.items()
    subnets = [{"id": f"subnet-{number}", "zone": "z-1", field: value} for number, value in enumerate(values)]
    return ElasticitySettings.model_validate({"enabled": True, "subnets": subnets})


def fleet(*others: WatchedNode) -> Nodes:
    """One node local, one super node, and *others*."""
    return sorted_out([node(HOME), super_node(), *others])


class Eligible:
    """Every pod is, with the same volumes."""

    def __init__(self, *volumes: Reach) -> None:
        self._volumes = volumes

    def violations(self, pod: Pod) -> tuple[str, ...]:
        return ()

    def reach(self, pod: Pod) -> tuple[Reach, ...]:
        return self._volumes


def account(nodes: Nodes, pods: PodIndex, *volumes: Reach) -> SuperNodes:
    """Of a decision on pods with *volumes*, which is about nothing but the nodes."""
    eligible: Any = Eligible(*volumes)
    snapshot = Snapshot((), {}, ClusterState(nodes, SETTINGS, None, lambda _: None), NOW)
    return SuperNodes(snapshot, pods, eligible, lambda *_: 0)


def misfit(super_nodes: SuperNodes, pod: Pod, *, bound: bool = True) -> str:
    found = super_nodes.objections(pod, bound=bound)
    assert found is not None
    return found.misfit or ""


def raw_of(pod: Mapping[str, Any]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(pod))
