"""Pause and resume a rollout, as `drawbridge rollout pause` does."""

from __future__ import annotations

from collections.abc import Callable

from cli.cluster import Cluster
from cli.rollout.progress import Stored, pause
from webhook.ingress_daemonset import INGRESS_DAEMONSETS

Write = Callable[[str, str, bool], None]
"""Of a namespace and a name: whether it is to be paused."""


def writer_of(cluster: Cluster) -> Write:
    def write(namespace: str, name: str, paused: bool) -> None:
        """KubeError."""
        stored = cluster.client.get(INGRESS_DAEMONSETS, name, namespace, type=Stored)
        patch = pause(stored, paused)
        if patch is not None:
            cluster.client.patch(INGRESS_DAEMONSETS, name, patch, namespace)

    return write
