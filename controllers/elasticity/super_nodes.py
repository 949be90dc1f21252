"""Keep one super node per configured subnet; never remove one that has pods."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Literal

import structlog

from api.elasticity import is_daemon_pod
from controllers.elasticity.super_node_manifest import (
    MANAGED_BY,
    MANAGER,
    RETIRED_AT,
    difference,
    manifest,
    name_of,
)
from controllers.manager import Context
from kube.client import Resource
from kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from kube.event_recorder import Regarding
from kube.leader_election import LeadershipLost
from kube.types import Node, Pod, is_super
from runtime import utc_now
from settings import ElasticitySettings

NODES = Resource("", "v1", "nodes", namespaced=False)
PODS = Resource("", "v1", "pods")

SETTLE = timedelta(seconds=30)
"""Longer than a scheduler needs to carry out what it decided before it saw the node closed."""


log = structlog.stdlib.get_logger(__name__)


class Do(StrEnum):
    CREATE = "create"
    CHANGE = "change"
    REMOVE = "remove"
    NOTHING = "nothing"


@dataclass(frozen=True)
class Note:
    """The Event on the node."""

    reason: str
    message: str
    type: Literal["Normal", "Warning"] = "Normal"


@dataclass(frozen=True)
class Step:
    """*node* is as it was seen, None when there was none; *body* is the whole of it, or a merge patch."""

    do: Do
    name: str
    node: Node | None
    note: Note
    body: Mapping[str, Any] = field(default_factory=dict)


def is_ours(node: Node) -> bool:
    return node.metadata.labels.get(MANAGED_BY) == MANAGER


def leftovers(nodes: Iterable[Node], settings: ElasticitySettings) -> list[Node]:
    """Super nodes of ours whose subnets are not configured any more."""
    wanted = {name_of(subnet) for subnet in settings.subnets}
    return [
        node
        for node in nodes
        if is_ours(node) and _stays(node) and is_super(node) and node.metadata.name not in wanted
    ]


def may_go(node: Node, now: datetime) -> bool:
    """Whether a leftover has been closed for so long that no pod is on its way to it."""
    return now - SETTLE >= (_retired_at(node) or now)


def plan(
    nodes: Iterable[Node], occupied: Mapping[str, bool], settings: ElasticitySettings, now: datetime
) -> list[Step]:
    """*occupied* says by name whether a leftover that may go has pods."""
    nodes = list(nodes)
    by_name = {node.metadata.name: node for node in nodes}
    kept = [_kept(by_name.get(name_of(subnet)), manifest(subnet, settings)) for subnet in settings.subnets]
    left = [_left(node, occupied, now) for node in leftovers(nodes, settings)]
    return [step for step in (*kept, *left) if step]


def _kept(node: Node | None, wanted: Mapping[str, Any]) -> Step | None:
    name = wanted["metadata"]["name"]
    if node is None:
        note = Note("SuperNodeRegistered", f"The super node of {name.removeprefix('eklet-')} is registered")
        return Step(Do.CREATE, name, None, note, wanted)
    if not _stays(node):
        return None
    if not is_ours(node):
        note = Note(
            "SuperNodeNotOurs",
            f"Not managed by Drawbridge. To adopt it, label it {MANAGED_BY}={MANAGER}",
            "Warning",
        )
        return Step(Do.NOTHING, name, node, note)
    if not (change := difference(node, wanted)):
        return None
    return Step(
        Do.CHANGE, name, node, Note("SuperNodeRestored", f"Set as configured: {_keys(change)}"), change
    )


def _keys(change: Mapping[str, Any]) -> str:
    parts = (*change.get("metadata", {}).values(), change.get("spec", {}))
    return ", ".join(key for part in parts for key in part)


def _left(node: Node, occupied: Mapping[str, bool], now: datetime) -> Step | None:
    name = node.metadata.name
    if _retired_at(node) is None:
        note = Note(
            "SuperNodeRetired", "Its subnet is no longer configured: the node is removed when it has no pods"
        )
        closed = {"metadata": {"annotations": {RETIRED_AT: now.isoformat()}}, "spec": {"unschedulable": True}}
        return Step(Do.CHANGE, name, node, note, closed)
    if not may_go(node, now) or occupied.get(name, True):
        return None
    return Step(
        Do.REMOVE, name, node, Note("SuperNodeRemoved", "Its subnet is not configured, and it was empty")
    )


def _retired_at(node: Node) -> datetime | None:
    """None, too, for a value that is not a time with a zone: the node is retired once more."""
    try:
        at = datetime.fromisoformat(node.metadata.annotations.get(RETIRED_AT, ""))
    except ValueError:
        return None
    return at if at.tzinfo else None


def _stays(node: Node) -> bool:
    return node.metadata.deletion_timestamp is None


class SuperNodeReconciler:
    """*nodes* are read from the informer."""

    def __init__(
        self,
        context: Context,
        nodes: Callable[[], Iterable[Node]],
        settings: Callable[[], ElasticitySettings],
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._client, self._recorder = context.client, context.recorder
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
        if step.node is None:
            return self._client.create(NODES, step.body, type=Node)
        seen = step.node.metadata
        version = {"uid": seen.uid, "resourceVersion": seen.resource_version}
        if step.do is Do.CHANGE:
            patch = {**step.body, "metadata": {**step.body.get("metadata", {}), **version}}
            return self._client.patch(NODES, step.name, patch, type=Node)
        self._client.delete(NODES, step.name, preconditions=version)
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
