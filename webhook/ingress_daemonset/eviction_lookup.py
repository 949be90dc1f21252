"""What an eviction reads of the cluster, each object once, and the one entry of a status that it writes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from kube.client import Client
from kube.errors import KubeError
from kube.resources import PODS, Selection
from kube.types import Pod
from webhook.ingress_daemonset import DRAIN_REQUESTS
from webhook.ingress_daemonset.conflict_lookup import INGRESS_DAEMONSETS
from webhook.ingress_daemonset.template import readable
from webhook.ingress_daemonset.types import IngressDaemonSet

LEAST = 0.1
"""Seconds for a call at least."""

Raw = dict[str, Any]


class EvictionLookup:
    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client, self._clock = client, clock

    def pod(self, namespace: str, name: str, *, deadline: float) -> Pod:
        return self._client.get(PODS, name, namespace, type=Pod, timeout=self._left(deadline))

    def ingress_daemonsets(self, namespace: str, *, deadline: float) -> Iterator[IngressDaemonSet]:
        """Without those that cannot be read: the controllers pass them over."""
        pages = self._client.list_pages(
            INGRESS_DAEMONSETS, Selection(namespace), type=Raw, timeout=lambda: self._left(deadline)
        )
        for page in pages:
            for raw in page.items or ():
                try:
                    yield readable(raw)
                except msgspec.ValidationError:
                    continue

    def request_drain(self, resource: IngressDaemonSet, node: str, at: str, *, deadline: float) -> None:
        """KubeError, too, when it is not stored: without it no eviction would ever have waited for long enough."""
        at_it = resource.metadata
        written: Raw = self._client.patch(
            INGRESS_DAEMONSETS.sub("status"),
            at_it.name,
            {"metadata": {"uid": at_it.uid}, "status": {DRAIN_REQUESTS: {node: at}}},
            at_it.namespace,
            timeout=self._left(deadline),
        )
        if (written.get("status", {}).get(DRAIN_REQUESTS) or {}).get(node) != at:
            raise KubeError(f"the CRD has no status.{DRAIN_REQUESTS}: upgrade it to that of this version")

    def _left(self, deadline: float) -> float:
        return max(LEAST, deadline - self._clock())
