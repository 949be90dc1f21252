"""How far a rollout is, and what it waits for: functions of an IngressDaemonSet's status."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from api.ingress_daemonset.types import Metadata, time_of
from cli.output import Cell, Document, Part, Table, age, bad, duration, good, title, warning
from cli.rollout import canary as canaries
from cli.rollout import waves as waves_by_label
from cli.rollout.canary import Canary
from cli.rollout.course import Course, Ended, course_of, history_of, history_table, sentence
from controllers.ingress_daemonset.desired import revision_of_template
from kube.types import Value

RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
"""As kubectl rollout restart writes it."""
COMPLETE, UNKNOWN = "Complete", "Unknown"
WRONG = ("Halted", "RollingBack", "RolledBack", "CanaryDegraded")


class Stored(Value, frozen=True):
    """An IngressDaemonSet: *spec* and *status* as they are."""

    metadata: Metadata = Metadata()
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


class Condition(Document, frozen=True):
    type: str
    status: str
    reason: str
    message: str
    since: datetime | None


class Waiting(Document, frozen=True):
    """A node that the rollout waits for, or is working on."""

    node: str
    phase: str
    reason: str
    since: datetime | None


class Rollout(Document, frozen=True):
    """*waiting_for* has ten nodes at most, *course* is None without a rollout in progress.

    *revision* is the last template that all nodes had, *spec_revision* that of the spec.
    """

    namespace: str
    name: str
    state: str
    paused: bool
    desired_nodes: int
    updated_nodes: int
    ready_nodes: int
    detached_nodes: int
    unavailable_nodes: int
    degraded_nodes: int
    conditions: tuple[Condition, ...]
    waiting_for: tuple[Waiting, ...]
    revision: str
    course: Course | None
    history: tuple[Ended, ...]
    canary: Canary | None = None
    waves: waves_by_label.Waves | None = None
    spec_revision: str = ""
    generation: int = 0

    @property
    def stamp(self) -> str:
        """What a person who decides on a change has seen: the spec, the canary, and to what an abort returns."""
        return f"{self.generation}/{self.revision}/{self.canary.id if self.canary else ''}"

    @property
    def is_of_template(self) -> bool:
        """Whether the spec has another template than all nodes had last; what else is done changes no template."""
        return bool(self.revision) and self.spec_revision != self.revision


class Rollouts(Document, frozen=True):
    rollouts: tuple[Rollout, ...]


def rollout_of(stored: Stored) -> Rollout:
    status = stored.status
    conditions = tuple(_condition(each) for each in status.get("conditions") or ())
    progressing = next((each.reason for each in conditions if each.type == "Progressing"), UNKNOWN)
    names = ("desired", "updated", "ready", "detached", "unavailable", "degraded")
    return Rollout(
        stored.metadata.namespace,
        stored.metadata.name,
        progressing,
        stored.spec.get("paused", False),
        **{f"{name}_nodes": status.get(f"{name}Nodes", 0) for name in names},
        conditions=conditions,
        waiting_for=tuple(_waiting(each) for each in status.get("waitingFor") or ()),
        revision=status.get("currentRevision", ""),
        course=course_of(status),
        history=history_of(status),
        canary=canaries.canary_of(status),
        waves=waves_by_label.waves_of(status),
        spec_revision=revision_of_template(stored.spec.get("template") or {}),
        generation=stored.metadata.generation,
    )


def is_wrong(rollout: Rollout) -> bool:
    return rollout.state in WRONG or any(
        each.type == "Degraded" and each.status == "True" for each in rollout.conditions
    )


def table_of(found: Rollouts, now: datetime) -> Iterator[Part]:
    columns = ("NAMESPACE", "NAME", "STATE", "UPDATED", "READY", "DETACHED", "ENDS IN", "WAITING FOR")
    yield Table(columns, [_row(each, now) for each in found.rollouts], empty="no IngressDaemonSet")


def parts_of(rollout: Rollout, now: datetime) -> Iterator[Part]:
    """One rollout, in detail."""
    total = rollout.desired_nodes
    yield title(f"IngressDaemonSet {rollout.namespace}/{rollout.name}: ") + _state(rollout)
    yield (
        f"{rollout.updated_nodes} of {total} nodes updated, {rollout.ready_nodes} ready,"
        f" {rollout.detached_nodes} detached, {rollout.unavailable_nodes} unavailable,"
        f" {rollout.degraded_nodes} degraded"
    )
    if rollout.course:
        yield f"Rollout {rollout.course.from_revision or '?'} → {rollout.course.to_revision}: " + sentence(
            rollout.course, now
        )
        if rollout.course.next_nodes:
            yield f"Next: {', '.join(rollout.course.next_nodes)}"
    if rollout.canary:
        yield canaries.sentence(rollout.canary, now)
        if rollout.canary.metric and not rollout.canary.promoted_at:
            yield canaries.metric_sentence(rollout.canary.metric, now)
    if rollout.waves:
        yield waves_by_label.sentence(rollout.waves)
    yield ""
    rows = [
        (each.type, each.status, each.reason, age(each.since, now), each.message)
        for each in rollout.conditions
    ]
    yield Table(
        ("CONDITION", "STATUS", "REASON", "FOR", "MESSAGE"), rows, empty="no status yet: is there a leader?"
    )
    if rollout.waiting_for:
        yield ""
        yield _nodes(rollout.waiting_for, now)
    if rollout.history:
        yield ""
        yield history_table(rollout.history, now)


def restart(now: datetime) -> dict[str, Any]:
    """The patch that gives all pods another template."""
    annotations = {RESTARTED_AT: now.strftime("%Y-%m-%dT%H:%M:%SZ")}
    return {"spec": {"template": {"metadata": {"annotations": annotations}}}}


def pause(stored: Stored, paused: bool) -> dict[str, Any] | None:
    """The patch; None when it is so already."""
    if stored.spec.get("paused", False) == paused:
        return None
    return {"spec": {"paused": paused}}


def promote(stored: Stored) -> dict[str, Any] | None:
    """The patch; None when its canary is promoted already. Failure without a canary."""
    patch = canaries.promote(stored.metadata.annotations, stored.status)
    return patch and {"metadata": patch}


def update_now(stored: Stored) -> dict[str, Any] | None:
    """The patch; None when it does not wait for its window. Failure without one."""
    patch = waves_by_label.update_now(stored.spec, stored.status, stored.metadata.annotations)
    return patch and {"metadata": patch}


def _condition(raw: dict[str, str]) -> Condition:
    since = time_of(raw.get("lastTransitionTime", ""))
    return Condition(raw["type"], raw.get("status", ""), raw.get("reason", ""), raw.get("message", ""), since)


def _waiting(raw: dict[str, str]) -> Waiting:
    return Waiting(raw["node"], raw.get("phase", ""), raw.get("reason", ""), time_of(raw.get("since", "")))


def _nodes(waiting: Sequence[Waiting], now: datetime) -> Table:
    rows: list[Sequence[Cell]] = [
        (each.node, each.phase, age(each.since, now), each.reason) for each in waiting
    ]
    return Table(("NODE", "PHASE", "FOR", "WAITS FOR"), rows)


def _row(each: Rollout, now: datetime) -> list[Cell]:
    first = f"{each.waiting_for[0].node}: {each.waiting_for[0].reason}" if each.waiting_for else ""
    updated, ready = (f"{count}/{each.desired_nodes}" for count in (each.updated_nodes, each.ready_nodes))
    detached, ends = str(each.detached_nodes), _ends(each, now)
    return [each.namespace, each.name, _state(each), updated, ready, detached, ends, first]


def _ends(each: Rollout, now: datetime) -> str:
    end = each.course.estimated_end if each.course else None
    return duration((end - now).total_seconds()) if end else ""


def _state(rollout: Rollout) -> Cell:
    if is_wrong(rollout):
        return bad(rollout.state)
    return good(rollout.state) if rollout.state == COMPLETE else warning(rollout.state)
