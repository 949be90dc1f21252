"""Former templates, so that a rollout can be undone: ControllerRevisions, as a DaemonSet has them.

The current template has the highest number. A template is recorded when it becomes the current one, so that those
before it are there whatever has been updated to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from api.health_checks import shortened
from api.ingress_daemonset import REVISION_OF
from api.ingress_daemonset.types import IngressDaemonSet
from controllers.ingress_daemonset.children import (
    Action,
    Child,
    change,
    create,
    delete,
    metadata,
    revision_of_template,
    without_timestamp,
)
from kube.resources import Resource
from kube.types import Completed

CONTROLLER_REVISIONS = Resource("apps", "v1", "controllerrevisions")


class Data(msgspec.Struct, metaclass=Completed, frozen=True):
    spec: dict[str, Any] = {}


class Revision(Child, frozen=True, dict=True):
    """A ControllerRevision; of two, the one with the higher number was current later."""

    data: Data = Data()
    revision: int = 0

    @property
    def template(self) -> dict[str, Any]:
        found: dict[str, Any] = self.data.spec.get("template") or {}
        return found

    @property
    def digest(self) -> str:
        """Of its template: what a status calls a revision."""
        return revision_of_template(self.template)


def plan_revisions(resource: IngressDaemonSet, held: Sequence[Revision]) -> list[Action]:
    """Make the current template the latest revision, and leave as many others as the spec says."""
    if resource.metadata.deletion_timestamp is not None:
        return []  # the garbage collector deletes its revisions
    ours = of(resource.metadata.uid, held)
    template = without_timestamp(resource.spec.template)
    current = next((each for each in ours if each.template == template), None)
    others = [each for each in ours if each is not current]
    surplus = others[: max(0, len(others) - resource.spec.revision_history_limit)]
    number = 1 + (ours[-1].revision if ours else 0)
    body, actions = body_of(resource, number), list[Action]()
    if current and (labels := current.missing_labels(body)):
        actions.append(change("ControllerRevision", current.metadata, labels))
    elif current and current is not ours[-1]:
        actions.append(change("ControllerRevision", current.metadata, {}, revision=number))
    # One of another owner is left as it is, though this template is not kept then.
    elif current is None and body["metadata"]["name"] not in {each.metadata.name for each in held}:
        actions.append(create(body))
    # Whatever the limit: an abort and a rollback return to it, and new nodes get it meanwhile.
    proven = resource.stored.current_revision
    return actions + [
        delete("ControllerRevision", each.metadata) for each in surplus if each.digest != proven
    ]


def of(uid: str, held: Sequence[Revision]) -> list[Revision]:
    """Those of the IngressDaemonSet of this *uid*, the current one last."""
    ours = (each for each in held if each.is_of(uid) and not each.is_terminating)
    return sorted(ours, key=lambda each: each.revision)


def body_of(resource: IngressDaemonSet, number: int = 1) -> dict[str, Any]:
    """Of the revision that has its template."""
    name, template = resource.metadata.name, without_timestamp(resource.spec.template)
    labels = {REVISION_OF: shortened(name)}
    return {
        "apiVersion": CONTROLLER_REVISIONS.api_version,
        "kind": "ControllerRevision",
        "metadata": metadata(resource, shortened(f"{name}-{revision_of_template(template)}"), labels),
        "data": {"spec": {"template": template}},
        "revision": number,
    }
