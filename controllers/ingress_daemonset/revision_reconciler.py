"""Keep the revisions of one IngressDaemonSet at a time as they are planned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import structlog

from api.ingress_daemonset.types import IngressDaemonSet
from controllers.ingress_daemonset.object_cache import CALL_TIMEOUT, NAMESPACE
from controllers.ingress_daemonset.revisions import CONTROLLER_REVISIONS, Revision, plan_revisions
from controllers.manager import Context
from kube.informer import Informer

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
        if planned.create:
            self._write("POST", CONTROLLER_REVISIONS.path(namespace), planned.create)
            log.info("revision recorded", key=key, revision=planned.number)
        if planned.renumber:
            held = planned.renumber.metadata
            guard = {"uid": held.uid, "resourceVersion": held.resource_version}
            body = {"metadata": guard, "revision": planned.number}
            self._write("PATCH", CONTROLLER_REVISIONS.path(namespace, held.name), body)
        for each in planned.surplus:
            self._delete(each)

    def _write(self, method: str, path: str, body: dict[str, Any]) -> None:
        answer = self._context.client.request(method, path, body=body, type=msgspec.Raw, timeout=CALL_TIMEOUT)
        self._revisions.wrote(answer)

    def _delete(self, revision: Revision) -> None:
        held = revision.metadata
        self._context.client.delete(
            CONTROLLER_REVISIONS,
            held.name,
            held.namespace,
            preconditions={"uid": held.uid},
            timeout=CALL_TIMEOUT,
        )
        self._revisions.forget(f"{held.namespace}/{held.name}", held.uid)
