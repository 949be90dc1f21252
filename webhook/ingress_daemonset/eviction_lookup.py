"""What an eviction reads of the cluster, each object once, and the one annotation that it writes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

from kube.client import Client, Resource
from kube.errors import NotFound
from kube.objects import ObjectMeta, Pod, Value, complete
from webhook.cluster import PODS
from webhook.ingress_daemonset import DRAIN_REQUESTED
from webhook.ingress_daemonset.cluster import INGRESS_DAEMONSETS
from webhook.ingress_daemonset.model import IngressDaemonSet
from webhook.ingress_daemonset.template import readable

DEPLOYMENTS = Resource("apps", "v1", "deployments")
LEAST = 0.1
"""Seconds for a call at least."""


class Outline(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class EvictionLookup:
    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._clock = client, clock

    def pod(self, namespace: str, name: str, *, deadline: float) -> Pod:
        return self._client.get(PODS, name, namespace, type=Pod, timeout=self._left(deadline))

    def deployment(self, namespace: str, name: str, *, deadline: float) -> ObjectMeta:
        left = self._left(deadline)
        return self._client.get(DEPLOYMENTS, name, namespace, type=Outline, timeout=left).metadata

    def ingress_daemonset(self, namespace: str, name: str, *, deadline: float) -> IngressDaemonSet:
        """NotFound, too, for one that cannot be read: the controllers pass it over."""
        left = self._left(deadline)
        raw: dict[str, Any] = self._client.get(INGRESS_DAEMONSETS, name, namespace, timeout=left)
        try:
            return readable(raw)
        except msgspec.ValidationError as error:
            raise NotFound(404, "NotFound", f"{namespace}/{name} cannot be read: {error}") from error

    def request_drain(self, deployment: ObjectMeta, at: str, *, deadline: float) -> None:
        change = {"metadata": {"uid": deployment.uid, "annotations": {DRAIN_REQUESTED: at}}}
        name, namespace = deployment.name, deployment.namespace
        left = self._left(deadline)
        self._client.patch(DEPLOYMENTS, name, change, namespace, type=msgspec.Raw, timeout=left)

    def _left(self, deadline: float) -> float:
        return max(LEAST, deadline - self._clock())


complete(Outline)
