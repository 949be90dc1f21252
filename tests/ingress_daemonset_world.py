"""An IngressDaemonSet with its nodes, and the Deployments there, as values; and an API server that keeps them."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec

from api.health_checks import SCHEDULED, State
from api.ingress_daemonset import FINALIZER
from api.ingress_daemonset.status import raw_of
from api.ingress_daemonset.template import FollowedNode
from api.ingress_daemonset.types import IngressDaemonSet
from api.ingress_daemonset.types import resource as with_defaults
from controllers.ingress_daemonset.children import (
    Action,
    Children,
    Create,
    Delete,
    Grant,
    Kind,
    Target,
    Workload,
    Writes,
)
from controllers.ingress_daemonset.detachment import Reading, deployment_mark_of
from controllers.ingress_daemonset.drift import Answers
from controllers.ingress_daemonset.health_checks import plan_health_checkers
from controllers.ingress_daemonset.nodes import NodeRollout
from controllers.ingress_daemonset.pacing import Measurement, Query, resolved
from controllers.ingress_daemonset.planner import Plan, plan
from controllers.ingress_daemonset.revisions import Revision, plan_revisions
from controllers.ingress_daemonset.rollout import Snapshot
from dev.fake_api import merged
from settings.ingress_daemonset import HealthChecker
from tests.factories import NOW

UID = "uid-web"
DETACHED, TIMESTAMP = "node-detacher.variant.run/detached", "node-detacher.variant.run/detachment-timestamp"
Raw = dict[str, Any]
CHECKER = HealthChecker(image="drawbridge:1")
COMPLETE = {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}


def raw_resource(pod: Raw | None = None, **spec: Any) -> Raw:
    """Of name web; *pod* is merged into the spec of its template, *rolling* is the rollingUpdate."""
    rolling = spec.pop("rolling", {})
    container = {"name": "proxy", "image": "proxy:1"}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]} | (pod or {})}
    metadata = {"name": "web", "namespace": "edge", "uid": UID, "generation": 1, "finalizers": list[str]()}
    strategy = {"updateStrategy": {"rollingUpdate": rolling}}
    return {"metadata": metadata, "spec": {"podsPerNode": 2, "template": template} | strategy | spec}


def resource(pod: Raw | None = None, **spec: Any) -> IngressDaemonSet:
    return with_defaults(raw_resource(pod, **spec))


def raw_node(name: str = "n1", ready: bool = True, **metadata: Any) -> Raw:
    conditions = [{"type": "Ready", "status": str(ready)}]
    known: Raw = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "labels": {}}
    taints = metadata.pop("taints", [])
    return {
        "metadata": known | {"annotations": {}} | metadata,
        "spec": {"taints": taints},
        "status": {"conditions": conditions},
    }


def node(name: str = "n1", **parts: Any) -> FollowedNode:
    return msgspec.convert(raw_node(name, **parts), FollowedNode)


def stored(planned: Plan) -> Raw:
    """Its status, as the leader stores it."""
    assert planned.status is not None
    status: Raw = raw_of(planned.status)
    return status


def workload(raw: Raw) -> Workload:
    return msgspec.convert(raw, Workload)


class World:
    """Applies plans, and does what the Deployment controller and the kubelets would."""

    def __init__(self, raw: Raw, *names: str) -> None:
        self.raw, self.now = raw, NOW
        self.nodes = {name: raw_node(name) for name in names}
        self.deployments: dict[str, Raw] = {}
        self.daemonsets: dict[str, Raw] = {}
        self.bindings: dict[str, Raw] = {}
        self.revisions: dict[str, Raw] = {}
        """Templates that are kept."""
        self._values: dict[bytes, Any] = {}
        self._rollouts: Sequence[NodeRollout] = ()
        self._answers = Answers()
        self.refused: str | None = None
        """The image that the API server allows in no Deployment."""
        self.refusals: dict[Target, str] = {}
        self.unasked: set[str] = set()
        self.unread: set[str] = set()
        """Nodes whose health checkers have not been read yet, and those whose cannot be."""
        self.blind: dict[str, Raw] = {}
        """By the names of nodes: Deployments as their health checkers saw them when the API server went away."""
        self.reported: dict[str, State] = {}
        """By the names of nodes: what their health checkers say whatever they see."""
        self.query: Query | None = None
        self.metric: float | str = "connection refused"
        """What Prometheus has for a query; a text is why it has nothing."""
        self.measured: Measurement | None = None
        self.connections: dict[str, int | str] = {}
        """By the names of nodes: how many are open, or why that is not known."""

    def plan(self, writes: Writes | None = None) -> Plan:
        """With the rollouts of the plan before, which must not matter."""
        snapshot = self.snapshot(writes)
        planned, fresh = (plan(snapshot, before) for before in (self._rollouts, ()))
        assert replace(planned, rollouts=()) == replace(fresh, rollouts=())
        self._rollouts, self.query = planned.rollouts, planned.query
        return planned

    def status(self) -> Raw:
        """That the plan of now would store."""
        return stored(self.plan())

    def waiting(self) -> dict[str, Raw]:
        """By node: its phase, and the reason why it waits."""
        return {each["node"]: each for each in self.status()["waitingFor"]}

    def conditions(self) -> dict[str, Raw]:
        return {each["type"]: each for each in self.status()["conditions"]}

    def snapshot(self, writes: Writes | None = None) -> Snapshot:
        writes = Writes(refused=self.refusals) if writes is None else writes
        children: Children = {
            "Deployment": [self._value(each, Workload) for each in self.deployments.values()],
            "DaemonSet": [self._value(each, Workload) for each in self.daemonsets.values()],
            "RoleBinding": [self._value(each, Grant) for each in self.bindings.values()],
            "ControllerRevision": [self._value(each, Revision) for each in self.revisions.values()],
        }
        nodes = [self._value(each, FollowedNode) for each in self.nodes.values()]
        readings = {name: tuple(self._readings(name)) for name in self.nodes}
        given = with_defaults(copy.deepcopy(self.raw))
        recorded = plan_revisions(given, children["ControllerRevision"])
        given, rollback = resolved(given, children["ControllerRevision"])
        self._measure()
        checkers = plan_health_checkers(given, children, CHECKER)
        found = Snapshot(given, nodes, children["Deployment"], self.now, writes, readings)
        return replace(found, rollback=rollback, measured=self.measured, checkers=checkers, recorded=recorded)

    def _measure(self) -> None:
        """As the last plan asked for it, when that is due."""
        if self.query is None:
            return
        known, wait = self.measured, timedelta(seconds=self.query.interval)
        if known is None or known.query != self.query or self.now - known.at >= wait:
            value, error = (None, self.metric) if isinstance(self.metric, str) else (self.metric, "")
            self.measured = Measurement(self.query, self.now, value, error)

    def _readings(self, node: str) -> Iterator[Reading]:
        """As its health checkers answer."""
        for port in self.raw["spec"].get("healthCheckNodePorts", ()):
            if node in self.unasked:
                return
            if node in self.reported:
                yield Reading("10.0.0.1", port, self.reported[node])
            elif node in self.unread:
                yield Reading("10.0.0.1", port, error="connection refused")
            elif seen := self.blind.get(node, self.deployments.get(f"web-{node}")):
                yield Reading("10.0.0.1", port, self._counted(node, state_of(seen, self.now)))

    def _counted(self, node: str, state: State) -> State:
        match self.connections.get(node):
            case int(count):
                return msgspec.structs.replace(state, connections=count)
            case str(error):
                return msgspec.structs.replace(state, connections_error=error)
        return state

    def cut_off(self, *nodes: str) -> None:
        """Their health checkers see nothing any more, and keep their answers."""
        self.blind |= {name: copy.deepcopy(self.deployments[f"web-{name}"]) for name in nodes}

    def _value(self, raw: Raw, kind: Any) -> Any:
        """The same one for as long as nothing has changed."""
        encoded = msgspec.json.encode(raw)
        if encoded not in self._values:
            self._values[encoded] = msgspec.json.decode(encoded, type=kind)
        return self._values[encoded]

    def turn(self) -> Plan:
        """One round, applied."""
        planned = self.plan()
        self.refusals = {}
        for step in planned.steps:
            for action in step:
                if self._is_refused(action):
                    self.refusals[action.target] = "no such image here (403 Forbidden)"
                    break
                self.apply(action)
        return planned

    def _is_refused(self, action: Action) -> bool:
        if self.refused is None or action.target.kind != "Deployment" or isinstance(action, Delete):
            return False
        return self.refused in msgspec.json.encode(action.body).decode()

    def settle(self, turns: int = 200) -> None:
        """Until nothing is left to do, pods start at once, and time goes on only where it is waited for."""
        for _ in range(turns):
            self.run_pods()
            planned = self.turn()
            if planned.actions:
                continue
            if planned.requeue_at is None:
                return
            self.now = planned.requeue_at
        raise AssertionError("the plan does not come to rest")

    def apply(self, action: Action) -> None:
        self._write(self._answers.expected(action))
        kind, _, name = action.target
        if kind == "Deployment" and name in self.deployments:
            self._answers.learn(workload(self.deployments[name]))

    def _write(self, action: Action) -> None:
        held = {
            "Deployment": self.deployments,
            "DaemonSet": self.daemonsets,
            "Node": self.nodes,
            "RoleBinding": self.bindings,
            "ControllerRevision": self.revisions,
        }
        kind, _, name = action.target
        if isinstance(action, Create):
            assert name not in held[kind]
            held[kind][name] = _stored(action.body)
        elif isinstance(action, Delete):
            del held[kind][name]
        else:
            target = self.raw if kind == "IngressDaemonSet" else held[kind][name]
            before = copy.deepcopy(target)
            merge(target, action.body)
            if makes_a_generation(kind, before, target):
                target["metadata"]["generation"] = target["metadata"].get("generation", 0) + 1

    def edit(self, name: str, patch: Raw) -> None:
        """A Deployment, by hand."""
        held = self.deployments[name]
        merge(held, patch)
        held["metadata"]["generation"] += 1

    def run_pods(self, *names: str) -> None:
        """All pods of these nodes are as their Deployments want them; of all that are ready without names."""
        for name, each in self.nodes.items():
            if f"web-{name}" in self.deployments and (name in names or not (names or not is_ready(each))):
                complete(self.deployments[f"web-{name}"])

    def set_ready(self, name: str, ready: bool) -> None:
        """Of a node."""
        self.nodes[name]["status"]["conditions"][0]["status"] = str(ready)

    def set_available(self, name: str, pods: int) -> None:
        """Of those on a node."""
        self.deployments[f"web-{name}"]["status"]["availableReplicas"] = pods

    def taint(self, name: str, *keys: str) -> None:
        """A node, with these taints alone."""
        self.nodes[name]["spec"]["taints"] = [{"key": key, "effect": "NoSchedule"} for key in keys]

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def off(self) -> set[str]:
        return {name for name, each in self.nodes.items() if DETACHED in each["metadata"]["annotations"]}

    def retemplate(self, image: str) -> None:
        """The finalizer, which is the first write of any rollout, is there already."""
        self.raw["metadata"]["finalizers"] = [FINALIZER]
        self.raw["spec"]["template"]["spec"]["containers"] = [{"name": "proxy", "image": image}]

    def updated(self, image: str = "proxy:2") -> set[str]:
        """The nodes that have this image."""
        return {name for name in self.nodes if self.image_on(name) == image}

    def image_on(self, name: str) -> str:
        return str(self.deployments[f"web-{name}"]["spec"]["template"]["spec"]["containers"][0]["image"])

    def annotations_on(self, name: str) -> dict[str, str]:
        """Of the Deployment of a node."""
        found: dict[str, str] = self.deployments[f"web-{name}"]["metadata"]["annotations"]
        return found

    def annotate_node(self, name: str, **annotations: str) -> None:
        self.nodes[name]["metadata"]["annotations"] |= annotations

    def confirm(self, name: str, at: datetime) -> None:
        self.nodes[name]["metadata"]["annotations"][TIMESTAMP] = at.isoformat()


def makes_a_generation(kind: Kind, old: Raw, new: Raw) -> bool:
    """Whether the change makes a generation."""
    annotated = kind == "Deployment" and old["metadata"].get("annotations") != new["metadata"].get(
        "annotations"
    )
    return annotated or old.get("spec") != new.get("spec")


def state_of(deployment: Raw, now: datetime) -> State:
    """What a health checker says that sees it."""
    metadata = workload(deployment).metadata
    mark = deployment_mark_of(metadata.annotations)
    if mark is None or mark.key not in metadata.annotations:
        available = deployment.get("status", {}).get("availableReplicas", 0)
        is_short = available < deployment["spec"]["replicas"]
        status, reason = (503, "pods are missing") if is_short else (200, "")
        return State(status, reason, uid=metadata.uid, generation=metadata.generation)
    seconds = (now - mark.at).total_seconds()
    scheduled = metadata.annotations[SCHEDULED]
    return State(503, "to be updated", uid=metadata.uid, scheduled=scheduled, detached_seconds=seconds)


def is_ready(raw: Raw) -> bool:
    return bool(raw["status"]["conditions"][0]["status"] == "True")


def complete(raw: Raw) -> None:
    replicas, generation = raw["spec"]["replicas"], raw["metadata"]["generation"]
    counts = dict.fromkeys(("replicas", "updatedReplicas", "availableReplicas"), replicas)
    raw["status"] = counts | {"observedGeneration": generation, "conditions": [COMPLETE]}


def _stored(body: Any) -> Raw:
    raw = copy.deepcopy(dict(body))
    raw["metadata"] |= {"uid": f"uid-{raw['metadata']['name']}", "generation": 1, "resourceVersion": "1"}
    raw["metadata"].setdefault("annotations", {})
    if "spec" in raw:
        raw["spec"]["template"]["spec"]["restartPolicy"] = "Always"
    return raw


def merge(target: Raw, patch: Any) -> None:
    """A merge patch, as RFC 7386 has it, in place."""
    after = merged(target, copy.deepcopy(dict(patch)))
    target.clear()
    target.update(after)
