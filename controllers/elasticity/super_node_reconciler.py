"""What is to be done about super nodes is done by the leader, on nothing that has changed meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from datetime import datetime

import structlog

from controllers.elasticity.super_nodes import Do, Note, Step, leftovers, may_go, plan
from controllers.workqueue import run_turns
from kube.client import Client, Resource
from kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from kube.event_recorder import EventRecorder, Regarding
from kube.leader_election import LeadershipLost
from kube.types import Node, Pod
from settings import ElasticitySettings
from webhook.elasticity import is_daemon_pod

NODES = Resource("", "v1", "nodes", namespaced=False)
PODS = Resource("", "v1", "pods")
PERIOD = 5.0

log = structlog.stdlib.get_logger(__name__)


class Registrar:
    """*nodes* are those last heard of; *check* runs before each write, and raises when others may lead."""

    def __init__(
        self,
        client: Client,
        nodes: Callable[[], Iterable[Node]],
        recorder: EventRecorder,
        settings: Callable[[], ElasticitySettings],
        *,
        check: Callable[[], None],
        now: Callable[[], datetime],
    ) -> None:
        self._client, self._nodes, self._recorder, self._settings = client, nodes, recorder, settings
        self._check, self._now = check, now
        self._told: dict[str, Note] = {}

    def run(self, stop: threading.Event) -> None:
        """A turn every few seconds until *stop*; LeadershipLost."""
        run_turns(self.turn, stop, PERIOD, "super nodes")

    def turn(self) -> None:
        """Take each step that is due; one that fails stops no other, and is taken in a later turn."""
        nodes, settings, now = list(self._nodes()), self._settings(), self._now()
        leaving = [node.metadata.name for node in leftovers(nodes, settings) if may_go(node, now)]
        occupied = {name: self._is_occupied(name) for name in leaving}
        for step in plan(nodes, occupied, settings, now):
            self._try(step)

    def _is_occupied(self, name: str) -> bool:
        """By the API server's own word, and while it says nothing; pods of DaemonSets go with their node."""
        try:
            pods = self._client.list(PODS, type=Pod, field_selector=f"spec.nodeName={name}").items
        except KubeError as error:
            log.warning("the pods of a super node were not read", node=name, error=str(error))
            return True
        return not all(is_daemon_pod(pod.metadata) for pod in pods)

    def _try(self, step: Step) -> None:
        try:
            self._tell(step, self._taken(step))
        except (AlreadyExists, Conflict, NotFound):
            log.info("a super node is not as it was last seen", node=step.name, step=step.do)
        except KubeError as error:
            log.warning("a step for a super node failed", node=step.name, step=step.do, error=str(error))
        except LeadershipLost:
            raise
        except Exception:
            log.exception("a step for a super node failed", node=step.name, step=step.do)

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

    def _tell(self, step: Step, node: Node | None) -> None:
        """Once, where nothing was done."""
        note = step.note
        if node is None or (step.do is Do.NOTHING and self._told.get(node.metadata.uid) == note):
            return
        self._told[node.metadata.uid] = note
        log.info("super node", node=step.name, step=step.do, reason=note.reason, message=note.message)
        self._recorder.event(Regarding.of(node, NODES, "Node"), note.reason, note.message, type=note.type)
