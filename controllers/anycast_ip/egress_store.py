"""The pods that check the egress of nodes, at the API server."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from cloud.types import Address
from controllers.anycast_ip.egress_pod import SELECTED, ProbePod, body
from kube.client import Client
from kube.errors import AlreadyExists, Conflict, NotFound
from kube.resources import PODS
from kube.types import Node
from settings.anycast_ip import EgressCheck


class ProbePods:
    """Pods of checks in the release's namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client, self._namespace = client, namespace

    def create(self, token: str, node: Node, address: Address, check: EgressCheck) -> None:
        """Once for each *token*, however often it is called."""
        with suppress(AlreadyExists):
            self._client.create(PODS, body(token, node, address, check), self._namespace)

    def list(self) -> Collection[ProbePod]:
        return self._client.list(PODS, self._namespace, type=ProbePod, label_selector=SELECTED).items

    def delete(self, pod: ProbePod) -> None:
        """At once: there is nothing to save, and its kubelet may not answer."""
        preconditions = {"uid": pod.metadata.uid}
        with suppress(NotFound, Conflict):
            self._client.delete(
                PODS, pod.metadata.name, self._namespace, preconditions=preconditions, grace_seconds=0
            )
