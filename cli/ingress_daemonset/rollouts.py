"""How far the rollout of an IngressDaemonSet is, what it waits for, and the patches that change its course."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import asdict

from api.ingress_daemonset import PROMOTE, UPDATE_NOW
from api.ingress_daemonset.status import (
    CanaryStatus,
    EndedRollout,
    MetricStatus,
    Progressing,
    Result,
    RolloutStatus,
    Status,
    WavesStatus,
    status_of,
)
from api.ingress_daemonset.types import resource
from cli.errors import Failure
from cli.output import (
    Cell,
    Document,
    Part,
    Report,
    Table,
    age,
    bad,
    count_of,
    duration,
    fields_of,
    good,
    left,
    title,
    warning,
)
from controllers.ingress_daemonset.children import revision_of_template, version_of
from kube.types import ObjectMeta, Value, rfc3339

RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
"""As kubectl rollout restart writes it."""
UNKNOWN = "Unknown"
STOPPED: Mapping[str, str] = {
    Progressing.HALTED: "is halted",
    Progressing.CANARY_DEGRADED: "waits for its canary, which fails",
    Progressing.ROLLING_BACK: "has failed, and nodes return to the former template",
    Progressing.ROLLED_BACK: "has failed, and nodes have the former template",
}
"""States in which a rollout does not go on by itself."""
Template = Mapping[str, Any]
"""Of pods."""
Patch = Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""A merge patch, or a JSON patch."""


class StoredResource(Value, frozen=True):
    """An IngressDaemonSet as it is stored, also when the controllers cannot read it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}

    @property
    def reported(self) -> Status:
        return status_of(self.status)


class Images(Document, frozen=True):
    """Of a container: *before* is empty for a new one, *after* for one that goes."""

    container: str
    before: str
    after: str


def images_between(before: Template, after: Template) -> tuple[Images, ...]:
    """Of each container, in the order of *after*."""
    old, new = images_of(before), images_of(after)
    return tuple(Images(name, old.get(name, ""), new.get(name, "")) for name in dict.fromkeys((*new, *old)))


def images_lines(images: Sequence[Images]) -> Iterator[str]:
    changed = [each for each in images if each.before != each.after]
    for each in changed:
        yield f"Image of {each.container}: {each.before or 'none'} → {each.after or 'none'}"
    if images and not changed:
        yield f"Images: {', '.join(each.after for each in images)}"


def images_of(template: Template) -> dict[str, str]:
    """By the names of containers."""
    pod = template.get("spec") or {}
    containers = (*(pod.get("initContainers") or ()), *(pod.get("containers") or ()))
    return {each.get("name", ""): each.get("image", "") for each in containers}


class Rollout(Status, Report, frozen=True, kw_only=True):
    """The status, and what of metadata and spec it is about.

    *images* are those of the template from which nodes are updated, and of that to which. *spec_revision* is the
    template of the spec. *promoting*: the controllers have yet to see that its canary is promoted.
    """

    namespace: str
    name: str
    state: str
    paused: bool
    promoting: bool
    spec_revision: str
    generation: int
    images: tuple[Images, ...]

    @property
    def content(self) -> Any:
        """What it is about comes first."""
        return {"namespace": self.namespace, "name": self.name, "state": self.state, **fields_of(self)}

    @property
    def stamp(self) -> str:
        """What a person who decides on a change has seen: the spec, the canary, and to what an abort returns."""
        return f"{self.generation}/{self.current_revision}/{self.canary.id if self.canary else ''}"

    @property
    def place(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def shown_by(self) -> str:
        """The command that shows it."""
        return f"drawbridge rollout get {self.name} -n {self.namespace}"

    @property
    def moves(self) -> bool:
        return self.state not in (Progressing.COMPLETE, UNKNOWN)

    @property
    def message(self) -> str:
        """Of the condition that says its state."""
        return self.condition("Progressing").message

    @property
    def is_observed(self) -> bool:
        """Whether the status is about the present spec, and a canary that is promoted."""
        return self.observed_generation >= self.generation and not self.promoting

    @property
    def waits_for(self) -> str:
        """The first of what it waits for, or nothing."""
        return next((f"{first.node}: {first.reason}" for first in self.waiting_for), "")

    @property
    def is_of_template(self) -> bool:
        """Whether the spec has another template than all nodes had last; what else is done changes no template."""
        return bool(self.current_revision) and self.spec_revision != self.current_revision

    @property
    def failure(self) -> str:
        """Why it does not go on by itself; empty while it does, and while it waits for a person."""
        # Nodes that return wait like others, and the state says for what.
        returns = self.rollback and self.state not in STOPPED and not self.paused
        what = STOPPED.get(Progressing.ROLLING_BACK if returns else self.state)
        return f"the rollout of {self.place} {what}: {self.message}" if what else ""

    @property
    def is_wrong(self) -> bool:
        return bool(self.failure) or self.condition("Degraded").status == "True"

    def parts(self, now: datetime) -> Iterator[Part]:
        total = self.desired_nodes
        yield title(f"IngressDaemonSet {self.place}: ") + _state(self)
        yield (
            f"{self.updated_nodes} of {total} nodes updated, {self.ready_nodes} ready,"
            f" {self.detached_nodes} detached, {self.unavailable_nodes} unavailable,"
            f" {self.degraded_nodes} degraded"
        )
        yield from images_lines(self.images)
        if self.rollout:
            yield (
                f"Rollout {self.rollout.from_revision or '?'} → {self.rollout.to_revision}: "
                + progress_sentence(self.rollout, now)
            )
            if self.rollout.next_nodes:
                yield f"Next: {', '.join(self.rollout.next_nodes)}"
        if self.canary:
            yield canary_sentence(self.canary, now)
            if self.canary.metric and not self.canary.promoted_at:
                yield metric_sentence(self.canary.metric, now)
        if self.waves:
            yield waves_sentence(self.waves)
        yield ""
        rows = [
            (each.type, each.status, each.reason, age(each.last_transition_time, now), each.message)
            for each in self.conditions
        ]
        yield Table(
            ("CONDITION", "STATUS", "REASON", "FOR", "MESSAGE"),
            rows,
            empty="no status yet: is there a leader?",
        )
        if self.waiting_for:
            nodes = [(each.node, each.phase, age(each.since, now), each.reason) for each in self.waiting_for]
            yield Table(("NODE", "PHASE", "FOR", "WAITS FOR"), nodes)
        if self.history:
            yield history_table(self.history, now)


class Rollouts(Report, frozen=True):
    rollouts: tuple[Rollout, ...]

    @property
    def is_wrong(self) -> bool:
        return any(each.is_wrong for each in self.rollouts)

    def parts(self, now: datetime) -> Iterator[Part]:
        columns = (
            "NAMESPACE",
            "NAME",
            "STATE",
            "UPDATED",
            "READY",
            "DETACHED",
            "ENDS IN",
            "WAITING FOR",
            "IMAGES",
        )
        rows = [
            (
                each.namespace,
                each.name,
                _state(each),
                f"{each.updated_nodes}/{each.desired_nodes}",
                f"{each.ready_nodes}/{each.desired_nodes}",
                str(each.detached_nodes),
                left(each.rollout.estimated_end if each.rollout else None, now),
                each.waits_for,
                ", ".join(image.after for image in each.images),
            )
            for each in self.rollouts
        ]
        yield Table(columns, rows, empty="no IngressDaemonSet", wide=1)


def _state(rollout: Rollout) -> Cell:
    if rollout.is_wrong:
        return bad(rollout.state)
    return good(rollout.state) if rollout.state == Progressing.COMPLETE else warning(rollout.state)


def rollout_of(stored: StoredResource, former: Mapping[str, Template] | None = None) -> Rollout:
    """*former* templates are by their revisions."""
    status, template = stored.reported, stored.spec.get("template") or {}
    known, course, canary = former or {}, status.rollout, status.canary
    by_hand = stored.metadata.annotations.get(PROMOTE)
    before = known.get(course.from_revision if course else status.current_revision, template)
    after = known.get(course.to_revision, template) if course else template
    return Rollout(
        **asdict(status),
        namespace=stored.metadata.namespace,
        name=stored.metadata.name,
        state=status.condition("Progressing").reason or UNKNOWN,
        paused=stored.spec.get("paused", False),
        promoting=canary is not None and canary.promoted_at is None and canary.id == by_hand,
        spec_revision=revision_of_template(template),
        generation=stored.metadata.generation,
        images=images_between(before, after),
    )


def restarted(template: Template, now: datetime) -> dict[str, Any]:
    """Another template, for the same pods."""
    metadata = template.get("metadata") or {}
    annotations = {**(metadata.get("annotations") or {}), RESTARTED_AT: rfc3339(now)}
    return {**template, "metadata": {**metadata, "annotations": annotations}}


def change(stored: StoredResource, field: str, value: object) -> Patch:
    """The JSON patch of a field of the spec, which the API server refuses once the spec is not as *stored*."""
    metadata = stored.metadata
    seen = {"/metadata/uid": metadata.uid, "/metadata/generation": metadata.generation}
    tests = ({"op": "test", "path": path, "value": each} for path, each in seen.items())
    return [*tests, {"op": "add", "path": f"/spec/{field}", "value": value}]


def pause(stored: StoredResource, paused: bool) -> Patch | None:
    """The patch; None when it is so already."""
    return None if stored.spec.get("paused", False) == paused else change(stored, "paused", paused)


def promote(stored: StoredResource) -> Patch | None:
    """The patch; None when its canary is promoted already. Failure without a canary."""
    canary, template = stored.reported.canary, stored.spec.get("template") or {}
    # That of the template before is there until the controllers have seen the present one.
    if canary is None or canary.revision != revision_of_template(template):
        raise Failure("it has no canary in progress", "drawbridge rollout get shows what it waits for")
    if canary.promoted_at or stored.metadata.annotations.get(PROMOTE) == canary.id:
        return None
    return {"metadata": {"annotations": {PROMOTE: canary.id}}}


def update_now(stored: StoredResource) -> Patch | None:
    """The patch; None when it does not wait for its window. Failure without one."""
    spec = stored.spec
    if not spec.get("updateStrategy", {}).get("rollingUpdate", {}).get("window"):
        raise Failure("it has no window", "drawbridge rollout get shows what it waits for")
    rolled_out = stored.reported.rollout
    is_observed = stored.reported.observed_generation >= stored.metadata.generation
    known = rolled_out.digest if rolled_out and is_observed else ""
    digest = known or version_of(resource({"metadata": {}, "spec": spec})).all
    if stored.metadata.annotations.get(UPDATE_NOW) == digest:
        return None
    return {"metadata": {"annotations": {UPDATE_NOW: digest}}}


def progress_sentence(course: RolloutStatus, now: datetime) -> str:
    """Where it is, when nodes may begin if they may not now, and when it is expected to end."""
    opening, opens, ends = "", course.window_opens_at, course.estimated_end
    if opens and opens > now:
        opening = f"its window opens in {left(opens, now)}, at {opens:%Y-%m-%d %H:%M} UTC; "
    expectation = "its end is not known"
    if ends:
        in_time = f"about {left(ends, now)} left, until {ends:%H:%M:%S} UTC"
        expectation = in_time if ends > now else "it should have ended"
    return (
        f"wave {course.wave} of {course.waves}, {course.nodes_left} of {course.nodes} nodes left,"
        f" {course.at_a_time} at a time; {opening}{expectation}"
    )


def history_table(history: Sequence[EndedRollout], now: datetime) -> Table:
    shown = {Result.HALTED.value: bad, Result.ROLLED_BACK.value: bad, Result.COMPLETE.value: good}
    rows: list[Sequence[Cell]] = [
        (
            age(each.ended_at, now),
            shown.get(each.result, warning)(each.result),
            str(each.nodes),
            duration(each.seconds),
            f"{each.from_revision or '?'} → {each.to_revision}",
        )
        for each in history
    ]
    return Table(("ENDED", "RESULT", "NODES", "TOOK", "TEMPLATE"), rows)


def metric_sentence(metric: MetricStatus, now: datetime) -> str:
    if metric.measured_at is None:
        return "Its metric has not been measured yet"
    measured = f"measured {age(metric.measured_at, now)} ago"
    if metric.failed_at:
        return f"Its metric has failed: {metric.message}"
    if metric.message:
        return f"Its metric: {metric.message}; {measured}"
    since = metric.passing_since or metric.measured_at
    return f"Its metric: {metric.value}, good for {age(since, now)}; {measured}"


def canary_sentence(canary: CanaryStatus, now: datetime) -> str:
    counted = f"{canary.nodes_complete} of {canary.nodes} nodes"
    if canary.promoted_at:
        return f"Canary: {count_of(canary.nodes, 'node')}, promoted {age(canary.promoted_at, now)} ago"
    if canary.complete_since:
        return f"Canary: {counted}, complete for {age(canary.complete_since, now)}"
    return f"Canary: {counted} complete"


def waves_sentence(waves: WavesStatus) -> str:
    state = "complete" if waves.completed_at else "in progress"
    current, *following = (each or "nodes without it" for each in (waves.current or "", *waves.next))
    then = f", then {', '.join(following)}" if following else ""
    return f"Waves by {waves.label}: {current} is {state}{then}"
