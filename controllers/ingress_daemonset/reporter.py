"""Events and metrics of IngressDaemonSets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from prometheus_client import Counter, Gauge

from api.ingress_daemonset import API_VERSION, KIND, PROMOTE
from api.ingress_daemonset.status import CanaryStatus, Degraded, Promotion, Status
from api.ingress_daemonset.types import IngressDaemonSet
from controllers.ingress_daemonset.children import Action, Change, Create, Delete
from controllers.ingress_daemonset.drift import Alteration, Altered
from controllers.ingress_daemonset.planner import Plan
from controllers.ingress_daemonset.status import Unconfirmed, Undrained
from kube.event_recorder import EventRecorder, Regarding, Type
from kube.types import ObjectMeta, key_of

NODES = Gauge(
    "drawbridge_ingress_daemonset_nodes",
    "Nodes that match, have the current template, have all of their pods available, are detached from the load"
    " balancer, count against maxUnavailableNodes, and have lost pods.",
    ["namespace", "name", "state"],
)
HALTED = Gauge(
    "drawbridge_ingress_daemonset_halted",
    "Whether pods with the new template did not become available in time.",
    ["namespace", "name"],
)
UNCONFIRMED = Gauge(
    "drawbridge_ingress_daemonset_unconfirmed",
    "Detached nodes that neither a timestamp nor, after the graces, their health checkers confirm.",
    ["namespace", "name"],
)
CANARY_PAUSED = Gauge(
    "drawbridge_ingress_daemonset_canary_paused",
    "Whether a rollout waits after its canary.",
    ["namespace", "name"],
)
CANARY_UNMEASURED = Gauge(
    "drawbridge_ingress_daemonset_canary_unmeasured",
    "Whether the last query about a canary had no single value.",
    ["namespace", "name"],
)
WAITING = Gauge(
    "drawbridge_ingress_daemonset_waiting",
    "Whether a rollout waits for the pause between waves, or for its window.",
    ["namespace", "name", "waiting_for"],
)
ROLLED_BACK = Gauge(
    "drawbridge_ingress_daemonset_rolled_back",
    "Whether the template of the spec has failed, so that nodes have the one before, or return to it.",
    ["namespace", "name"],
)
ALTERED = Gauge(
    "drawbridge_ingress_daemonset_altered",
    "Deployments and health-check DaemonSets that another writer changes repeatedly, and that are left as they are.",
    ["namespace", "name"],
)
CONNECTIONS = Gauge(
    "drawbridge_ingress_daemonset_open_connections",
    "Open connections of detached nodes whose pods wait for their end, where they are counted.",
    ["namespace", "name"],
)
CONNECTION_TIMEOUTS = Counter(
    "drawbridge_ingress_daemonset_connection_timeouts",
    "Nodes whose connections did not end in time, or could not be counted.",
    ["reason"],
)
for _reason in ("open", "unknown"):
    CONNECTION_TIMEOUTS.labels(_reason)
WRITES = Counter(
    "drawbridge_ingress_daemonset_writes",
    "Writes to objects other than status, by result.",
    ["kind", "verb", "result"],
)

GAUGES = (
    NODES,
    HALTED,
    UNCONFIRMED,
    CANARY_PAUSED,
    CANARY_UNMEASURED,
    WAITING,
    ROLLED_BACK,
    ALTERED,
    CONNECTIONS,
)
"""Of one IngressDaemonSet each."""

STATES = ("desired", "updated", "ready", "detached", "unavailable", "degraded")
ENDED = {
    "Complete": "RolloutComplete",
    "Paused": "RolloutPaused",
    "Halted": "RolloutHalted",
    "RolledBack": "RollbackComplete",
}
"""Event reasons for a rollout that makes no more progress, by the reason of Progressing."""
DRAINING = "Draining"
CANARY: dict[str, Type] = {"CanaryPaused": "Normal", "CanaryDegraded": "Warning"}
"""Reasons of Progressing, and of Events, while only the nodes of the canary have the new template."""
PACED = {"WavePaused": "pause", "WaitingForWindow": "window"}
"""Reasons of Progressing, and of Events, while nodes wait as the spec says; what they wait for, as a label."""
WAYS: dict[str, str] = {Promotion.BY_TIME: "after its pause", Promotion.BY_METRIC: "by its metric"}
BAD = (Degraded.UNMANAGED_DEPLOYMENT, Degraded.UNMANAGED_OBJECT, Degraded.PODS_UNAVAILABLE)
"""Reasons of Degraded that are those of Events, too."""
VERBS = {
    Create: ("create", "FailedCreate"),
    Change: ("change", "FailedUpdate"),
    Delete: ("delete", "FailedDelete"),
}
"""The label of metrics, and the reason of an Event, for an action."""

News = tuple[str, str, Type]
"""The reason, the message and the type of an Event."""


class Reporter:
    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._explained: dict[str, set[str]] = {}
        self._said: dict[str, dict[tuple[object, ...], object]] = {}

    def wrote(self, action: Action, result: str) -> None:
        WRITES.labels(action.target.kind, VERBS[type(action)][0], result).inc()

    def refused(self, owner: ObjectMeta, action: Action, error: Exception) -> None:
        verb, reason = VERBS[type(action)]
        message = f"The API server refused to {verb} {_named(action)}: {error}"
        self._event(owner, reason, message, "Warning")

    def unchanged(self, owner: ObjectMeta, action: Action) -> None:
        message = (
            f"The API server accepts a change of {_named(action)} and stores it unchanged:"
            " an admission policy undoes it; exempt the object from that policy"
        )
        self._event(owner, VERBS[Change][1], message, "Warning")

    def altered(
        self, owner: ObjectMeta, altered: Sequence[Altered], explain: Callable[[Altered], Alteration | None]
    ) -> None:
        """One Event per alteration, which may be the same on many nodes; *explain* gives None to try again later."""
        known, explained = self._explained.get(key_of(owner), set()), set()
        for each in {each.digest: each for each in altered}.values():
            if each.digest in known:
                explained.add(each.digest)
            elif found := explain(each):
                explained.add(each.digest)
                message = (
                    f"{each.kind} {each.name} was changed again in the same way after it was restored: {found}."
                    " It is left as it is until it changes, or the IngressDaemonSet does"
                )
                self._event(owner, "TemplateAltered", message, "Warning")
        self._explained[key_of(owner)] = explained

    def measure(self, resource: IngressDaemonSet, planned: Plan) -> None:
        labels = (resource.metadata.namespace, resource.metadata.name)
        status = planned.status or Status()
        for state in STATES:
            NODES.labels(*labels, state).set(getattr(status, f"{state}_nodes"))
        progressing = status.condition("Progressing").reason
        HALTED.labels(*labels).set(progressing == "Halted")
        CANARY_PAUSED.labels(*labels).set(progressing in CANARY)
        CANARY_UNMEASURED.labels(*labels).set(progressing in CANARY and _is_unmeasured(status))
        for reason, waiting_for in PACED.items():
            WAITING.labels(*labels, waiting_for).set(progressing == reason)
        ROLLED_BACK.labels(*labels).set(status.rollback is not None)
        UNCONFIRMED.labels(*labels).set(len(planned.unconfirmed))
        counts = (each.connections for each in planned.rollouts if each.is_detaching)
        CONNECTIONS.labels(*labels).set(sum(each or 0 for each in counts))
        ALTERED.labels(*labels).set(len(planned.altered))
        self._forget_nodes(key_of(resource.metadata), planned)

    def report(self, resource: IngressDaemonSet, status: Status) -> None:
        promoted_by_hand = resource.metadata.annotations.get(PROMOTE, "")
        for reason, message, type_ in news(resource.stored, status, promoted_by_hand):
            self._event(resource.metadata, reason, message, type_)

    def remind(
        self, owner: ObjectMeta, unconfirmed: Sequence[Unconfirmed], patience: float, now: datetime
    ) -> float | None:
        """One Event for each that has waited for *patience* seconds; seconds until the next is due."""
        waits = []
        for each in sorted(unconfirmed, key=lambda each: each.node):
            wait = patience if each.patience is None else each.patience
            if (left := wait - (now - each.since).total_seconds()) > 0:
                waits.append(left)
            elif self._is_news(owner, "unconfirmed", each.node, each.since):
                message = (
                    f"Node {each.node} has waited since {each.since:%H:%M:%S} UTC to be detached: {each.why}"
                )
                self._event(owner, "DetachmentUnconfirmed", message, "Warning")
        return min(waits, default=None)

    def undrained(self, owner: ObjectMeta, found: Sequence[Undrained]) -> None:
        """One Event for each detachment."""
        for each in found:
            if self._is_news(owner, "undrained", each.node, each.since):
                CONNECTION_TIMEOUTS.labels("open" if each.known else "unknown").inc()
                message = f"The pods of node {each.node} are replaced after timeoutSeconds: {each.why}"
                self._event(owner, "ConnectionsOpen", message, "Warning")

    def forget(self, key: str) -> None:
        self._explained.pop(key, None)
        self._said.pop(key, None)
        for gauge in GAUGES:
            gauge.remove_by_labels(dict(zip(("namespace", "name"), key.split("/", 1), strict=True)))

    def _forget_nodes(self, key: str, planned: Plan) -> None:
        """Those that have left: autoscalers make new names all the time."""
        if said := self._said.get(key):
            names = {each.node.name for each in planned.rollouts}
            names |= {each.node for each in planned.unconfirmed}
            self._said[key] = {about: what for about, what in said.items() if about[-1] in names}

    def _is_news(self, owner: ObjectMeta, *about: object) -> bool:
        """Whether the last of *about* is another than it was when the others were the same."""
        known, (*of, what) = self._said.setdefault(key_of(owner), {}), about
        before, known[tuple(of)] = known.get(tuple(of)), what
        return before != what

    def _event(self, about: ObjectMeta, reason: str, message: str, type: Type) -> None:  # noqa: A002
        regarding = Regarding(API_VERSION, KIND, about.name, about.namespace, about.uid)
        self._recorder.event(regarding, reason, message, type=type)


def news(old: Status, new: Status, promoted_by_hand: str = "") -> Iterator[News]:
    """The Events for a status that replaces the *old* one; the canary with the id *promoted_by_hand* was so."""
    was, (reason, message) = old.condition("Progressing").reason, _said(new, "Progressing")
    began = was in ("", *ENDED) and reason not in ENDED
    ended = was != reason and reason in ENDED and (was or reason != "Complete")
    # Nodes that join are waited for like others, and are no rollout.
    rolled_out = old.rollout is not None and new.rollout is None
    if DRAINING in (was, reason) and (began or (ended and reason == "Complete")):
        yield ("NodesDraining" if began else "NodesAttached"), message, "Normal"
    elif ended and (rolled_out or was in ENDED or reason != "Complete"):
        type_: Type = "Warning" if reason == "Halted" else "Normal"
        yield ENDED[reason], message, type_
    elif new.rollback is None and (rolled_out or (old.rollout is None and new.rollout is not None)):
        yield ("RolloutComplete" if rolled_out else "RolloutStarted"), message, "Normal"
    if reason != was and reason in CANARY:
        yield reason, message, CANARY[reason]
    if reason != was and reason in PACED:
        yield reason, message, "Normal"
    if _is_unmeasured(new) and not _is_unmeasured(old):
        yield "CanaryUnmeasured", message, "Warning"
    yield from _promoted(old.canary, new.canary, promoted_by_hand)
    if new.rollback and new.rollback != old.rollback:
        said = (
            f"{new.rollback.reason}: nodes return from template {new.rollback.revision} to {new.rollback.to_revision}."
            " The spec is left as it is, and its template is not tried again before it changes"
        )
        yield "RollbackStarted", said, "Warning"
    bad, message = _said(new, "Degraded")
    if bad in BAD and bad != old.condition("Degraded").reason:
        yield bad, message, "Warning"


def _said(status: Status, kind: str) -> tuple[str, str]:
    condition = status.condition(kind)
    return condition.reason, condition.message


def _promoted(old: CanaryStatus | None, new: CanaryStatus | None, by_hand: str) -> Iterator[News]:
    """The other nodes may be done before it is stored that the canary was promoted: its end says so, too."""
    was_promoted = old is not None and old.promoted_at is not None
    is_over = old is not None and new is None and old.id == by_hand
    if was_promoted or not (is_over or (new and new.promoted_at)):
        return
    found = new or old or CanaryStatus()
    way = WAYS.get(new.promoted_by if new else "", "by hand")
    yield (
        "CanaryPromoted",
        f"the canary of {found.nodes} nodes was promoted {way}; the others follow",
        "Normal",
    )


def _is_unmeasured(status: Status) -> bool:
    """Whether the metric of a canary is not known."""
    metric = status.canary.metric if status.canary else None
    return metric is not None and metric.unknown_since is not None


def _named(action: Action) -> str:
    return f"{action.target.kind} {action.target.name}"
