"""What is told of IngressDaemonSets: Events at the turns of a rollout, and metrics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from prometheus_client import Counter, Gauge

from controllers.ingress_daemonset.actions import Action, Change, Create
from controllers.ingress_daemonset.drift import Altered
from controllers.ingress_daemonset.field_managers import Alteration
from controllers.ingress_daemonset.planner import Plan
from controllers.ingress_daemonset.retry_state import name_of
from controllers.ingress_daemonset.status import Unconfirmed
from kube.event_correlator import Type
from kube.event_recorder import EventRecorder, Regarding
from kube.types import ObjectMeta, key_of
from webhook.ingress_daemonset import API_VERSION, KIND
from webhook.ingress_daemonset.types import IngressDaemonSet

NODES = Gauge(
    "drawbridge_ingress_daemonset_nodes",
    "Nodes that are to have pods, that have the current template, all of whose pods are available, that are off the"
    " load balancer, that count against maxUnavailableNodes, and that are short of pods.",
    ["namespace", "name", "state"],
)
HALTED = Gauge(
    "drawbridge_ingress_daemonset_halted",
    "Whether pods with the new template did not become available in time.",
    ["namespace", "name"],
)
UNCONFIRMED = Gauge(
    "drawbridge_ingress_daemonset_unconfirmed",
    "Nodes that are detached, which neither a timestamp nor, after the graces, their health checkers confirm.",
    ["namespace", "name"],
)
ALTERED = Gauge(
    "drawbridge_ingress_daemonset_altered",
    "Deployments and health-check DaemonSets that another writer changes again and again, and that are left so.",
    ["namespace", "name"],
)
WRITES = Counter(
    "drawbridge_ingress_daemonset_writes",
    "Writes to objects other than status, by what came of them.",
    ["kind", "verb", "result"],
)

STATES = {
    f"{state}Nodes": state for state in ("desired", "updated", "ready", "detached", "unavailable", "degraded")
}
ENDED = {"Complete": "RolloutComplete", "Paused": "RolloutPaused", "Halted": "RolloutHalted"}
"""What is told when a rollout makes no more progress, by the reason."""
DRAINING = "Draining"
BAD = {each: each for each in ("ForeignDeployment", "ForeignObject", "PodsUnavailable")}
FAILED = {"create": "FailedCreate", "change": "FailedUpdate"}

News = tuple[str, str, Type]
"""The reason of an Event, its message, and its type."""


@dataclass
class Reporter:
    recorder: EventRecorder
    _reminded: dict[str, set[Unconfirmed]] = field(default_factory=dict)

    def wrote(self, action: Action, result: str) -> None:
        WRITES.labels(action.kind, verb_of(action), result).inc()

    def refused(self, owner: ObjectMeta, action: Action, error: Exception) -> None:
        verb = verb_of(action)
        message = f"The API server refused to {verb} {action.kind} {name_of(action)}: {error}"
        self._event(owner, FAILED.get(verb, "FailedDelete"), message, "Warning")

    def unchanged(self, owner: ObjectMeta, action: Action) -> None:
        message = (
            f"The API server accepts a change of {action.kind} {name_of(action)} and stores it unchanged:"
            " an admission policy undoes it; exempt the object from that policy"
        )
        self._event(owner, FAILED["change"], message, "Warning")

    def altered(self, owner: ObjectMeta, each: Altered, found: Alteration) -> None:
        message = (
            f"{each.kind} {each.name} was changed again in the same way after it was restored: {found}."
            " It is left so until it changes, or the IngressDaemonSet does"
        )
        self._event(owner, "TemplateAltered", message, "Warning")

    def show(self, resource: IngressDaemonSet, planned: Plan) -> None:
        """As metrics."""
        labels = (resource.metadata.namespace, resource.metadata.name)
        status = planned.status or {}
        for count, state in STATES.items():
            NODES.labels(*labels, state).set(status.get(count, 0))
        HALTED.labels(*labels).set(_reasons(status).get("Progressing") == "Halted")
        UNCONFIRMED.labels(*labels).set(len(planned.unconfirmed))
        ALTERED.labels(*labels).set(len(planned.altered))

    def tell(self, resource: IngressDaemonSet, status: dict[str, Any]) -> None:
        """What *status* has that the one of *resource* had not."""
        for reason, message, type_ in news(resource.status, status):
            self._event(resource.metadata, reason, message, type_)

    def wait(
        self, resource: IngressDaemonSet, unconfirmed: Sequence[Unconfirmed], reminder: float, now: datetime
    ) -> float | None:
        """Tell once of each that has waited for *reminder* seconds; seconds until the next has."""
        waiting = {replace(each, why=""): each for each in unconfirmed}
        due = {each for each in waiting if _due_at(each, reminder) <= now}
        key = key_of(resource.metadata)
        for each in sorted(due - self._reminded.get(key, set()), key=lambda each: each.node):
            since = f"{each.since:%H:%M:%S} UTC"
            message = f"Node {each.node} is to be off the load balancer since {since}: {waiting[each].why}"
            self._event(resource.metadata, "DetachmentUnconfirmed", message, "Warning")
        self._reminded[key] = due
        left = [(_due_at(each, reminder) - now).total_seconds() for each in waiting.keys() - due]
        return min(left, default=None)

    def forget(self, key: str) -> None:
        """It is gone."""
        self._reminded.pop(key, None)
        namespace, _, name = key.partition("/")
        for state in STATES.values():
            _drop(NODES, namespace, name, state)
        for each in (HALTED, UNCONFIRMED, ALTERED):
            _drop(each, namespace, name)

    def _event(self, about: ObjectMeta, reason: str, message: str, type: Type) -> None:  # noqa: A002
        regarding = Regarding(API_VERSION, KIND, about.name, about.namespace, about.uid)
        self.recorder.event(regarding, reason, message, type=type)


def _due_at(each: Unconfirmed, reminder: float) -> datetime:
    return each.since + timedelta(seconds=reminder if each.patience is None else each.patience)


def news(old: dict[str, Any], new: dict[str, Any]) -> Iterator[News]:
    """What of a status is worth an Event, once the old one is replaced."""
    before, after = _reasons(old), _reasons(new)
    said = {each["type"]: each["message"] for each in new.get("conditions") or ()}
    was, reason = before.get("Progressing", ""), after.get("Progressing", "")
    began = was in ("", *ENDED) and reason not in ENDED
    ended = was != reason and reason in ENDED and (was or reason != "Complete")
    if DRAINING in (was, reason) and (began or (ended and reason == "Complete")):
        yield ("NodesDraining" if began else "NodesAttached"), said["Progressing"], "Normal"
    elif began or ended:
        yield (
            ENDED.get(reason, "RolloutStarted"),
            said["Progressing"],
            "Warning" if reason == "Halted" else "Normal",
        )
    bad = after.get("Degraded", "")
    if bad in BAD and bad != before.get("Degraded"):
        yield BAD[bad], said["Degraded"], "Warning"


def verb_of(action: Action) -> str:
    if isinstance(action, Create):
        return "create"
    return "change" if isinstance(action, Change) else "delete"


def _reasons(status: dict[str, Any]) -> dict[str, str]:
    return {each["type"]: each["reason"] for each in status.get("conditions") or ()}


def _drop(metric: Gauge, *labels: str) -> None:
    with suppress(KeyError):
        metric.remove(*labels)
