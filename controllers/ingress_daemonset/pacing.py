"""What holds a rollout up beside its budget: nodes that fail, the canary, waves, the window, and a suspension.

It is decided on what is observed. What cannot be observed is in the status, counts from when it is stored, and is void
for another template.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from api.ingress_daemonset import PROMOTE, UPDATE_NOW
from api.ingress_daemonset import types as spec
from api.ingress_daemonset.status import (
    CanaryStatus,
    FailuresStatus,
    MetricStatus,
    NodeFailure,
    Phase,
    Progressing,
    Promotion,
    RollbackStatus,
    WavesStatus,
)
from api.ingress_daemonset.types import NODES, IngressDaemonSet, Metric, Window, share
from controllers.ingress_daemonset.children import Version, digest, revision_of_template
from controllers.ingress_daemonset.drift import Drift
from controllers.ingress_daemonset.nodes import NodeRollout
from controllers.ingress_daemonset.revisions import Revision, of
from kube.types import after, rfc3339
from settings.windows import closes_at, zone_of

ROLLING = (Phase.OUTDATED, Phase.DETACHING, Phase.UPDATING, Phase.ATTACHING)
"""Of a node whose update is not over."""
MOST_FAILURES = 500
"""Nodes whose failures are stored: the API server would refuse an object with those of thousands."""
LOST, FORMER = "it has lost pods with the new template", "it has lost pods with the template before"


@dataclass(frozen=True)
class Failures:
    """*nodes* fail with what a rollout has given them, or did less than *deadline* seconds ago.

    Pods may crash again and again after they were available. So a node that has lost its pods counts against the budget
    until it has had them for progressDeadlineSeconds without interruption, and it has failed when it has lacked them
    for that long in all. So has one whose update the API server has refused for that long.

    With another template no node has failed yet: it comes to those that failed with the former one first, also at a
    moment at which they have their pods. In a pause no time counts against a node, so that it is tried for a whole
    deadline after it, and the template does not become that of all nodes meanwhile.
    """

    nodes: Mapping[str, NodeFailure] = field(default_factory=dict)
    deadline: int = 0

    @property
    def with_template(self) -> bool:
        """Whether any node fails with the present one."""
        return any(each.reason != FORMER for each in self.nodes.values())

    def ends_at(self, node: str) -> datetime | None:
        """When it has failed, or is trusted again."""
        return self.nodes[node].ends_at(self.deadline)


def failures_of(
    resource: IngressDaemonSet, version: Version, rollouts: Sequence[NodeRollout], now: datetime
) -> Failures:
    stored = resource.stored.failures or FailuresStatus()
    old = stored.nodes
    if stored.digest != version.all:
        lost = {name: each for name, each in old.items() if each.reason in (LOST, FORMER)}
        old = {name: NodeFailure(FORMER, None, each.well_since) for name, each in lost.items()}
    if not old and not any(each.phase in ROLLING for each in rollouts):
        return Failures()
    deadline, moment = resource.spec.progress_deadline_seconds, now.replace(microsecond=0)
    found = {each.node.name: _failure(each, old.get(each.node.name), deadline, moment) for each in rollouts}
    failures = {name: each for name, each in found.items() if each}
    if len(failures) > MOST_FAILURES:
        stored_first = sorted(failures, key=lambda name: name not in old)
        failures = {name: failures[name] for name in stored_first[:MOST_FAILURES]}
    if resource.spec.paused:
        failures = {name: NodeFailure(each.reason, None, each.well_since) for name, each in failures.items()}
    return Failures(failures, deadline)


def halting(rollouts: Iterable[NodeRollout], failures: Failures, now: datetime) -> dict[str, str]:
    """The nodes because of which the rollout halts, and what is wrong.

    What a NotReady node lacks says nothing about the template. A node that has failed may be well at the moment.
    """
    ready = (each for each in rollouts if each.node.ready)
    stuck = (each.node.name for each in ready if each.stuck_at and each.stuck_at <= now)
    found = dict.fromkeys(stuck, "pods did not become available within progressDeadlineSeconds")
    return found | {
        name: f"{each.reason}, for progressDeadlineSeconds"
        for name, each in failures.nodes.items()
        if each.lasted(now) >= failures.deadline
    }


def _failure(
    rollout: NodeRollout, old: NodeFailure | None, deadline: int, now: datetime
) -> NodeFailure | None:
    if not rollout.node.ready or rollout.draining:
        return None
    before = old or NodeFailure()
    if rollout.refusal:
        return NodeFailure(rollout.refusal, before.since or now, None, before.seconds)
    # Not one that lacks them in its update.
    was_complete = rollout.phase is Phase.DEGRADED or rollout.settled_at is not None or rollout.was_complete
    if was_complete and not rollout.outdated and rollout.lost:
        return NodeFailure(LOST, before.since or now, None, before.seconds)
    if old is None:
        return None
    if rollout.outdated:
        if old.reason == LOST:
            return old
        if old.reason != FORMER:
            # Nothing is refused while it waits: no time counts until something is refused again.
            return NodeFailure(old.reason, None, None, round(old.lasted(now)))
        well_since = None if rollout.lost else old.well_since or now
        is_trusted = well_since is not None and after(well_since, deadline) <= now
        return None if is_trusted else NodeFailure(FORMER, None, well_since)
    if old.reason != LOST:
        return None
    if not old.well_since:
        return NodeFailure(old.reason, None, now, round(old.lasted(now)))
    return old if after(old.well_since, deadline) > now else None


@dataclass(frozen=True)
class Rollback:
    """When they fail with a new template, nodes return to the last one that all of them had.

    The spec is never written, so to apply it again, by hand or from Git, has no effect: the status says that its
    template has failed, until it changes. *stored* is as in the status, while it is in force; *is_possible* is whether
    the template before is kept. *former* is that one, while another one is rolled out.
    """

    stored: RollbackStatus | None = None
    is_possible: bool = False
    former: Mapping[str, Any] | None = None


def resolved(resource: IngressDaemonSet, held: Sequence[Revision]) -> tuple[IngressDaemonSet, Rollback]:
    """*resource* with the template that nodes are to have.

    When that is the former one, and not kept any more, the rollout is paused: there is nothing to give to nodes.
    """
    revision, current = revision_of_template(resource.spec.template), resource.stored.current_revision
    if revision == current:
        return resource, Rollback()
    kept = {each.digest: each.template for each in reversed(of(resource.metadata.uid, held))}
    if not resource.spec.update_strategy.rolling_update.auto_rollback:
        return resource, Rollback(former=kept.get(current))
    stored = resource.stored.rollback
    if stored is None or stored.revision != revision:
        return resource, Rollback(None, current in kept, kept.get(current))
    if stored.to_revision not in kept:
        return replace(resource, spec=replace(resource.spec, paused=True)), Rollback(stored)
    template = kept[stored.to_revision]
    return replace(resource, spec=replace(resource.spec, template=template)), Rollback(stored, True)


LONGEST_GAP = 3
"""Intervals between two good measurements at most: one that is lost, and one that is late, interrupt nothing."""


class Query(NamedTuple):
    """What to measure every *interval* seconds, for the canary of this id."""

    canary: str
    text: str
    interval: int


@dataclass(frozen=True)
class Measurement:
    """What *query* has that was sent *at* a time; without a *value*, *error* says why."""

    query: Query
    at: datetime
    value: float | None = None
    error: str | None = None


def filled(query: str, nodes: Iterable[str]) -> str:
    """With the names of the canary's *nodes*; in brackets, a dot needs no backslash, which a string would take."""
    return query.replace(NODES, "|".join(sorted(nodes)).replace(".", "[.]"))


def judged(wanted: Metric, stored: MetricStatus | None, measured: Measurement | None) -> MetricStatus:
    """The field of the status after *measured*, which counts once. What is stored for another metric is void.

    One without a conclusive value neither promotes nor fails the canary. Good ones follow each other without a longer
    gap than some intervals: what was not measured, as while no leader ran, is not taken for good.
    """
    revision = digest(msgspec.to_builtins(wanted))[:10]
    found = stored if stored and stored.revision == revision else MetricStatus(revision)
    if measured is None or found.failed_at:
        return found
    at, unknown_since = measured.at.replace(microsecond=0), found.unknown_since
    if found.measured_at is not None and at <= found.measured_at:
        return found
    found = replace(found, measured_at=at, value="", message="", unknown_since=None)
    if measured.value is None:
        return replace(found, unknown_since=unknown_since or at, message=measured.error or "")
    found = replace(found, value=f"{measured.value:.10g}")
    if problem := _out_of_bounds(wanted, measured.value):
        failures = found.failures + 1
        failed_at = at if failures >= wanted.failure_limit else None
        message = f"{problem} ({failures} of {wanted.failure_limit})"
        return replace(interrupted(found), failures=failures, message=message, failed_at=failed_at)
    since = found.passing_since if _continues(wanted, found, measured.at) else at
    return replace(found, passing_since=since, passed_at=at)


def interrupted(found: MetricStatus) -> MetricStatus:
    """The time in which it was good begins again; what was out of bounds stays counted."""
    return replace(found, passing_since=None, passed_at=None)


def has_passed(wanted: Metric, found: MetricStatus, now: datetime) -> bool:
    """Whether it was good for long enough, the last time just now."""
    since, last = found.passing_since, found.passed_at
    if since is None or last is None or found.message or found.failed_at:
        return False
    return last - since >= timedelta(seconds=wanted.for_seconds) and _continues(wanted, found, now)


def sentence(wanted: Metric, found: MetricStatus) -> str:
    """What the canary waits for."""
    if found.failed_at:
        return f"its metric has failed: {found.message}"
    if found.unknown_since:
        return f"its metric has been unknown since {rfc3339(found.unknown_since)}: {found.message}"
    if found.message:
        return f"its metric: {found.message}"
    if found.passing_since:
        since = rfc3339(found.passing_since)
        return f"its metric has been good since {since}, and must stay so for {wanted.for_seconds} s"
    return "its metric has not been measured yet"


def _continues(wanted: Metric, found: MetricStatus, moment: datetime) -> bool:
    longest = timedelta(seconds=LONGEST_GAP * wanted.interval_seconds)
    is_passing = found.passing_since is not None and found.passed_at is not None
    return is_passing and moment - (found.passed_at or moment) <= longest


def _out_of_bounds(wanted: Metric, value: float) -> str | None:
    if wanted.max is not None and value > wanted.max:
        return f"it is {value:.10g}, above max ({wanted.max:g})"
    if wanted.min is not None and value < wanted.min:
        return f"it is {value:.10g}, below min ({wanted.min:g})"
    return None if wanted.has_bounds else "it has neither min nor max"


PROMOTED_BY_HAND = "it waits to be promoted: drawbridge rollout promote"
AFTER_FAILURE = "drawbridge rollout abort returns, promote goes on"


@dataclass(frozen=True)
class Canary:
    """The nodes that get a new template first, and when the others may follow.

    The nodes that have *begun* have the new template or get it, and *waiting* ones are next; *size* is of both. Nodes
    that are NotReady, or joined with the template, prove nothing: they are not chosen, and not waited for.
    *stored* is the field of the status, empty at first; *measured* is the last answer to its query. *matches* is
    whether any node has the labels. *is_blocked*: only a node that counts against the budget anyway can begin.
    """

    resource: IngressDaemonSet
    wanted: spec.Canary
    size: int
    begun: tuple[NodeRollout, ...]
    waiting: tuple[NodeRollout, ...]
    stored: CanaryStatus
    measured: Measurement | None = None
    matches: bool = True
    is_blocked: bool = False

    @cached_property
    def observed(self) -> tuple[NodeRollout, ...]:
        """Those that have begun, and show what the template does."""
        return tuple(each for each in self.begun if each.node.ready)

    @property
    def pause(self) -> int:
        """In seconds; 0 is until it is promoted by hand, or by its metric."""
        return self.wanted.pause.duration_seconds

    def still_paused(self, now: datetime) -> float:
        """How many seconds the others will wait for its pause, once its nodes are updated."""
        since = self.stored.complete_since
        return max(0.0, (after(since, self.pause) - now).total_seconds()) if since else self.pause

    @property
    def metric(self) -> Metric | None:
        return self.wanted.metric

    @cached_property
    def judgement(self) -> MetricStatus | None:
        """What its metric has shown, as for the status. Only what was measured with all nodes complete counts."""
        if self.metric is None:
            return None
        since = self.stored.complete_since
        if since is None or not self.is_complete:
            return interrupted(judged(self.metric, self.stored.metric, None))
        found = self.measured
        counts = found is not None and found.query == self._asked and found.at >= since
        return judged(self.metric, self.stored.metric, found if counts else None)

    @property
    def query(self) -> Query | None:
        """What is to be measured; None while nothing is."""
        return None if self.failure else self._asked

    @property
    def _asked(self) -> Query | None:
        if self.metric is None or self.stored.complete_since is None or not self.is_complete:
            return None
        text = filled(self.metric.query, (node.node.name for node in self.observed))
        return Query(self.stored.id, text, self.metric.interval_seconds)

    @property
    def failure(self) -> str | None:
        """Of its metric; None while that has not failed."""
        found = self.judgement
        return sentence(self.metric, found) if self.metric and found and found.failed_at else None

    @property
    def nodes(self) -> set[NodeRollout]:
        return {*self.begun, *self.begins}

    @property
    def begins(self) -> tuple[NodeRollout, ...]:
        """In the order of their turns. One that gets no traffic shows little, so it comes last."""
        room = max(0, self.size - len(self.observed))
        serving = [each for each in self.waiting if not each.unavailable and each.has_its_pods]
        lost = [each for each in self.waiting if each.lost] if self.is_blocked else []
        resized = (each for each in self.begun if each.phase is Phase.OUTDATED)
        return (*resized, *(lost or serving or self.waiting)[:room])

    @property
    def is_complete(self) -> bool:
        """Whether all of its nodes have the new template and their pods, and have answered health checks since."""
        return bool(self.size) and len(self.observed) >= self.size and not self.lacking

    @cached_property
    def lacking(self) -> tuple[str, ...]:
        """What the nodes that are observed lack, one sentence for each."""
        return tuple(filter(None, map(self._lack_of, self.observed)))

    @cached_property
    def failing(self) -> tuple[str, ...]:
        """The same of nodes that have had their pods: a node that is being updated has its own deadline."""
        lost = (each for each in self.observed if each.phase is Phase.DEGRADED)
        return (*filter(None, map(self._lack_of, lost)), *self.refusing)

    @cached_property
    def refusing(self) -> tuple[str, ...]:
        """Of nodes that are attached with all their pods, and whose health checks have not been answered 200 since."""
        if self.stored.complete_since:
            return ()
        attached = (each for each in self.observed if each.phase is Phase.CURRENT or each.is_settling)
        read = ((each.node.name, each.unserved()) for each in attached if each.readings)
        return tuple(f"{name}: {doubt}" for name, doubt in read if doubt)

    @property
    def unanswered(self) -> tuple[str, ...]:
        """Nodes whose health checkers are to be read: they have their pods, and not all of them have answered 200."""
        if self.stored.complete_since:
            return ()
        return tuple(each.node.name for each in self.observed if each.phase is Phase.CURRENT)

    @property
    def fails_at(self) -> datetime | None:
        """When health checks have not been answered 200 for too long; None while they are."""
        since, deadline = self.stored.failing_since, self.resource.spec.progress_deadline_seconds
        return after(since, deadline) if since and self.refusing else None

    @property
    def ends_at(self) -> datetime | None:
        """When its pause is over, after which it is promoted by time; None while that is not known."""
        since = self.stored.complete_since
        if since is None or not (self.pause and self.is_complete):
            return None
        return after(since, self.pause)

    def status(self, version: Version, now: datetime) -> CanaryStatus:
        """The field of the status; it has the *version* of what nodes are to have."""
        moment, stored = now.replace(microsecond=0), self.stored
        if not stored.id:
            name = f"{version.revision}-{int(now.timestamp())}"
            stored = replace(
                stored, id=name, revision=version.revision, digest=version.template, started_at=moment
            )
        found = replace(
            stored,
            nodes=self.size,
            nodes_complete=len(self.observed) - len(self.lacking),
            complete_since=(stored.complete_since or moment) if self.is_complete else None,
            failing_since=(stored.failing_since or moment) if self.refusing else None,
            metric=self.judgement,
        )
        if self.ends_at and self.ends_at > now:
            return found
        # By its metric only after the pause, too.
        if self.metric is None:
            return promoted(found, Promotion.BY_TIME, now) if self.ends_at else found
        is_good = self.is_complete and self.judgement and has_passed(self.metric, self.judgement, now)
        return promoted(found, Promotion.BY_METRIC, now) if is_good else found

    def standstill(self) -> tuple[Progressing, str] | None:
        """The reason and the message of the condition Progressing; None while its nodes are being updated."""
        if any(each.in_flight for each in self.observed) or self.begins:
            return None
        done = len(self.observed) - len(self.lacking)
        reason = Progressing.CANARY_PAUSED
        text = f"canary: {done} of {self.size} nodes are updated and in service"
        if not self.matches:
            return reason, f"canary: no node has the labels of its nodeSelector; {PROMOTED_BY_HAND}"
        if not self.size:
            text = f"canary: it has no Ready node with pods to replace; {PROMOTED_BY_HAND}"
            return Progressing.WAITING_FOR_NODES, text
        if self.failing:
            return Progressing.CANARY_DEGRADED, f"{text}; {self.failing[0]}"
        if self.failure:
            return Progressing.CANARY_DEGRADED, f"{text}; {self.failure}; {AFTER_FAILURE}"
        if self.lacking:
            return Progressing.ROLLING_OUT, f"{text}; {self.lacking[0]}"
        if self.metric and self.judgement:
            return reason, f"{text}; {sentence(self.metric, self.judgement)}"
        if self.ends_at:
            return reason, f"{text}; it is promoted at {rfc3339(self.ends_at)}"
        return reason, text if self.pause else f"{text}; {PROMOTED_BY_HAND}"

    def _lack_of(self, rollout: NodeRollout) -> str | None:
        if rollout.phase is not Phase.CURRENT:
            return f"{rollout.node.name} is {rollout.phase}"
        doubt = None if self.stored.complete_since else rollout.unserved()
        return f"{rollout.node.name}: {doubt}" if doubt else None


def canary_of(
    resource: IngressDaemonSet,
    version: Version,
    rollouts: Sequence[NodeRollout],
    measured: Measurement | None,
    *,
    is_blocked: bool,
) -> Canary | None:
    """None when all nodes may be updated, as at the first installation."""
    wanted, stored = resource.spec.update_strategy.rolling_update.canary, stored_canary(resource, version)
    by_hand = resource.metadata.annotations.get(PROMOTE)
    # By what is stored only: no node begins before a crash would change nothing any more.
    is_promoted = bool(stored.id) and (stored.promoted_at is not None or by_hand == stored.id)
    if wanted is None or is_promoted or version.is_current:
        return None
    if not stored.id and all(each.joined for each in rollouts):
        return None
    eligible = (each for each in rollouts if each.phase not in (Phase.UNMANAGED, Phase.ALTERED))
    matching = [
        each for each in eligible if wanted.node_selector.items() <= each.node.metadata.labels.items()
    ]
    nodes = [each for each in matching if not each.joined]
    # They have the new template, or get it; they may still wait for another number of pods.
    outdated = [
        each for each in nodes if each.needs_template and (each.phase is Phase.OUTDATED or each.untouched)
    ]
    not_begun = {*outdated}
    begun = [each for each in nodes if each not in not_begun]
    observed = sum(each.node.ready for each in begun)
    size = sum(each.node.ready for each in nodes)
    if stored.complete_since and observed:
        # Nodes that join, or are Ready again, do not begin the pause again.
        size = observed
    elif wanted.nodes is not None:
        size = min(size, share(wanted.nodes, len(nodes)))
    # After a drain, or for the template before, more nodes may be detached than the canary has room for.
    untouched = [each for each in outdated if each.untouched and each.node.ready and not each.draining]
    untouched.sort(key=lambda each: (not each.is_stranded, each.marked_at, each.node.name))
    begun += untouched[: max(0, size - observed)]
    waiting = tuple(each for each in outdated if each.phase is Phase.OUTDATED and each.node.ready)
    return Canary(resource, wanted, size, tuple(begun), waiting, stored, measured, bool(matching), is_blocked)


def stored_canary(resource: IngressDaemonSet, version: Version) -> CanaryStatus:
    """As in the status; empty if that is of another template."""
    found = resource.stored.canary or CanaryStatus()
    is_same = (found.revision, found.digest) == (version.revision, version.template)
    return found if is_same else CanaryStatus()


def promoted(found: CanaryStatus, by: Promotion, now: datetime) -> CanaryStatus:
    """The field of the status afterwards."""
    at = found.promoted_at or now.replace(microsecond=0)
    return replace(found, promoted_at=at, promoted_by=found.promoted_by or by)


NEXT_WAVES = 10
"""Waves that a status names at most."""
UNLABELLED = ""
"""Stands for the last wave."""


@dataclass(frozen=True)
class Waves:
    """The nodes of one wave are updated, and a pause passes, before those of the next one begin.

    A wave is the nodes that have one value of a label now, in the order of the values; nodes without it are the last
    one. *groups* are the nodes by the value; *stored*, the field of the status, says which wave it is, and since when
    it is complete.
    """

    wanted: spec.Waves
    digest: str
    groups: Mapping[str, tuple[NodeRollout, ...]]
    stored: WavesStatus

    @cached_property
    def unfinished(self) -> tuple[str, ...]:
        """The waves with nodes that are to be updated, or under way.

        A NotReady node that has not begun holds up no wave: it is updated when it is Ready, or after all others.
        """
        return self._holding_up or self._with(lambda each: each.phase in ROLLING)

    @cached_property
    def _holding_up(self) -> tuple[str, ...]:
        """Those of them that are so without NotReady nodes that have not begun."""
        begun = {*ROLLING} - {Phase.OUTDATED}
        return self._with(lambda each: each.phase in (ROLLING if each.node.ready else begun))

    def _with(self, is_so: Callable[[NodeRollout], bool]) -> tuple[str, ...]:
        return tuple(value for value, nodes in self.groups.items() if any(map(is_so, nodes)))

    @property
    def current(self) -> str | None:
        """None before it is stored."""
        return self.stored.current

    @property
    def begins(self) -> tuple[NodeRollout, ...]:
        """Those that may begin."""
        if self.current not in self.unfinished or self.stored.completed_at:
            return ()
        return tuple(each for each in self.groups[self.current] if each.node.ready or not self._holding_up)

    def has_come(self, rollout: NodeRollout) -> bool:
        """Whether its wave is the current one, or over."""
        value = value_of(rollout, self.wanted.by_label)
        return value == self.current or (self.current is not None and value not in self.unfinished)

    @property
    def withheld(self) -> set[NodeRollout]:
        """Those of other waves that are detached, though their pods are untouched."""
        current = next(iter(self.unfinished), None) if self.current is None else self.current
        others = (nodes for value, nodes in self.groups.items() if value != current)
        return {each for nodes in others for each in nodes if each.untouched}

    @property
    def pause(self) -> int:
        """In seconds."""
        return self.wanted.pause.duration_seconds

    @property
    def pause_ends_at(self) -> datetime | None:
        """None while no wave is complete before another one."""
        completed = self.stored.completed_at
        return after(completed, self.pause) if completed and self.unfinished else None

    @property
    def number(self) -> int:
        """Of the current one, or the first before that, from 1."""
        values = [*self.groups]
        return values.index(self.current) + 1 if self.current in values else 1

    def in_order(self, rollouts: Iterable[NodeRollout]) -> list[NodeRollout]:
        """The current wave first, then the others."""
        values = dict.fromkeys((*self._ahead, *self.groups))
        ranks = {value: rank for rank, value in enumerate(values)}
        return sorted(rollouts, key=lambda each: ranks[value_of(each, self.wanted.by_label)])

    def left(self, now: datetime) -> Iterator[tuple[float, list[NodeRollout]]]:
        """Of each wave that is not over: the pause before it, and what is to be updated there, or under way."""
        pause = max(0.0, (self.pause_ends_at - now).total_seconds()) if self.pause_ends_at else 0.0
        for value in self._ahead:
            yield pause, [each for each in self.groups[value] if each.phase in ROLLING]
            pause = self.pause

    def status(self, now: datetime) -> WavesStatus:
        """The field of the status; empty before there is something to update."""
        if not self.unfinished:
            return self.stored
        if self.current is None:
            return self._at(self.unfinished[0], WavesStatus(self.digest, self.wanted.by_label))
        if self.current in self.unfinished:
            return self._at(self.current, self.stored)
        ends_at = self.pause_ends_at or (now if not self.pause else None)
        if ends_at and ends_at <= now:
            return self._at(self.unfinished[0], self.stored)
        completed = self.stored.completed_at or now.replace(microsecond=0)
        return replace(self._at(self.current, self.stored), completed_at=completed)

    def _at(self, current: str, stored: WavesStatus) -> WavesStatus:
        following = [value for value in self.unfinished if value != current]
        return replace(stored, current=current, next=tuple(following[:NEXT_WAVES]), completed_at=None)

    def standstill(self, now: datetime) -> str | None:
        """What is waited for in a pause; None outside."""
        if self.current is None or self.pause_ends_at is None or self.pause_ends_at <= now:
            return None
        done, following = (wave_name(self.wanted.by_label, each) for each in (self.current, self._ahead[0]))
        return f"{done} is complete; {following} begins at {rfc3339(self.pause_ends_at)}"

    @property
    def _ahead(self) -> list[str]:
        """The unfinished waves, the current one first."""
        return sorted(self.unfinished, key=lambda each: each != self.current)


def waves_of(resource: IngressDaemonSet, version: Version, rollouts: Sequence[NodeRollout]) -> Waves | None:
    """None when nodes follow each other without waves, as they do back to the template that all of them had."""
    wanted = resource.spec.update_strategy.rolling_update.waves
    if wanted is None or version.is_current:
        return None
    groups: dict[str, list[NodeRollout]] = {}
    for each in rollouts:
        groups.setdefault(value_of(each, wanted.by_label), []).append(each)
    ordered = sorted(groups, key=lambda value: (value == UNLABELLED, value))
    stored = resource.stored.waves or WavesStatus()
    if (stored.digest, stored.label) != (version.template, wanted.by_label):
        stored = WavesStatus()
    return Waves(wanted, version.template, {value: tuple(groups[value]) for value in ordered}, stored)


def wave_name(label: str, value: str) -> str:
    return f"the wave of the nodes without {label}" if value == UNLABELLED else f"wave {value}"


def value_of(rollout: NodeRollout, label: str) -> str:
    return rollout.node.metadata.labels.get(label, UNLABELLED)


@dataclass(frozen=True)
class ClosedWindow:
    """*opens_at* is None for one that never opens."""

    window: Window
    returns: bool
    opens_at: datetime | None

    def withholds(self, rollout: NodeRollout) -> bool:
        """Whether its update may not begin. The way back to the template that all nodes had waits for no window.

        A node that was detached while it was closed, as to be drained, has not begun.
        """
        if self.returns and rollout.drift is Drift.OUTDATED:
            return False
        if rollout.untouched:
            return closes_at(self.window, rollout.marked_at) is None
        return rollout.phase is Phase.OUTDATED

    def standstill(self, rollouts: Sequence[NodeRollout]) -> str | None:
        """What is waited for; None while nodes are under way, or none is to be updated."""
        under_way = any(each.in_flight and not each.draining for each in rollouts)
        if under_way or not any(map(self.withholds, rollouts)):
            return None
        if self.opens_at:
            return f"the window opens at {rfc3339(self.opens_at)}"
        is_known = zone_of(self.window) is not None
        known = "see window" if is_known else f"its time zone {self.window.time_zone} is not known"
        return f"the window never opens: {known}"


def window_of(resource: IngressDaemonSet, version: Version) -> Window | None:
    """The one in force; None where updates may begin at any time, or must not wait for this template."""
    window = resource.spec.update_strategy.rolling_update.window
    return None if resource.metadata.annotations.get(UPDATE_NOW) == version.all else window


def suspended(resource: IngressDaemonSet) -> IngressDaemonSet:
    """*resource* as it is reconciled then: as in a pause, and drains end, too.

    A suspension attaches all nodes and begins nothing, because nothing would attach them once the feature or the
    release is gone. The spec, which a GitOps tool may have written, stays; the annotation expires.
    """
    return replace(resource, spec=replace(resource.spec, paused=True, drain_timeout_seconds=0))
