"""A Deployment with its ReplicaSets, and the arithmetic of a rollout.

https://github.com/kubernetes/kubernetes/blob/master/pkg/controller/deployment/util/deployment_util.go
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dev.simulator.models.cluster import Raw
from dev.simulator.models.pods import scaled

HASH = "pod-template-hash"
PREFIX = "deployment.kubernetes.io/"
REVISION, DESIRED, MOST = f"{PREFIX}revision", f"{PREFIX}desired-replicas", f"{PREFIX}max-replicas"


@dataclass
class Rollout:
    """*new* is the ReplicaSet of the present template, *old* are the others, oldest first."""

    raw: Raw
    new: Raw | None
    old: list[Raw]

    @property
    def spec(self) -> Raw:
        spec: Raw = self.raw["spec"]
        return spec

    @property
    def sets(self) -> list[Raw]:
        return [*self.old, self.new] if self.new else self.old

    @property
    def replicas(self) -> int:
        return int(self.spec["replicas"])

    @property
    def is_rolling(self) -> bool:
        return bool(self.spec["strategy"]["type"] == "RollingUpdate")

    @property
    def max_unavailable(self) -> int:
        if not self.is_rolling or self.replicas == 0:
            return 0
        rolling = self.spec["strategy"]["rollingUpdate"]
        unavailable = scaled(rolling["maxUnavailable"], self.replicas, up=False)
        if unavailable == 0 and self.max_surge == 0:
            return 1
        return min(unavailable, self.replicas)

    @property
    def max_surge(self) -> int:
        if not self.is_rolling:
            return 0
        return scaled(self.spec["strategy"]["rollingUpdate"]["maxSurge"], self.replicas, up=True)


def without_hash(template: Raw) -> Raw:
    metadata = template.get("metadata") or {}
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key != HASH}
    return {**template, "metadata": {**metadata, "labels": labels}}


def size(raw: Raw) -> int:
    return int(raw["spec"]["replicas"])


def available(raw: Raw) -> int:
    return int((raw.get("status") or {}).get("availableReplicas", 0))


def number(raw: Raw, annotation: str, otherwise: int) -> int:
    value: Any = (raw["metadata"].get("annotations") or {}).get(annotation)
    return int(value) if value is not None else otherwise
