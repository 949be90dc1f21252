"""Write what was decided on an IngressDaemonSet as it was shown, although its status moves on meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from api.ingress_daemonset import INGRESS_DAEMONSETS
from cli.rollout.progress import Stored
from cli.rollout.reader import stored_of
from kube.client import Client
from kube.errors import Conflict

Patch = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""A merge patch, or a JSON patch."""
Change = Callable[[Stored], Patch | None]
"""The patch of what is stored; None when there is nothing to do."""
ATTEMPTS = 10
"""The leader writes a status once a second at most."""


def write(client: Client, shown: Stored, change: Change) -> bool:
    """Write the *change* of what was *shown*; whether there was one.

    KubeError; Conflict when the spec is another one by now, or the change would be.
    """
    wanted, stored = change(shown), shown
    if wanted is None:
        return False
    for attempt in range(1, ATTEMPTS + 1):
        try:
            client.patch(INGRESS_DAEMONSETS, *_place(shown, _at_version(wanted, stored)))
        except Conflict:
            stored = stored_of(client, shown.metadata.namespace, shown.metadata.name)
            if attempt == ATTEMPTS or not _has_same_spec(stored, shown) or change(stored) != wanted:
                raise
        else:
            break
    return True


def _place(stored: Stored, patch: object) -> tuple[str, object, str]:
    return stored.metadata.name, patch, stored.metadata.namespace


def _at_version(patch: Patch, stored: Stored) -> object:
    version = stored.metadata.resource_version
    if isinstance(patch, Mapping):
        return {**patch, "metadata": {**patch.get("metadata", {}), "resourceVersion": version}}
    return [{"op": "replace", "path": "/metadata/resourceVersion", "value": version}, *patch]


def _has_same_spec(one: Stored, other: Stored) -> bool:
    return (one.metadata.uid, one.metadata.generation) == (other.metadata.uid, other.metadata.generation)
