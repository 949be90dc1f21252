"""Pause, resume, promote and abort a rollout, as `drawbridge rollout` does."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cli.cluster import Cluster
from cli.rollout.progress import Stored, pause, promote
from cli.rollout.reader import revisions_of, stored_of
from cli.rollout.revisions import aborted, undo
from kube.client import Client
from webhook.ingress_daemonset import INGRESS_DAEMONSETS

Write = Callable[[str, str, str], None]
"""Of a namespace, a name and one of VERBS."""


def _abort(client: Client, stored: Stored) -> object:
    return undo(stored, aborted(stored, revisions_of(client, stored)))


VERBS: Mapping[str, Callable[[Client, Stored], object | None]] = {
    "pause": lambda _, stored: pause(stored, True),
    "resume": lambda _, stored: pause(stored, False),
    "promote": lambda _, stored: promote(stored),
    "abort": _abort,
}
"""The patch of each; None when there is nothing to do."""


def writer_of(cluster: Cluster) -> Write:
    def write(namespace: str, name: str, verb: str) -> None:
        """KubeError, or Failure when there is nothing to return to."""
        stored = stored_of(cluster.client, namespace, name)
        patch = VERBS[verb](cluster.client, stored)
        if patch is not None:
            cluster.client.patch(INGRESS_DAEMONSETS, name, patch, namespace)

    return write
