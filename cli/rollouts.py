"""How far the rollout of an IngressDaemonSet is, what it waits for, and the patches that change its course."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from api.ingress_daemonset import PROMOTE, UPDATE_NOW
from api.ingress_daemonset.types import Metadata, resource, time_of
from cli.errors import Failure
from cli.output import Cell, Document, Part, Table, age, bad, duration, good, title, warning
from controllers.ingress_daemonset.children import applied_digest, revision_of_template, without_timestamp
from controllers.ingress_daemonset.revisions import Revision, of
from kube.types import Value

Raw = Mapping[str, Any]


class Course(Document, frozen=True):
    """A rollout in progress; *next_nodes* has five at most, *estimated_end* is None when it cannot be known.

    *window_opens_at* is None while nodes may begin.
    """

    from_revision: str
    to_revision: str
    started_at: datetime | None
    nodes: int
    nodes_left: int
    at_a_time: int
    wave: int
    waves: int
    next_nodes: tuple[str, ...]
    estimated_end: datetime | None
    window_opens_at: datetime | None = None


class Ended(Document, frozen=True):
    """A rollout that ended; *nodes* were updated."""

    from_revision: str
    to_revision: str
    started_at: datetime | None
    ended_at: datetime | None
    result: str
    nodes: int
    seconds: int


def course_of(status: Raw) -> Course | None:
    raw = status.get("rollout")
    if not raw:
        return None
    return Course(
        from_revision=raw.get("fromRevision", ""),
        to_revision=raw.get("toRevision", ""),
        started_at=time_of(raw.get("startedAt", "")),
        nodes=raw.get("nodes", 0),
        nodes_left=raw.get("nodesLeft", 0),
        at_a_time=raw.get("atATime", 0),
        wave=raw.get("wave", 0),
        waves=raw.get("waves", 0),
        next_nodes=tuple(raw.get("nextNodes") or ()),
        estimated_end=time_of(raw.get("estimatedEnd", "")),
        window_opens_at=time_of(raw.get("windowOpensAt", "")),
    )


def ended_rollouts(status: Raw) -> tuple[Ended, ...]:
    """The latest first."""
    return tuple(
        Ended(
            raw.get("fromRevision", ""),
            raw.get("toRevision", ""),
            time_of(raw.get("startedAt", "")),
            time_of(raw.get("endedAt", "")),
            raw.get("result", ""),
            raw.get("nodes", 0),
            raw.get("seconds", 0),
        )
        for raw in status.get("history") or ()
    )


def course_sentence(course: Course, now: datetime) -> str:
    """Where it is, and when it is expected to end."""
    return (
        f"wave {course.wave} of {course.waves}, {course.nodes_left} of {course.nodes} nodes left,"
        f" {course.at_a_time} at a time; {opening(course, now)}{expectation(course, now)}"
    )


def opening(course: Course, now: datetime) -> str:
    """Empty while nodes may begin."""
    if course.window_opens_at is None or course.window_opens_at <= now:
        return ""
    left = duration((course.window_opens_at - now).total_seconds())
    return f"its window opens in {left}, at {course.window_opens_at:%Y-%m-%d %H:%M} UTC; "


def expectation(course: Course, now: datetime) -> str:
    if course.estimated_end is None:
        return "its end is not known"
    if course.estimated_end <= now:
        return "it should have ended"
    left = duration((course.estimated_end - now).total_seconds())
    return f"about {left} left, until {course.estimated_end:%H:%M:%S} UTC"


def history_table(history: Sequence[Ended], now: datetime) -> Table:
    rows: list[Sequence[Cell]] = [
        (
            age(each.ended_at, now),
            _result_cell(each.result),
            str(each.nodes),
            duration(each.seconds),
            f"{each.from_revision or '?'} → {each.to_revision}",
        )
        for each in history
    ]
    return Table(("ENDED", "RESULT", "NODES", "TOOK", "TEMPLATE"), rows)


def _result_cell(result: str) -> Cell:
    if result in ("Halted", "RolledBack"):
        return bad(result)
    return good(result) if result == "Complete" else warning(result)


class Metric(Document, frozen=True):
    """What was measured of a canary; *value* is empty, and *message* says why, when that was not conclusive."""

    value: str
    message: str
    measured_at: datetime | None
    passing_since: datetime | None
    failures: int
    failed_at: datetime | None


class Canary(Document, frozen=True):
    """*complete_since* is None while its nodes are not as desired, *promoted_at* before it is promoted."""

    id: str
    nodes: int
    nodes_complete: int
    complete_since: datetime | None
    promoted_at: datetime | None
    metric: Metric | None = None


def canary_of(status: Raw) -> Canary | None:
    raw = status.get("canary")
    if not raw:
        return None
    return Canary(
        raw["id"],
        raw.get("nodes", 0),
        raw.get("nodesComplete", 0),
        time_of(raw.get("completeSince", "")),
        time_of(raw.get("promotedAt", "")),
        _metric(raw["metric"]) if "metric" in raw else None,
    )


def _metric(raw: Raw) -> Metric:
    measured, passing, failed = (
        time_of(raw.get(name, "")) for name in ("measuredAt", "passingSince", "failedAt")
    )
    return Metric(
        raw.get("value", ""), raw.get("message", ""), measured, passing, raw.get("failures", 0), failed
    )


def metric_sentence(metric: Metric, now: datetime) -> str:
    if metric.measured_at is None:
        return "Its metric has not been measured yet"
    measured = f"measured {duration((now - metric.measured_at).total_seconds())} ago"
    if metric.failed_at:
        return f"Its metric has failed: {metric.message}"
    if metric.message:
        return f"Its metric: {metric.message}; {measured}"
    since = metric.passing_since or metric.measured_at
    return f"Its metric: {metric.value}, good for {duration((now - since).total_seconds())}; {measured}"


def canary_sentence(canary: Canary, now: datetime) -> str:
    counted = f"{canary.nodes_complete} of {canary.nodes} nodes"
    if canary.promoted_at:
        return f"Canary: {canary.nodes} nodes, promoted {duration((now - canary.promoted_at).total_seconds())} ago"
    if canary.complete_since:
        return f"Canary: {counted}, complete for {duration((now - canary.complete_since).total_seconds())}"
    return f"Canary: {counted} complete"


def promote(stored: Stored) -> dict[str, Any] | None:
    """The patch; None when its canary is promoted already. Failure without a canary."""
    canary = canary_of(stored.status)
    if canary is None:
        raise Failure("it has no canary in progress", "drawbridge rollout get shows what it waits for")
    if canary.promoted_at or stored.metadata.annotations.get(PROMOTE) == canary.id:
        return None
    return {"metadata": {"annotations": {PROMOTE: canary.id}}}


class Waves(Document, frozen=True):
    """By the values of *label*; an empty value is of the nodes without it. *completed_at* is None but in a pause."""

    label: str
    current: str
    next: tuple[str, ...]
    completed_at: datetime | None


def waves_of(status: Raw) -> Waves | None:
    raw = status.get("waves")
    if not raw:
        return None
    completed = time_of(raw.get("completedAt", ""))
    return Waves(raw.get("label", ""), raw.get("current", ""), tuple(raw.get("next") or ()), completed)


def waves_sentence(waves: Waves) -> str:
    state = "complete" if waves.completed_at else "in progress"
    following = f", then {', '.join(map(_named, waves.next))}" if waves.next else ""
    return f"Waves by {waves.label}: {_named(waves.current)} is {state}{following}"


def update_now(stored: Stored) -> dict[str, Any] | None:
    """The patch; None when it does not wait for its window. Failure without one."""
    spec = stored.spec
    if not spec.get("updateStrategy", {}).get("rollingUpdate", {}).get("window"):
        raise Failure("it has no window", "drawbridge rollout get shows what it waits for")
    rolled_out = (stored.status.get("rollout") or {}).get("digest")
    digest = rolled_out or applied_digest(resource({"metadata": {}, "spec": spec}))
    if stored.metadata.annotations.get(UPDATE_NOW) == digest:
        return None
    return {"metadata": {"annotations": {UPDATE_NOW: digest}}}


def _named(value: str) -> str:
    return value or "nodes without it"


RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
"""As kubectl rollout restart writes it."""
COMPLETE, UNKNOWN = "Complete", "Unknown"
WRONG = ("Halted", "RollingBack", "RolledBack", "CanaryDegraded")


class Stored(Value, frozen=True):
    """An IngressDaemonSet: *spec* and *status* as they are."""

    metadata: Metadata = Metadata()
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}

    def condition(self, kind: str) -> dict[str, str]:
        found: Sequence[dict[str, str]] = self.status.get("conditions") or ()
        return next((each for each in found if each.get("type") == kind), {})


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
    waves: Waves | None = None
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
        history=ended_rollouts(status),
        canary=canary_of(status),
        waves=waves_of(status),
        spec_revision=revision_of_template(stored.spec.get("template") or {}),
        generation=stored.metadata.generation,
    )


def is_wrong(rollout: Rollout) -> bool:
    return rollout.state in WRONG or any(
        each.type == "Degraded" and each.status == "True" for each in rollout.conditions
    )


def rollouts_parts(found: Rollouts, now: datetime) -> Iterator[Part]:
    columns = ("NAMESPACE", "NAME", "STATE", "UPDATED", "READY", "DETACHED", "ENDS IN", "WAITING FOR")
    yield Table(columns, [_row(each, now) for each in found.rollouts], empty="no IngressDaemonSet")


def rollout_parts(rollout: Rollout, now: datetime) -> Iterator[Part]:
    """One rollout, in detail."""
    total = rollout.desired_nodes
    yield title(f"IngressDaemonSet {rollout.namespace}/{rollout.name}: ") + _state(rollout)
    yield (
        f"{rollout.updated_nodes} of {total} nodes updated, {rollout.ready_nodes} ready,"
        f" {rollout.detached_nodes} detached, {rollout.unavailable_nodes} unavailable,"
        f" {rollout.degraded_nodes} degraded"
    )
    if rollout.course:
        yield (
            f"Rollout {rollout.course.from_revision or '?'} → {rollout.course.to_revision}: "
            + course_sentence(rollout.course, now)
        )
        if rollout.course.next_nodes:
            yield f"Next: {', '.join(rollout.course.next_nodes)}"
    if rollout.canary:
        yield canary_sentence(rollout.canary, now)
        if rollout.canary.metric and not rollout.canary.promoted_at:
            yield metric_sentence(rollout.canary.metric, now)
    if rollout.waves:
        yield waves_sentence(rollout.waves)
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


KEPT = "drawbridge rollout history shows those that are kept; spec.revisionHistoryLimit says how many"


class Former(Document, frozen=True):
    """*current* is the one that the spec has; *template* is whole."""

    revision: int
    current: bool
    created_at: datetime | None
    images: tuple[str, ...]
    template: dict[str, Any]


class History(Document, frozen=True):
    """The latest one first."""

    namespace: str
    name: str
    revisions: tuple[Former, ...]


def kept_templates(stored: Stored, held: Sequence[Revision]) -> History:
    ours = of(stored.metadata.uid, held)
    shown = tuple(_former(each, is_current=_is_current(stored, each)) for each in reversed(ours))
    return History(stored.metadata.namespace, stored.metadata.name, shown)


def chosen(stored: Stored, held: Sequence[Revision], number: int | None) -> Revision:
    """The revision of this *number*, or the latest that the spec does not have; Failure without it."""
    former = [each for each in of(stored.metadata.uid, held) if not _is_current(stored, each)]
    if number is None and not former:
        raise Failure("no former template is kept", KEPT)
    found = former[-1:] if number is None else [each for each in former if each.revision == number]
    if not found:
        raise Failure(f"revision {number} is not kept, or is the current one", KEPT)
    return found[0]


def aborted(stored: Stored, held: Sequence[Revision]) -> Revision:
    """The revision that all nodes had last; Failure when no template is being rolled out."""
    rollout = rollout_of(stored)
    if not rollout.revision:
        raise Failure("no template has reached all nodes yet: there is none to return to", KEPT)
    if not rollout.is_of_template:
        raise Failure(
            "no template is being rolled out: the spec has the last one that all nodes had",
            "drawbridge rollout undo starts a rollout, to the former template",
        )
    found = [each for each in of(stored.metadata.uid, held) if each.digest == rollout.revision]
    if not found:
        raise Failure(f"the last template that all nodes had, {rollout.revision}, is not kept", KEPT)
    return found[0]


def undo(revision: Revision) -> list[dict[str, Any]]:
    """The JSON patch; a merge patch would keep fields that the former one lacks."""
    return [{"op": "replace", "path": "/spec/template", "value": revision.template}]


def _is_current(stored: Stored, revision: Revision) -> bool:
    return revision.template == without_timestamp(stored.spec.get("template") or {})


def history_parts(history: History, now: datetime) -> Iterator[Part]:
    columns = ("REVISION", "CURRENT", "AGE", "IMAGES")
    rows = [_former_row(each, now) for each in history.revisions]
    yield Table(columns, rows, empty="no revision is recorded yet: is there a leader?")


def images_of(revision: Revision) -> tuple[str, ...]:
    pod = revision.template.get("spec") or {}
    containers = (*(pod.get("initContainers") or ()), *(pod.get("containers") or ()))
    return tuple(each.get("image", "") for each in containers)


def _former_row(each: Former, now: datetime) -> list[Cell]:
    current: Cell = good("yes") if each.current else ""
    return [str(each.revision), current, age(each.created_at, now), ", ".join(each.images)]


def _former(each: Revision, *, is_current: bool) -> Former:
    created = each.metadata.creation_timestamp
    return Former(each.revision, is_current, created, images_of(each), each.template)
