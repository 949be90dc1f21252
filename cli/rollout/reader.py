"""Read a rollout and the templates before it."""

from __future__ import annotations

from api.health_checks import shortened
from api.ingress_daemonset import INGRESS_DAEMONSETS, REVISION_OF
from cli.rollout.progress import Stored
from controllers.ingress_daemonset.revisions import CONTROLLER_REVISIONS, Revision
from kube.client import Client


def stored_of(client: Client, namespace: str, name: str) -> Stored:
    """KubeError."""
    return client.get(INGRESS_DAEMONSETS, name, namespace, type=Stored)


def revisions_of(client: Client, stored: Stored) -> list[Revision]:
    """KubeError."""
    selector = f"{REVISION_OF}={shortened(stored.metadata.name)}"
    namespace = stored.metadata.namespace
    return client.list(CONTROLLER_REVISIONS, namespace, type=Revision, label_selector=selector).items
