"""The controller of StatefulSets: stable names, revisions, partitions; without claims for volumes.

https://github.com/kubernetes/kubernetes/blob/master/pkg/controller/statefulset/stateful_set_control.go
https://github.com/kubernetes/kubernetes/blob/master/pkg/controller/statefulset/stateful_set_utils.go
"""

from __future__ import annotations

from datetime import datetime

from dev.simulator.models.cluster import CONTROLLER_REVISIONS, Cluster, Raw, controlled_by
from dev.simulator.models.controller import Controller, Spawn, at_once
from dev.simulator.models.pods import (
    hashed,
    is_available,
    is_deleted,
    is_ended,
    is_ready,
    next_available,
)
from dev.simulator.models.replica_sets import pod_of
from kube.resources import PODS, STATEFUL_SETS

REVISION = "controller-revision-hash"
POD_NAME, POD_INDEX = "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"


class StatefulSets(Controller):
    def __init__(self, cluster: Cluster, spawn: Spawn = at_once) -> None:
        super().__init__(cluster, STATEFUL_SETS, PODS, spawn=spawn)

    def reconcile(self, raw: Raw, now: datetime) -> datetime | None:
        current, update = self._revisions(raw)
        pods = {ordinal_of(each): each for each in self.cluster.controlled(raw["metadata"]["uid"], PODS)}
        self._report(raw, pods, current, update, now)
        if not is_deleted(raw) and not self._scale(raw, pods, current, update, now):
            self._update(raw, pods, update)
        return next_available(list(pods.values()), raw["spec"].get("minReadySeconds", 0), now)

    # Pods.

    def _scale(self, raw: Raw, pods: dict[int, Raw], current: Raw, update: Raw, now: datetime) -> bool:
        """Whether that is all for now: one pod after the other, unless management is Parallel."""
        one_by_one = raw["spec"]["podManagementPolicy"] != "Parallel"
        least = raw["spec"].get("minReadySeconds", 0)
        for ordinal in ordinals(raw):
            pod = pods.get(ordinal)
            if pod is not None and is_ended(pod):
                if not is_deleted(pod):
                    self.delete(PODS, pod)
                return True
            if pod is None:
                revision = current if keeps_current(raw, ordinal) else update
                self._create(raw, ordinal, revision)
            if one_by_one and (pod is None or is_deleted(pod) or not is_available(pod, least, now)):
                return True
        unwanted = sorted(pods.keys() - set(ordinals(raw)), reverse=True)
        wanted = [pods[each] for each in ordinals(raw) if each in pods] + [
            pods[each] for each in unwanted[::-1]
        ]
        first_unhealthy = next((each for each in wanted if not is_healthy(each)), None)
        for ordinal in unwanted:
            pod = pods[ordinal]
            if is_deleted(pod):
                if one_by_one:
                    return True
                continue
            if one_by_one and not is_available(pod, least, now) and pod is not first_unhealthy:
                return True
            self.delete(PODS, pod)
            if one_by_one:
                return True
        return False

    def _update(self, raw: Raw, pods: dict[int, Raw], update: Raw) -> None:
        strategy = raw["spec"]["updateStrategy"]
        if strategy["type"] == "OnDelete":
            return
        partition = (strategy.get("rollingUpdate") or {}).get("partition", 0)
        for ordinal in reversed(ordinals(raw)):
            if ordinal < max(partition, ordinals(raw).start):
                return
            pod = pods.get(ordinal)
            if pod is None:  # made in this very pass
                return
            if revision_of(pod) != update["metadata"]["name"] and not is_deleted(pod):
                self.delete(PODS, pod)
                return
            if not is_healthy(pod):
                return

    def _create(self, raw: Raw, ordinal: int, revision: Raw) -> None:
        metadata = raw["metadata"]
        name = f"{metadata['name']}-{ordinal}"
        labels = {POD_NAME: name, POD_INDEX: str(ordinal), REVISION: revision["metadata"]["name"]}
        template = revision["data"]["spec"]["template"]
        pod = pod_of(raw, template, name=name, labels=labels)
        pod["spec"] = {**pod["spec"], "hostname": name}
        if service := raw["spec"].get("serviceName"):
            pod["spec"]["subdomain"] = service
        self.client.create(PODS, pod, metadata["namespace"])

    # Revisions.

    def _revisions(self, raw: Raw) -> tuple[Raw, Raw]:
        """The current and the update revision; the first is the second where there was none before."""
        held = self.cluster.controlled(raw["metadata"]["uid"], CONTROLLER_REVISIONS)
        held.sort(key=lambda each: (each["revision"], each["metadata"]["name"]))
        template = raw["spec"]["template"]
        update = next((each for each in held if each["data"]["spec"]["template"] == template), None)
        following = 1 + max((each["revision"] for each in held), default=0)
        metadata = raw["metadata"]
        if update is None:
            name = f"{metadata['name']}-{hashed(template, following)}"
            labels = {**(raw["spec"]["selector"].get("matchLabels") or {}), REVISION: name}
            body = {
                "metadata": {"name": name, "labels": labels, "ownerReferences": [controlled_by(raw)]},
                "data": {"spec": {"template": template}},
                "revision": following,
            }
            update = self.client.create(CONTROLLER_REVISIONS, body, metadata["namespace"])
        elif update is not held[-1]:  # rolled back to
            name, change = update["metadata"]["name"], {"revision": following}
            update = self.client.patch(CONTROLLER_REVISIONS, name, change, metadata["namespace"])
        named = (raw.get("status") or {}).get("currentRevision")
        current = next((each for each in held if each["metadata"]["name"] == named), update)
        return current, update

    def _report(self, raw: Raw, pods: dict[int, Raw], current: Raw, update: Raw, now: datetime) -> None:
        least, wanted = raw["spec"].get("minReadySeconds", 0), raw["spec"]["replicas"]
        of = [revision_of(each) for each in pods.values() if not is_deleted(each)]
        named, new = current["metadata"]["name"], update["metadata"]["name"]
        status = {
            "observedGeneration": raw["metadata"]["generation"],
            "replicas": len(pods),
            "readyReplicas": sum(map(is_healthy_but_terminating, pods.values())),
            "availableReplicas": sum(is_available(each, least, now) for each in pods.values()),
            "currentReplicas": of.count(named),
            "updatedReplicas": of.count(new),
            "currentRevision": named,
            "updateRevision": new,
            "collisionCount": 0,
        }
        rolls = raw["spec"]["updateStrategy"]["type"] == "RollingUpdate"
        if rolls and status["updatedReplicas"] == len(pods) == status["readyReplicas"] == wanted:
            status |= {"currentReplicas": status["updatedReplicas"], "currentRevision": new}
        self.set_status(raw, status)


def ordinals(raw: Raw) -> range:
    start = (raw["spec"].get("ordinals") or {}).get("start", 0)
    return range(start, start + raw["spec"]["replicas"])


def ordinal_of(pod: Raw) -> int:
    return int(pod["metadata"]["name"].rpartition("-")[2])


def revision_of(pod: Raw) -> str:
    return str((pod["metadata"].get("labels") or {}).get(REVISION, ""))


def keeps_current(raw: Raw, ordinal: int) -> bool:
    """Whether a pod that is made now is of the current revision: it stands below the partition."""
    strategy = raw["spec"]["updateStrategy"]
    if strategy["type"] != "RollingUpdate":
        return False
    start = ordinals(raw).start
    if strategy.get("rollingUpdate") is None:
        return bool(ordinal < start + (raw.get("status") or {}).get("currentReplicas", 0))
    return bool(ordinal < start + strategy["rollingUpdate"].get("partition", 0))


def is_healthy_but_terminating(pod: Raw) -> bool:
    return (pod.get("status") or {}).get("phase") == "Running" and is_ready(pod)


def is_healthy(pod: Raw) -> bool:
    return is_healthy_but_terminating(pod) and not is_deleted(pod)
