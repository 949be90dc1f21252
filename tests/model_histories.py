"""Histories that the simulator's models and the real programs of Kubernetes must play alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from random import Random
from typing import Any, Protocol

from dev.fake_api import FakeAPI
from dev.lab.nodes import cloud_node
from dev.simulator.models.cluster import CONTROLLER_REVISIONS, REPLICA_SETS
from dev.simulator.models.kubernetes import Kubernetes
from kube.client import Client
from kube.resources import DAEMON_SETS, DEPLOYMENTS, NODES, PODS, STATEFUL_SETS
from tests.factories import NOW

Raw = dict[str, Any]
ONLY = "histories"
"""A label of the nodes of one history, with its namespace as the value."""


class Place(Protocol):
    client: Client
    namespace: str

    def join(self, name: str, **spec: Any) -> None:
        """Let a node join, and wait until it takes pods."""

    def until(self, condition: Callable[[], bool], what: str) -> None: ...


class Modelled:
    """A cluster of models, on a clock that jumps to what is due."""

    namespace = "shop"

    def __init__(self, seed: str = "") -> None:
        self.clock = NOW
        self.api = FakeAPI(now=lambda: self.clock)
        self.api.ensure_namespace(self.namespace)
        self.client = self.api.client("kubectl")
        self.kubernetes = Kubernetes(self.api, lambda name: Random(seed + name))  # noqa: S311
        self.looks: list[Callable[[], None]] = []
        """Called after each step of a model that changed something."""

    def join(self, name: str, **spec: Any) -> None:
        raw = node_of(name, self.namespace, **spec)
        self.client.create(NODES, raw)
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        self.api.edit(NODES, name, {"status": {**raw["status"], "conditions": [ready]}})
        self.run(1)

    def until(self, condition: Callable[[], bool], what: str, seconds: float = 3600.0) -> None:
        end = self.clock + timedelta(seconds=seconds)
        while not condition():
            assert self.clock < end, f"waited in vain for {what}"
            due = self._settled()
            if not condition():
                self.clock = min(end, max(due or end, self.clock + timedelta(seconds=0.01)))

    def run(self, seconds: float) -> None:
        end = self.clock + timedelta(seconds=seconds)
        self.until(lambda: self.clock >= end, "time", seconds)

    def _settled(self) -> datetime | None:
        """When the next of them is due, after all that is due has been done."""
        while True:
            version, due = self.api.version, []
            for model in self.kubernetes.models.values():
                before = self.api.version
                due.append(model.step(self.clock))
                for look in self.looks if self.api.version != before else ():
                    look()
            if self.api.version == version:
                return min((at for at in due if at is not None), default=None)


def node_of(name: str, namespace: str, *, capacity: Raw | None = None, **spec: Any) -> Raw:
    raw = cloud_node(name, "", {ONLY: namespace})
    resources = {"cpu": "4", "memory": "16Gi", "pods": "20", **(capacity or {})}
    raw["status"] |= {"capacity": resources, "allocatable": resources}
    return {**raw, "spec": {**raw["spec"], **spec}}


def template(place: Place, image: str = "web:1", **spec: Any) -> Raw:
    container = {"name": "main", "image": image, "resources": {"requests": {"cpu": "100m"}}}
    held = {"nodeSelector": {ONLY: place.namespace}, "terminationGracePeriodSeconds": 1}
    return {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [container], **held, **spec},
    }


def workload(place: Place, replicas: int | None = None, **spec: Any) -> Raw:
    counted = {} if replicas is None else {"replicas": replicas}
    selector = {"matchLabels": {"app": "web"}}
    given = {"selector": selector, "template": template(place), **counted, **spec}
    return {"metadata": {"name": "web"}, "spec": given}


def pods(place: Place) -> list[Raw]:
    return place.client.list(PODS, place.namespace).items


def uid_of(raw: Raw) -> str:
    return str(raw["metadata"]["uid"])


def conditions(raw: Raw) -> dict[str, str]:
    """Status and reason by type."""
    found = raw.get("status", {}).get("conditions") or []
    return {each["type"]: f"{each['status']} {each.get('reason', '')}".rstrip() for each in found}


def counts(raw: Raw, *names: str) -> list[int]:
    return [raw.get("status", {}).get(name, 0) for name in names]


def a_deployment(place: Place) -> Iterator[Any]:
    place.join(f"{place.namespace}-a")
    strategy = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}
    body = workload(place, 4, strategy=strategy, progressDeadlineSeconds=6, revisionHistoryLimit=2)
    place.client.create(DEPLOYMENTS, body, place.namespace)

    def deployment() -> Raw:
        return place.client.get(DEPLOYMENTS, "web", place.namespace)

    def patch(spec: Raw) -> None:
        place.client.patch(DEPLOYMENTS, "web", {"spec": spec}, place.namespace)

    def sizes() -> list[list[int]]:
        """Of each ReplicaSet, oldest revision first: what it should have, has, and has available."""
        items = place.client.list(REPLICA_SETS, place.namespace).items
        items.sort(key=lambda each: int(each["metadata"]["annotations"]["deployment.kubernetes.io/revision"]))
        return [[each["spec"]["replicas"], *counts(each, "replicas", "availableReplicas")] for each in items]

    def says(replicas: int) -> bool:
        """The Deployment, as its ReplicaSets do: its status follows theirs."""
        found = [sum(numbers) for numbers in zip(*(each[1:] for each in sizes()), strict=True)]
        return found == counts(deployment(), "replicas", "availableReplicas") and found[0] == replicas

    def seen() -> Any:
        names = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas")
        raw = deployment()
        return conditions(raw), counts(raw, *names), sizes()

    place.until(lambda: sizes() == [[4, 4, 4]], "4 pods")
    place.until(lambda: "NewReplicaSetAvailable" in str(conditions(deployment())), "the end of the rollout")
    yield "rolled out", seen()

    stuck = {"spec": {"nodeSelector": {ONLY: "nowhere"}}}
    patch({"template": stuck})
    place.until(lambda: "ProgressDeadlineExceeded" in str(conditions(deployment())), "the deadline")
    yield "stuck", seen()

    patch({"replicas": 10})
    place.until(lambda: sum(each[2] for each in sizes()) == 7, "the pods of the old one")
    place.until(lambda: says(11), "the status")
    yield "scaled in mid-rollout", seen()[1:]

    patch({"replicas": 3, "paused": True})
    place.until(lambda: says(4), "the status")
    yield "scaled in while paused", seen()

    patch({"paused": False, "template": {"spec": {"nodeSelector": {ONLY: place.namespace}}}})
    place.until(lambda: sizes() == [[0, 0, 0], [3, 3, 3]], "the first template again")
    place.until(lambda: "NewReplicaSetAvailable" in str(conditions(deployment())), "the end of the rollout")
    yield "back at the first template", seen()

    patch({"strategy": {"type": "Recreate", "rollingUpdate": None}, "template": template(place, "web:2")})
    place.until(lambda: sizes()[-1] == [3, 3, 3] and len(sizes()) == 3, "the third template")
    yield "recreated", sizes()

    place.client.delete(DEPLOYMENTS, "web", place.namespace)
    place.until(lambda: not pods(place), "the end of its pods")
    yield "deleted", sizes()


def a_stateful_set(place: Place) -> Iterator[Any]:
    place.join(f"{place.namespace}-a")
    strategy = {"rollingUpdate": {"partition": 2}}
    body = workload(place, 4, serviceName="web", updateStrategy=strategy)
    place.client.create(STATEFUL_SETS, body, place.namespace)

    def patch(spec: Raw) -> None:
        place.client.patch(STATEFUL_SETS, "web", {"spec": spec}, place.namespace)

    def revisions() -> dict[str, int]:
        items = place.client.list(CONTROLLER_REVISIONS, place.namespace).items
        return {each["metadata"]["name"]: each["revision"] for each in items}

    def running() -> dict[str, int]:
        """The revision of each pod that is ready."""
        known = revisions()
        return {
            each["metadata"]["name"]: known[each["metadata"]["labels"]["controller-revision-hash"]]
            for each in pods(place)
            if conditions(each).get("Ready") == "True" and "deletionTimestamp" not in each["metadata"]
        }

    def seen() -> Any:
        raw, known = place.client.get(STATEFUL_SETS, "web", place.namespace), revisions()
        names = ("replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas")
        status = raw["status"]
        return (
            counts(raw, *names),
            known[status["currentRevision"]],
            known[status["updateRevision"]],
            running(),
        )

    def settled(*wanted: int) -> bool:
        raw = place.client.get(STATEFUL_SETS, "web", place.namespace)
        updated = wanted.count(revisions().get(raw.get("status", {}).get("updateRevision", ""), 0))
        # An older status also says that all are ready, but not that so many are updated.
        names = ("replicas", "readyReplicas", "availableReplicas", "updatedReplicas")
        is_said = counts(raw, *names) == [*[len(wanted)] * 3, updated]
        return is_said and running() == {f"web-{at}": each for at, each in enumerate(wanted)}

    place.until(lambda: settled(1, 1, 1, 1), "4 pods")
    yield "started", seen()

    patch({"template": template(place, "web:2")})
    place.until(lambda: settled(1, 1, 2, 2), "those above the partition")
    yield "updated above the partition", seen()

    for name in ("web-0", "web-3"):
        uid = place.client.get(PODS, name, place.namespace)["metadata"]["uid"]
        place.client.delete(PODS, name, place.namespace)
        place.until(lambda: uid not in map(uid_of, pods(place)), "its end")  # noqa: B023
        place.until(lambda: settled(1, 1, 2, 2), "it to be back, of its revision")

    patch({"updateStrategy": {"rollingUpdate": {"partition": 0}}})
    place.until(lambda: settled(2, 2, 2, 2), "all to be updated")
    place.until(lambda: seen()[1] == 2, "the update to be over")
    yield "updated", seen()

    patch(
        {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}, "template": template(place, "web:3")}
    )
    place.until(lambda: seen()[2] == 3, "the third revision")
    place.client.delete(PODS, "web-1", place.namespace)
    place.until(lambda: settled(2, 3, 2, 2), "the one that was deleted")
    yield "updated on delete", seen()

    patch({"replicas": 1})
    place.until(lambda: settled(2), "one pod")
    yield "scaled in", seen()


def a_scheduler(place: Place) -> Iterator[Any]:
    taint = {"key": "only.for/some", "value": "x", "effect": "NoSchedule"}
    place.join(f"{place.namespace}-plain")
    place.join(f"{place.namespace}-tainted", taints=[taint], capacity={"cpu": "2"})
    place.join(f"{place.namespace}-cordoned", unschedulable=True)
    tolerations = [{"key": "only.for/some", "operator": "Exists"}]
    labelled = {"key": ONLY, "operator": "In", "values": [place.namespace]}
    named = {"key": "metadata.name", "operator": "In", "values": [f"{place.namespace}-tainted"]}
    term = {"matchExpressions": [labelled], "matchFields": [named]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    sidecar = {"name": "beside", "image": "web:1", "restartPolicy": "Always"}

    def asking(cpu: str) -> Raw:
        return {"resources": {"requests": {"cpu": cpu}}}

    large = [{"name": "main", "image": "web:1", **asking("1500m")}]
    created = {
        "plain": {},
        "gated": {"schedulingGates": [{"name": "example.com/gate"}]},
        "tolerating": {"tolerations": tolerations, "affinity": {"nodeAffinity": required}},
        "intolerant": {"affinity": {"nodeAffinity": required}},
        "too-large": {"containers": large, "initContainers": [{**sidecar, **asking("3")}]},
        "large": {
            "containers": large,
            "initContainers": [{"name": "first", "image": "web:1", **asking("3")}],
        },
        "large-as-a-whole": {"containers": large, **asking("4500m")},
        "elsewhere": {"nodeSelector": {ONLY: "nowhere"}},
    }
    for name, spec in created.items():
        body = {"metadata": {"name": name}, "spec": template(place, **spec)["spec"]}
        place.client.create(PODS, body, place.namespace)

        def is_judged(name: str = name) -> bool:
            pod = place.client.get(PODS, name, place.namespace)
            is_bound = conditions(pod).get("Ready") == "True"
            return is_bound or conditions(pod).get("PodScheduled", "").startswith("False")

        place.until(is_judged, f"a place for {name}")
    yield "placed", {name: _placed(place, name) for name in created}

    place.client.patch(PODS, "gated", {"spec": {"schedulingGates": None}}, place.namespace)
    place.until(lambda: "nodeName" in place.client.get(PODS, "gated", place.namespace)["spec"], "its place")
    place.client.patch(NODES, f"{place.namespace}-tainted", {"spec": {"taints": None}})
    tainted = f"{place.namespace}-tainted"
    place.until(lambda: _placed(place, "intolerant") == "tainted", f"a pod on {tainted}")
    yield "opened", _placed(place, "gated")


def _placed(place: Place, name: str) -> str:
    pod = place.client.get(PODS, name, place.namespace)
    node = pod["spec"].get("nodeName", "").removeprefix(f"{place.namespace}-")
    return node or conditions(pod)["PodScheduled"]


def a_daemon_set(place: Place) -> Iterator[Any]:
    for name in ("a", "b"):
        place.join(f"{place.namespace}-{name}")
    taint = {"key": "only.for/some", "effect": "NoSchedule"}
    place.join(f"{place.namespace}-tainted", taints=[taint])
    place.join(f"{place.namespace}-cordoned", unschedulable=True)
    place.client.create(DAEMON_SETS, workload(place), place.namespace)

    def seen() -> Any:
        raw = place.client.get(DAEMON_SETS, "web", place.namespace)
        names = ("desired", "current", "updated")
        by_name = [f"{each}NumberScheduled" for each in names]
        others = ("numberReady", "numberAvailable", "numberUnavailable", "numberMisscheduled")
        return counts(raw, *by_name, *others)

    def nodes() -> list[str]:
        bound = [each["spec"].get("nodeName", "") for each in pods(place)]
        return sorted(each.removeprefix(f"{place.namespace}-") for each in bound)

    place.until(lambda: seen() == [3, 3, 3, 3, 3, 0, 0], "3 pods")
    spec = pods(place)[0]["spec"]
    tolerated = sorted(f"{each.get('key')}:{each.get('effect')}" for each in spec["tolerations"])
    yield "started", (nodes(), tolerated)

    change = {"spec": {"template": template(place, "web:2")}}
    place.client.patch(DAEMON_SETS, "web", change, place.namespace)
    place.until(
        lambda: {each["spec"]["containers"][0]["image"] for each in pods(place)} == {"web:2"}, "new pods"
    )
    place.until(lambda: seen() == [3, 3, 3, 3, 3, 0, 0], "the end of the rollout")
    place.client.patch(NODES, f"{place.namespace}-a", {"spec": {"taints": [taint]}})
    place.client.patch(NODES, f"{place.namespace}-b", {"metadata": {"labels": {ONLY: None}}})
    place.until(lambda: len(pods(place)) == 2, "the end of one")
    place.until(lambda: seen()[0] == 1, "the label to be seen")
    yield "one node is not meant any more", (seen(), nodes())


HISTORIES = {
    "Deployment": a_deployment,
    "StatefulSet": a_stateful_set,
    "scheduler": a_scheduler,
    "DaemonSet": a_daemon_set,
}
