"""Which replica of its StatefulSet a pod is: the first ones by ordinal are the local ones."""

from __future__ import annotations

import re

import msgspec

from controllers.elasticity.pods import Pod
from kube.types import ObjectMeta, OwnerReference, Value, complete

INDEX = "apps.kubernetes.io/pod-index"


class Ordinals(Value, frozen=True):
    start: int = 0


class StatefulSetSpec(Value, frozen=True):
    ordinals: Ordinals = Ordinals()


class StatefulSet(Value, frozen=True):
    """All that is read of one."""

    metadata: ObjectMeta = ObjectMeta()
    spec: StatefulSetSpec = StatefulSetSpec()


complete(StatefulSet)


def slim(raw: msgspec.Raw) -> StatefulSet:
    """Without labels and annotations. MsgspecError when it cannot be read."""
    found = _DECODER.decode(raw)
    at = found.metadata
    kept = ObjectMeta(name=at.name, namespace=at.namespace, uid=at.uid, resource_version=at.resource_version)
    return StatefulSet(kept, found.spec)


def stateful_set_of(pod: Pod) -> OwnerReference | None:
    """Of Kubernetes itself: others may number their pods in another way."""
    owner = pod.metadata.controller
    is_one = owner is not None and owner.kind == "StatefulSet" and owner.api_version.startswith("apps/")
    return owner if is_one else None


def ordinal_of(pod: Pod) -> int | None:
    """By its label, which has been there since Kubernetes 1.28, or by its name."""
    name = pod.metadata.labels.get(INDEX) or pod.metadata.name.rpartition("-")[2]
    return int(name) if re.fullmatch(r"[0-9]{1,9}", name) else None


_DECODER = msgspec.json.Decoder(StatefulSet)
