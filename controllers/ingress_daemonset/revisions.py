"""Former templates, so that a rollout can be undone: ControllerRevisions, as a DaemonSet has them.

The current template has the highest number. A template is recorded when it becomes the current one, so that those
before it are there whatever has been updated to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog

from api.health_checks import shortened
from api.ingress_daemonset import REVISION_OF
from api.ingress_daemonset.types import IngressDaemonSet
from controllers.ingress_daemonset.children import (
    NAMESPACE,
    Child,
    metadata,
    revision_of_template,
    without_timestamp,
)
from controllers.manager import Context
from kube.informer import Informer
from kube.resources import Resource
from kube.types import Completed, key_of

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


@dataclass(frozen=True)
class RevisionPlan:
    """*create* has the body; *renumber* becomes the latest, with the *number*; *surplus* is to be deleted."""

    create: dict[str, Any] | None = None
    renumber: Revision | None = None
    number: int = 0
    surplus: tuple[Revision, ...] = ()


def plan_revisions(resource: IngressDaemonSet, held: Sequence[Revision]) -> RevisionPlan:
    """Make the current template the latest revision, and leave as many others as the spec says."""
    if resource.metadata.deletion_timestamp is not None:
        return RevisionPlan()
    ours = of(resource.metadata.uid, held)
    template = without_timestamp(resource.spec.template)
    current = next((each for each in ours if each.template == template), None)
    others = [each for each in ours if each is not current]
    surplus = others[: max(0, len(others) - resource.spec.revision_history_limit)]
    # Whatever the limit: an abort and a rollback return to it, and new nodes get it meanwhile.
    surplus = [each for each in surplus if each.digest != resource.stored.current_revision]
    number = 1 + (ours[-1].revision if ours else 0)
    if current is None:
        return RevisionPlan(_body(resource, template, number), None, number, tuple(surplus))
    return RevisionPlan(None, None if current is ours[-1] else current, number, tuple(surplus))


def of(uid: str, held: Sequence[Revision]) -> list[Revision]:
    """Those of the IngressDaemonSet of this *uid*, the current one last."""
    ours = (each for each in held if each.is_of(uid) and not each.is_terminating)
    return sorted(ours, key=lambda each: each.revision)


def _body(resource: IngressDaemonSet, template: dict[str, Any], number: int) -> dict[str, Any]:
    name = resource.metadata.name
    labels = {REVISION_OF: shortened(name)}
    return {
        "apiVersion": CONTROLLER_REVISIONS.api_version,
        "kind": "ControllerRevision",
        "metadata": metadata(resource, shortened(f"{name}-{revision_of_template(template)}"), labels),
        "data": {"spec": {"template": template}},
        "revision": number,
    }


log = structlog.stdlib.get_logger(__name__)


class RevisionReconciler:
    """Writes one IngressDaemonSet's revisions; those of other owners are left as they are."""

    def __init__(
        self,
        context: Context,
        revisions: Informer[Revision],
        resource_of: Callable[[str], IngressDaemonSet | None],
    ) -> None:
        self._context, self._revisions, self._resource_of = context, revisions, resource_of
        revisions.add_index(NAMESPACE, lambda each: [each.metadata.namespace])

    def reconcile(self, key: str) -> None:
        """KubeError, LeadershipLost."""
        resource = self._resource_of(key)
        if resource is None:
            return  # the garbage collector deletes its revisions
        namespace = resource.metadata.namespace
        planned = plan_revisions(resource, self._revisions.by_index(NAMESPACE, namespace))
        client, kind = self._context.client, CONTROLLER_REVISIONS
        if planned.create:
            self._revisions.wrote(client.create(kind, planned.create, namespace, type=msgspec.Raw))
            log.info("revision recorded", key=key, revision=planned.number)
        if planned.renumber:
            held = planned.renumber.metadata
            body = {"metadata": held.guard, "revision": planned.number}
            self._revisions.wrote(client.patch(kind, held.name, body, namespace, type=msgspec.Raw))
        for held in (revision.metadata for revision in planned.surplus):
            client.delete(kind, held.name, namespace, preconditions={"uid": held.uid})
            self._revisions.forget(key_of(held), held.uid)
