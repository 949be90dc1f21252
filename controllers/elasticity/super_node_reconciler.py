"""Apply the plan for super nodes, each step only to the version of the node that it was decided on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

import structlog

from controllers.elasticity.super_nodes import Do, Note, Step, leftovers, may_go, plan
from controllers.manager import Context
from kube.client import Resource
from kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from kube.event_recorder import Regarding
from kube.leader_election import LeadershipLost
from kube.types import Node, Pod
from settings import ElasticitySettings
from webhook.elasticity import is_daemon_pod

NODES = Resource("", "v1", "nodes", namespaced=False)
PODS = Resource("", "v1", "pods")

log = structlog.stdlib.get_logger(__name__)


class SuperNodeReconciler:
    """*nodes* are read from the informer."""

    def __init__(
        self,
        context: Context,
        nodes: Callable[[], Iterable[Node]],
        settings: Callable[[], ElasticitySettings],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._client, self._recorder, self._check = context.client, context.recorder, context.check
        self._nodes, self._settings, self._now = nodes, settings, now
        self._reported: dict[str, Note] = {}

    def reconcile(self) -> None:
        """Take each step that is due; one that fails stops no other, and is tried again next time. LeadershipLost."""
        nodes, settings, now = list(self._nodes()), self._settings(), self._now()
        leaving = [node.metadata.name for node in leftovers(nodes, settings) if may_go(node, now)]
        occupied = {name: self._is_occupied(name) for name in leaving}
        for step in plan(nodes, occupied, settings, now):
            self._try(step)

    def _is_occupied(self, name: str) -> bool:
        """As the API server has it now, and while it cannot be read; pods of DaemonSets go with their node."""
        try:
            pods = self._client.list(PODS, type=Pod, field_selector=f"spec.nodeName={name}").items
        except KubeError as error:
            log.warning("pods of super node not read", node=name, error=str(error))
            return True
        return not all(is_daemon_pod(pod.metadata) for pod in pods)

    def _try(self, step: Step) -> None:
        try:
            self._report(step, self._taken(step))
        except (AlreadyExists, Conflict, NotFound):
            log.info("super node has changed", node=step.name, action=step.do)
        except KubeError as error:
            log.warning("super node not written", node=step.name, action=step.do, error=str(error))
        except LeadershipLost:
            raise
        except Exception:
            log.exception("super node not written", node=step.name, action=step.do)

    def _taken(self, step: Step) -> Node | None:
        if step.do is Do.NOTHING:
            return step.node
        self._check()
        if step.node is None:
            return self._client.create(NODES, step.body, type=Node)
        seen = step.node.metadata
        if step.do is Do.CHANGE:
            guarded = {"uid": seen.uid, "resourceVersion": seen.resource_version}
            patch = {**step.body, "metadata": {**step.body.get("metadata", {}), **guarded}}
            return self._client.patch(NODES, step.name, patch, type=Node)
        preconditions = {"uid": seen.uid, "resourceVersion": seen.resource_version}
        self._client.delete(NODES, step.name, preconditions=preconditions)
        return step.node

    def _report(self, step: Step, node: Node | None) -> None:
        """An Event, once where nothing was done."""
        note = step.note
        if node is None or (step.do is Do.NOTHING and self._reported.get(node.metadata.uid) == note):
            return
        self._reported[node.metadata.uid] = note
        log.info(
            "super node reconciled", node=step.name, action=step.do, reason=note.reason, message=note.message
        )
        self._recorder.event(Regarding.of(node, NODES, "Node"), note.reason, note.message, type=note.type)
