"""What an IngressDaemonSet promises of its nodes, and violations of it in a history.

Independent of the product: order is known by the revisions of one etcd, and time by the API server's own times.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from lab.history import Observation
from tests.cluster.ingress_daemonset_history import SeenDeployment, SeenNode, SeenPod, SeenReplicaSet

TO_BE_UPDATED = "ingressdaemonsets.mumoshu.github.com/to-be-updated"


@dataclass(frozen=True)
class Annotated:
    """The key of an annotation, and how many seconds must pass after it, or after the time that it says."""

    key: str = TO_BE_UPDATED
    grace: int = 0


@dataclass(frozen=True)
class Promise:
    """What one IngressDaemonSet may do to the nodes whose names begin with *nodes*: to *limit* of them at a time.

    *node* and *timestamp* are None where nodes bear none.
    """

    namespace: str
    name: str
    nodes: str
    limit: int
    detaches: bool = True
    deployment: Annotated | None = Annotated()
    node: Annotated | None = None
    timestamp: Annotated | None = None


SCHEDULED = "drawbridge.io/update-scheduled"
DETACHED_BY = "drawbridge.io/detached-by"
LATENCY = timedelta(seconds=2)
"""Between a decision and its arrival, unless the API server is held up."""


def violations(history: Iterable[Observation], promise: Promise) -> list[str]:
    """All that was done against *promise*, and what is left of it in the end."""
    replay = replayed(history, promise)
    return [*replay.violations, *replay.remains()]


def replayed(history: Iterable[Observation], promise: Promise) -> Replay:
    case = Replay(promise)
    for each in sorted(history, key=lambda each: each.revision):
        case.take(each)
    return case


@dataclass(frozen=True)
class Since:
    """Of an annotation that stands there: since when; *stale* is the timestamp that stood there already."""

    at: datetime
    stale: str = ""


@dataclass
class Replay:
    """All objects of a promise at one time of the history, and what was done against it until then."""

    promise: Promise
    violations: list[str] = field(default_factory=list)
    nodes: dict[str, SeenNode] = field(default_factory=dict)
    deployments: dict[str, SeenDeployment] = field(default_factory=dict)
    """By the name of the node."""
    replica_sets: dict[str, SeenReplicaSet] = field(default_factory=dict)
    pods: dict[str, SeenPod] = field(default_factory=dict)
    """By their uids, as the ReplicaSets; only those that are not on their way out."""
    _scheduled: dict[str, Since] = field(default_factory=dict)
    _detached: dict[str, Since] = field(default_factory=dict)
    _put: dict[str, set[str]] = field(default_factory=dict)
    """By the name of the node: the annotations that came together with the word of who put them there."""
    _updating: set[str] = field(default_factory=set)
    _was_complete: set[str] = field(default_factory=set)
    _owner: str = ""
    """The uid of the IngressDaemonSet."""
    most: int = 0
    """How many nodes counted against the limit at one time."""

    def take(self, seen: Observation) -> None:
        off = self.off()
        match seen.object:
            case SeenNode() as node if node.name.startswith(self.promise.nodes):
                self._take_node(node, seen)
            case SeenDeployment() as deployment if self._is_ours(deployment):
                self._take_deployment(deployment, seen)
            case SeenReplicaSet() as replica_set:
                self._take_replica_set(replica_set, seen)
            case SeenPod() as pod:
                self._take_pod(pod, seen)
        for name in sorted(off - self.off()):
            self._check_return(name, seen)
        self._count(seen)

    def off(self) -> set[str]:
        """The nodes that are detached from the load balancer, by any writer."""
        rule, there = self.promise.node, self.nodes.items()
        return self._annotated() | {name for name, node in there if rule and rule.key in node.annotations}

    def degraded(self) -> set[str]:
        """Nodes whose update is under way, or that had all of their pods once, and have not now."""
        here = self.deployments.keys() & self.nodes.keys()
        return {each for each in here if each in self._updating or self._has_lost(each)}

    def remains(self) -> Iterator[str]:
        """What is left though nothing is under way any more."""
        by_deployment, by_node = self.promise.deployment, self.promise.node
        on_node, on_deployment = {DETACHED_BY}, {SCHEDULED}
        on_deployment |= {by_deployment.key} if by_deployment else set()
        for name, node in self.nodes.items():
            wrong = on_node | ({by_node.key} if by_node else set())
            if left := wrong & node.annotations.keys():
                yield f"in the end {name} still has {sorted(left)}"
        for name, deployment in self.deployments.items():
            if left := on_deployment & deployment.annotations.keys():
                yield f"in the end the Deployment of {name} still has {sorted(left)}"

    def _take_node(self, node: SeenNode, seen: Observation) -> None:
        before = self.nodes.pop(node.name, None)
        if seen.gone:
            self._detached.pop(node.name, None)
            self._put.pop(node.name, None)
            return
        self.nodes[node.name] = node
        if before is not None and before.annotations.get(DETACHED_BY) != node.annotations.get(DETACHED_BY):
            self._check_hands(before, node, seen)
        self._note_detachment(before, node)

    def _check_hands(self, before: SeenNode, node: SeenNode, seen: Observation) -> None:
        """A writer that changes our mark is not a human: only what came with the mark goes with it."""
        old, new = before.annotations, node.annotations
        put, gone = self._put.setdefault(node.name, set()), old.keys() - new.keys() - {DETACHED_BY}
        for key in sorted(gone - put):
            self._report(seen, f"{key} was taken off {node.name}, where another writer had put it")
        for key in sorted(gone & {mark["key"] for mark in _holders(node).values()}):
            self._report(seen, f"{key} was taken off {node.name}, where another still needs it")
        for key in sorted(key for key in old.keys() & new.keys() - {DETACHED_BY} if old[key] != new[key]):
            self._report(seen, f"{key} of {node.name} was changed, which another writer had put there")
        self._put[node.name] = (put - gone) | (new.keys() - old.keys())

    def _note_detachment(self, before: SeenNode | None, node: SeenNode) -> None:
        rule = self.promise.node
        if rule is None or rule.key not in node.annotations or self._owner not in _holders(node):
            self._detached.pop(node.name, None)
        elif node.name not in self._detached:
            key = self.promise.timestamp.key if self.promise.timestamp else ""
            self._detached[node.name] = Since(
                node.written_at, before.annotations.get(key, "") if before else ""
            )

    def _take_deployment(self, deployment: SeenDeployment, seen: Observation) -> None:
        name, self._owner = deployment.node, deployment.owner
        before = self.deployments.pop(name, None)
        if seen.gone:
            self._updating.discard(name)
            self._was_complete.discard(name)
            self._scheduled.pop(name, None)
            return
        self.deployments[name] = deployment
        if before is not None:
            self._check_annotations(before, deployment, seen)
        if before is not None and before.template != deployment.template:
            self._updating.add(name)
            self._check_template(deployment, seen)
        if deployment.rolled_out:
            self._updating.discard(name)
            self._was_complete.add(name)
        self._note_schedule(deployment)

    def _note_schedule(self, deployment: SeenDeployment) -> None:
        rule = self.promise.deployment
        if rule is None or rule.key not in deployment.annotations:
            self._scheduled.pop(deployment.node, None)
        elif deployment.node not in self._scheduled:
            self._scheduled[deployment.node] = Since(deployment.written_at)

    def _check_annotations(self, before: SeenDeployment, now: SeenDeployment, seen: Observation) -> None:
        rule = self.promise.deployment
        gone = before.annotations.keys() - now.annotations.keys() - {SCHEDULED, rule.key if rule else ""}
        for key in sorted(gone):
            self._report(seen, f"{key} was taken off the Deployment of {now.node}")

    def _check_template(self, deployment: SeenDeployment, seen: Observation) -> None:
        """It was annotated before, and so was the Node, and the last grace is over."""
        name, at = deployment.node, deployment.written_at
        waits = (
            ("Deployment", self.promise.deployment, self._scheduled.get(name)),
            ("Node", self.promise.node, self._detached.get(name)),
        )
        for kind, rule, since in waits:
            if rule is not None and since is None:
                self._report(seen, f"the template of {name} was written while its {kind} had no {rule.key}")
            elif rule and since and at < since.at + timedelta(seconds=rule.grace) - LATENCY:
                early = f"{(at - since.at).total_seconds():.0f} s after {rule.key}, not {rule.grace} s"
                self._report(seen, f"the template of {name} was written {early}")
        if self.promise.timestamp and name in self._detached:
            self._check_timestamp(name, self.promise.timestamp, at, seen)

    def _check_timestamp(self, name: str, rule: Annotated, at: datetime, seen: Observation) -> None:
        said = self.nodes[name].annotations.get(rule.key, "")
        if said in ("", self._detached[name].stale):
            self._report(seen, f"the template of {name} was written while its detachment was not confirmed")
        elif at < datetime.fromisoformat(said) + timedelta(seconds=rule.grace):
            self._report(
                seen, f"the template of {name} was written at {at}, {rule.grace} s are not over since {said}"
            )

    def _take_replica_set(self, replica_set: SeenReplicaSet, seen: Observation) -> None:
        name = next((node for node, each in self.deployments.items() if each.uid == replica_set.owner), "")
        known = self.replica_sets.pop(replica_set.uid, None)
        if seen.gone or not (name or known):
            return
        if known is None and any(each.owner == replica_set.owner for each in self.replica_sets.values()):
            self._check_off(name, seen, "got another template for its pods")
        self.replica_sets[replica_set.uid] = replica_set

    def _take_pod(self, pod: SeenPod, seen: Observation) -> None:
        if pod.owner not in self.replica_sets and pod.uid not in self.pods:
            return
        if not seen.gone and not pod.leaving:
            self.pods[pod.uid] = pod
        elif pod.uid in self.pods:
            if self._should_stay(pod):
                self._check_off(pod.node, seen, f"lost pod {pod.name}")
            del self.pods[pod.uid]

    def _should_stay(self, pod: SeenPod) -> bool:
        """Unless it is one too many, or nothing of it is there to stay."""
        deployment, node = self.deployments.get(pod.node), self.nodes.get(pod.node)
        replica_set = self.replica_sets.get(pod.owner)
        if (
            deployment is None
            or deployment.leaving
            or replica_set is None
            or replica_set.owner != deployment.uid
        ):
            return False
        if node is None or node.evicts:
            return False
        there = self._pods_on(pod.node)
        return len({each.owner for each in there}) > 1 or len(there) <= deployment.replicas

    def _check_off(self, name: str, seen: Observation, what: str) -> None:
        if not self.promise.detaches or name not in self.nodes:
            return
        if name not in self._annotated():
            self._report(seen, f"{name} {what} while its Deployment was not annotated")
        if self.promise.node is not None and name not in self._detached:
            self._report(seen, f"{name} {what} while it was not detached")

    def _check_return(self, name: str, seen: Observation) -> None:
        """A node that comes back to the load balancer has all of its pods, of one template."""
        deployment = self.deployments.get(name)
        if deployment is None or deployment.leaving or name not in self.nodes:
            return
        templates = {pod.owner for pod in self._pods_on(name)}
        if self._lacks(name) or len(templates) > 1:
            there = f"{self._ready(name)} of {deployment.replicas} pods, of {len(templates)} templates"
            self._report(seen, f"{name} was attached with {there}")

    def _count(self, seen: Observation) -> None:
        kind, nodes = ("off", self.off()) if self.promise.detaches else ("degraded", self.degraded())
        if len(nodes) > max(self.most, self.promise.limit):
            self._report(seen, f"{len(nodes)} nodes were {kind}, not {self.promise.limit}: {sorted(nodes)}")
        self.most = max(self.most, len(nodes))

    def _annotated(self) -> set[str]:
        """The nodes whose Deployment says that it is to be updated."""
        rule, there = self.promise.deployment, self.deployments.items()
        marked = {name for name, each in there if rule and rule.key in each.annotations and not each.leaving}
        return marked & self.nodes.keys()

    def _pods_on(self, name: str) -> list[SeenPod]:
        return [pod for pod in self.pods.values() if pod.node == name]

    def _ready(self, name: str) -> int:
        return sum(pod.ready for pod in self._pods_on(name))

    def _lacks(self, name: str) -> bool:
        return self._ready(name) < self.deployments[name].replicas

    def _has_lost(self, name: str) -> bool:
        return name in self._was_complete and self._lacks(name)

    def _is_ours(self, deployment: SeenDeployment) -> bool:
        owner = deployment.metadata.controller
        named = (owner.kind, owner.name) if owner else ()
        at = deployment.metadata.namespace
        return named == ("IngressDaemonSet", self.promise.name) and at == self.promise.namespace

    def _report(self, seen: Observation, what: str) -> None:
        self.violations.append(f"at {seen.revision}: {what}")


def _holders(node: SeenNode) -> dict[str, dict[str, Any]]:
    """Who detached it, by the uids of the IngressDaemonSets."""
    return dict(json.loads(node.annotations.get(DETACHED_BY) or "{}"))
