"""The controller of DaemonSets: a pod for each node that takes it; replaces without surge, or only once it is deleted.

https://github.com/kubernetes/kubernetes/blob/master/pkg/controller/daemon/daemon_controller.go
https://github.com/kubernetes/kubernetes/blob/master/pkg/controller/daemon/update.go
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from dev.fake_api.defaults import TEMPLATE_GENERATION
from dev.fake_api.storage import Change, Key
from dev.simulator.models.cluster import Cluster, Raw
from dev.simulator.models.controller import Controller, Spawn, at_once
from dev.simulator.models.node_fit import NO_EXECUTE, NO_SCHEDULE, matches_node, untolerated
from dev.simulator.models.pods import (
    created_at,
    hashed,
    is_available,
    is_deleted,
    is_ended,
    is_ready,
    next_available,
    scaled,
)
from dev.simulator.models.replica_sets import pod_of
from kube.resources import DAEMON_SETS, NODES, PODS

REVISION, GENERATION = "controller-revision-hash", "pod-template-generation"
PRESSURES = ("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")


@dataclass
class Site:
    """A node, whether it takes a pod and whether one that is there may stay, and those that are."""

    node: Raw
    runs: bool
    keeps: bool
    pods: list[Raw] = field(default_factory=list)


class DaemonSets(Controller):
    def __init__(self, cluster: Cluster, spawn: Spawn = at_once) -> None:
        super().__init__(cluster, DAEMON_SETS, PODS, spawn=spawn)

    def keys_of(self, change: Change) -> Iterator[Key]:
        yield from super().keys_of(change)
        if change.key[0] == NODES and _placement(change.old) != _placement(change.new):
            for each in self.cluster.all(DAEMON_SETS):
                if change.new is None or self._has_work(each, change.key[2]):
                    yield DAEMON_SETS, each["metadata"]["namespace"], each["metadata"]["name"]

    def _has_work(self, raw: Raw, node: str) -> bool:
        """Whether a pod must come or go there; that one is misscheduled shows only at the next look."""
        site = self._sites(raw).get(node)
        return site is not None and ((site.runs and not site.pods) or (bool(site.pods) and not site.keeps))

    def reconcile(self, raw: Raw, now: datetime) -> datetime | None:
        sites = self._sites(raw)
        self._report(raw, sites.values(), now)
        if not is_deleted(raw) and not self._place(raw, sites.values()):
            self._roll(raw, list(sites.values()), now)
        pods = [pod for each in sites.values() for pod in each.pods]
        return next_available(pods, raw["spec"].get("minReadySeconds", 0), now)

    def _sites(self, raw: Raw) -> Mapping[str, Site]:
        spec = tolerating(raw["spec"]["template"]["spec"])
        sites = {}
        for node in self.cluster.all(NODES):
            fits = matches_node(spec, node)
            runs = fits and not untolerated(spec, node, (NO_SCHEDULE, NO_EXECUTE))
            keeps = fits and not untolerated(spec, node, (NO_EXECUTE,))
            sites[node["metadata"]["name"]] = Site(node, runs, keeps)
        for pod in sorted(self.cluster.controlled(raw["metadata"]["uid"], PODS), key=created_at):
            if (name := node_of(pod)) in sites:
                sites[name].pods.append(pod)
        return sites

    def _place(self, raw: Raw, sites: Collection[Site]) -> bool:
        """Whether pods came or went: a rollout waits for the next look."""
        surplus: list[Raw] = []
        missing: list[Raw] = []
        for each in sites:
            present = [pod for pod in each.pods if not is_deleted(pod)]
            running = [pod for pod in present if not is_ended(pod)]
            if each.runs and not each.pods:
                missing.append(each.node)
            elif each.keeps:
                surplus += [pod for pod in present if is_ended(pod)] + running[1:]
            else:
                surplus += present
        for pod in surplus:
            self.delete(PODS, pod)
        for node in missing:
            self._create(raw, node)
        return bool(surplus or missing)

    def _create(self, raw: Raw, node: Raw) -> None:
        metadata, template = raw["metadata"], raw["spec"]["template"]
        labels = {REVISION: revision_of(raw), GENERATION: metadata["annotations"][TEMPLATE_GENERATION]}
        pod = pod_of(raw, template, labels=labels)
        pod["spec"] = pinned(tolerating(template["spec"]), node["metadata"]["name"])
        self.client.create(PODS, pod, metadata["namespace"])

    def _roll(self, raw: Raw, sites: list[Site], now: datetime) -> None:
        strategy = raw["spec"]["updateStrategy"]
        if strategy["type"] != "RollingUpdate":
            return
        least, new = raw["spec"].get("minReadySeconds", 0), revision_of(raw)
        wanted = [each for each in sites if each.runs]
        room = scaled(strategy["rollingUpdate"]["maxUnavailable"], len(wanted), up=True)
        old: list[Raw] = []
        broken: list[Raw] = []
        for each in wanted:
            pods = [pod for pod in each.pods if not is_ended(pod)]
            if any(is_available(pod, least, now) and not is_deleted(pod) for pod in pods):
                old += [pod for pod in pods if pod["metadata"]["labels"].get(REVISION) != new]
            else:
                room -= 1
                broken += [
                    pod
                    for pod in pods
                    if pod["metadata"]["labels"].get(REVISION) != new and not is_deleted(pod)
                ]
        for pod in [*broken, *old[: max(0, room)]]:
            self.delete(PODS, pod)

    def _report(self, raw: Raw, sites: Collection[Site], now: datetime) -> None:
        least, new = raw["spec"].get("minReadySeconds", 0), revision_of(raw)
        counts = dict.fromkeys(("desired", "current", "ready", "available", "updated", "misscheduled"), 0)
        for each in sites:
            pods = [pod for pod in each.pods if not is_deleted(pod) and not is_ended(pod)]
            counts["misscheduled"] += bool(pods and not each.runs)
            if each.runs:
                first = next(iter(sorted(pods, key=created_at)), None)
                counts["desired"] += 1
                counts["current"] += first is not None
                counts["ready"] += first is not None and is_ready(first)
                counts["available"] += first is not None and is_available(first, least, now)
                counts["updated"] += first is not None and first["metadata"]["labels"].get(REVISION) == new
        status = {
            "observedGeneration": raw["metadata"]["generation"],
            "desiredNumberScheduled": counts["desired"],
            "currentNumberScheduled": counts["current"],
            "numberMisscheduled": counts["misscheduled"],
            "numberReady": counts["ready"],
            "numberAvailable": counts["available"],
            "numberUnavailable": counts["desired"] - counts["available"],
            "updatedNumberScheduled": counts["updated"],
        }
        self.set_status(raw, status)


def revision_of(raw: Raw) -> str:
    return hashed(raw["spec"]["template"])


def tolerating(spec: Raw) -> Raw:
    """With the tolerations that each pod of a DaemonSet has."""
    keys = [*PRESSURES, *(["network-unavailable"] if spec.get("hostNetwork") else [])]
    added = [
        {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": effect}
        for key, effect in (
            ("not-ready", NO_EXECUTE),
            ("unreachable", NO_EXECUTE),
            *((each, NO_SCHEDULE) for each in keys),
        )
    ]
    held = spec.get("tolerations") or []
    return {**spec, "tolerations": [*held, *(each for each in added if each not in held)]}


def pinned(spec: Raw, node: str) -> Raw:
    """The scheduler binds it, but to this node alone."""
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    affinity = spec.get("affinity") or {}
    own = affinity.get("nodeAffinity") or {}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    pinned = {**own, "requiredDuringSchedulingIgnoredDuringExecution": required}
    return {**spec, "affinity": {**affinity, "nodeAffinity": pinned}}


def node_of(pod: Raw) -> str:
    """Its node, or the one that it waits for."""
    if name := pod["spec"].get("nodeName"):
        return str(name)
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return str(required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])


def _placement(stored: object) -> object:
    """What of a node decides where pods go."""
    raw = getattr(stored, "raw", None)
    return raw and (raw["metadata"].get("labels"), raw["spec"])
