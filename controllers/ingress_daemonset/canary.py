"""The nodes that get a new template first, and when the others may follow.

It is decided on what is observed: a node belongs to the canary when it has the new template, or is on the way. What
cannot be observed is in the status, and counts from when it is stored: since when the canary is as desired, and that
it was promoted. All of it is void for another template.

Nodes that are NotReady, or joined with the template, prove nothing: they are not chosen, and not waited for.

The measurements of its metric so far are in the status, too, and each counts once. One without a conclusive value
neither promotes nor fails it. Good ones follow each other without a longer gap than some intervals: what was not
measured, as while no leader ran, is not taken for good.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from api.ingress_daemonset import PROMOTE
from api.ingress_daemonset import types as spec
from api.ingress_daemonset.status import CanaryStatus, MetricStatus, Phase, Progressing, Promotion, raw_of
from api.ingress_daemonset.types import NODES, IngressDaemonSet, Metric, share
from controllers.ingress_daemonset.children import digest, is_current, revision_of, template_digest
from controllers.ingress_daemonset.nodes import NodeRollout
from kube.types import rfc3339

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
    """The field of the status after *measured*. What is stored for another metric is void."""
    revision = digest(msgspec.to_builtins(wanted))[:10]
    found = stored if stored and stored.revision == revision else MetricStatus(revision)
    if measured is None or found.failed_at or _is_counted(measured, found):
        return found
    at, unknown_since = measured.at.replace(microsecond=0), found.unknown_since
    found = replace(found, measured_at=at, value="", message="", unknown_since=None)
    if measured.value is None:
        return replace(found, unknown_since=unknown_since or at, message=measured.error or "")
    found = replace(found, value=f"{measured.value:.10g}")
    if problem := _out_of_bounds(wanted, measured.value):
        return _failed(wanted, interrupted(found), problem, at)
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
        return f"its metric is not known since {rfc3339(found.unknown_since)}: {found.message}"
    if found.message:
        return f"its metric: {found.message}"
    if found.passing_since:
        since = rfc3339(found.passing_since)
        return f"its metric is good since {since}, and has to be for {wanted.for_seconds} s"
    return "its metric has not been measured yet"


def _is_counted(measured: Measurement, found: MetricStatus) -> bool:
    """By whole seconds, as the status has them."""
    return found.measured_at is not None and measured.at.replace(microsecond=0) <= found.measured_at


def _continues(wanted: Metric, found: MetricStatus, moment: datetime) -> bool:
    longest = timedelta(seconds=LONGEST_GAP * wanted.interval_seconds)
    is_passing = found.passing_since is not None and found.passed_at is not None
    return is_passing and moment - (found.passed_at or moment) <= longest


def _failed(wanted: Metric, found: MetricStatus, problem: str, at: datetime) -> MetricStatus:
    failures = found.failures + 1
    message = f"{problem} ({failures} of {wanted.failure_limit})"
    failed_at = at if failures >= wanted.failure_limit else None
    return replace(found, failures=failures, message=message, failed_at=failed_at)


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
    """The nodes that have *begun* have the new template or get it, and *waiting* ones are next; *size* is of both.

    *stored* is the field of the status, empty at first; *measured* is the last answer to its query. *matches* is
    whether any node has the labels. *is_blocked*: only a node that counts against the budget anyway can begin.
    """

    resource: IngressDaemonSet
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
    def pause(self) -> timedelta:
        """Zero is until it is promoted by hand, or by its metric."""
        wanted = self.resource.spec.update_strategy.rolling_update.canary
        return timedelta(seconds=wanted.pause.duration_seconds if wanted else 0)

    @property
    def metric(self) -> Metric | None:
        wanted = self.resource.spec.update_strategy.rolling_update.canary
        return wanted.metric if wanted else None

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
    def _has_failed(self) -> bool:
        return self.judgement is not None and self.judgement.failed_at is not None

    @property
    def query(self) -> Query | None:
        """What is to be measured; None while nothing is."""
        return None if self._has_failed else self._asked

    @property
    def _asked(self) -> Query | None:
        if self.metric is None or self.stored.complete_since is None or not self.is_complete:
            return None
        text = filled(self.metric.query, (node.node.name for node in self.observed))
        return Query(self.stored.id, text, self.metric.interval_seconds)

    @property
    def metric_sentence(self) -> str | None:
        """What its metric waits for; None without one."""
        return sentence(self.metric, self.judgement) if self.metric and self.judgement else None

    @property
    def failure(self) -> str | None:
        """Of its metric; None while that has not failed."""
        return self.metric_sentence if self._has_failed else None

    @property
    def begins(self) -> tuple[NodeRollout, ...]:
        """In the order of their turns. One that gets no traffic shows little, so it comes last."""
        room = max(0, self.size - len(self.observed))
        serving = [each for each in self.waiting if not each.unavailable and each.has_its_pods]
        lost = [each for each in self.waiting if each.lost] if self.is_blocked else []
        resized = (each for each in self.begun if each.phase is Phase.OUTDATED)
        return (*resized, *(lost or serving or self.waiting)[:room])

    @property
    def nodes(self) -> set[NodeRollout]:
        """Those that get the new template."""
        return {*self.begun, *self.begins}

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
        return tuple(filter(None, (each.unserved() for each in attached if each.readings)))

    @property
    def unanswered(self) -> tuple[str, ...]:
        """Nodes whose health checkers are to be read: they have their pods, and not all of them have answered 200."""
        if self.stored.complete_since:
            return ()
        return tuple(each.node.name for each in self.observed if each.phase is Phase.CURRENT)

    @property
    def fails_at(self) -> datetime | None:
        """When health checks have not been answered 200 for too long; None while they are."""
        since = self.stored.failing_since
        return since + self._deadline if since and self.refusing else None

    @property
    def ends_at(self) -> datetime | None:
        """When its pause is over, after which it is promoted by time; None while that is not known."""
        since = self.stored.complete_since
        return since + self.pause if since and self.pause and self.is_complete else None

    def status(self, now: datetime) -> CanaryStatus:
        """The field of the status."""
        moment, stored = now.replace(microsecond=0), self.stored
        found = CanaryStatus(
            *_identity(self.resource, stored, moment),
            nodes=self.size,
            nodes_complete=len(self.observed) - len(self.lacking),
            complete_since=(stored.complete_since or moment) if self.is_complete else None,
            failing_since=(stored.failing_since or moment) if self.refusing else None,
            metric=self.judgement,
        )
        way = self._promoted_by(now)
        return promoted(found, way, now) if way else found

    def _promoted_by(self, now: datetime) -> Promotion | None:
        """None while it is not; by a metric only after the pause, too."""
        if self.ends_at and self.ends_at > now:
            return None
        if self.metric is None:
            return Promotion.BY_TIME if self.ends_at else None
        found = self.judgement
        is_good = self.is_complete and found is not None and has_passed(self.metric, found, now)
        return Promotion.BY_METRIC if is_good else None

    @property
    def _deadline(self) -> timedelta:
        return timedelta(seconds=self.resource.spec.progress_deadline_seconds)

    def _lack_of(self, rollout: NodeRollout) -> str | None:
        if rollout.phase is not Phase.CURRENT:
            return f"{rollout.node.name} is {rollout.phase}"
        return None if self.stored.complete_since else rollout.unserved()


def canary_of(
    resource: IngressDaemonSet,
    rollouts: Sequence[NodeRollout],
    measured: Measurement | None = None,
    *,
    is_blocked: bool = False,
) -> Canary | None:
    """None when all nodes may be updated, as at the first installation."""
    wanted = resource.spec.update_strategy.rolling_update.canary
    if wanted is None or _is_promoted(resource) or is_current(resource):
        return None
    stored = stored_canary(resource)
    if not stored.id and all(each.joined for each in rollouts):
        return None
    matching = [each for each in rollouts if _is_eligible(wanted, each)]
    nodes = [each for each in matching if not each.joined]
    begun = [each for each in nodes if _has_begun(each)]
    observed = sum(each.node.ready for each in begun)
    size = sum(each.node.ready for each in nodes)
    if stored.complete_since and observed:
        # Nodes that join, or are Ready again, do not begin the pause again.
        size = observed
    elif wanted.nodes is not None:
        size = min(size, share(wanted.nodes, len(nodes)))
    # After a drain, or for the template before, more nodes may be detached than the canary has room for.
    untouched = (
        each
        for each in nodes
        if not _has_begun(each) and each.untouched and each.node.ready and not each.draining
    )
    detached = sorted(untouched, key=lambda each: (not each.is_stranded, each.marked_at, each.node.name))
    begun += detached[: max(0, size - observed)]
    waiting = [
        each for each in nodes if each.phase is Phase.OUTDATED and each.node.ready and each.needs_template
    ]
    return Canary(resource, size, tuple(begun), tuple(waiting), stored, measured, bool(matching), is_blocked)


def canary_status(
    resource: IngressDaemonSet, canary: Canary | None, now: datetime, *, is_over: bool
) -> dict[str, Any]:
    """The field of the status, while a rollout goes on; empty without one."""
    if resource.spec.update_strategy.rolling_update.canary is None or is_over:
        return {}
    old = stored_canary(resource)
    if canary is None:
        return {"canary": raw_of(promoted(old, Promotion.BY_HAND, now))} if old.id else {}
    return {"canary": raw_of(canary.status(now))}


def stored_canary(resource: IngressDaemonSet) -> CanaryStatus:
    """As in the status; empty if that is of another template."""
    found = resource.stored.canary or CanaryStatus()
    is_same = (found.revision, found.digest) == (revision_of(resource), template_digest(resource))
    return found if is_same else CanaryStatus()


def promoted(found: CanaryStatus, by: Promotion, now: datetime) -> CanaryStatus:
    """The field of the status afterwards."""
    at = found.promoted_at or now.replace(microsecond=0)
    return replace(found, promoted_at=at, promoted_by=found.promoted_by or by)


def pause_of(resource: IngressDaemonSet) -> timedelta:
    """How long the promoted canary was paused for: no pace of the nodes."""
    stored = stored_canary(resource)
    since, promoted = stored.complete_since, stored.promoted_at
    return promoted - since if since and promoted else timedelta()


def _identity(
    resource: IngressDaemonSet, stored: CanaryStatus, now: datetime
) -> tuple[str, str, str, datetime | None]:
    """Its id, the digests of its template, and when it started."""
    if stored.id:
        return stored.id, stored.revision, stored.digest, stored.started_at
    revision = revision_of(resource)
    return f"{revision}-{int(now.timestamp())}", revision, template_digest(resource), now


def _is_promoted(resource: IngressDaemonSet) -> bool:
    """By what is stored only: no node begins before a crash would change nothing any more."""
    stored = stored_canary(resource)
    by_hand = resource.metadata.annotations.get(PROMOTE)
    return bool(stored.id) and (stored.promoted_at is not None or by_hand == stored.id)


def _is_eligible(wanted: spec.Canary, rollout: NodeRollout) -> bool:
    if rollout.phase in (Phase.UNMANAGED, Phase.ALTERED):
        return False
    labels = rollout.node.metadata.labels
    return all(labels.get(key) == value for key, value in wanted.node_selector.items())


def _has_begun(rollout: NodeRollout) -> bool:
    """Whether it has the new template, or gets it; it may still wait for another number of pods."""
    is_on_its_way = rollout.phase is not Phase.OUTDATED and not rollout.untouched
    return is_on_its_way or not rollout.needs_template


def standstill(canary: Canary) -> tuple[Progressing, str] | None:
    """The reason and the message of the condition Progressing; None while its nodes are being updated."""
    if any(each.in_flight for each in canary.observed) or canary.begins:
        return None
    done = len(canary.observed) - len(canary.lacking)
    counted = f"canary: {done} of {canary.size} nodes are as desired"
    if not canary.matches:
        return (
            Progressing.CANARY_PAUSED,
            f"canary: no node has the labels of its nodeSelector; {PROMOTED_BY_HAND}",
        )
    if not canary.size:
        return (
            Progressing.WAITING_FOR_NODES,
            f"canary: it has no Ready node with pods to replace; {PROMOTED_BY_HAND}",
        )
    if canary.failing:
        return Progressing.CANARY_DEGRADED, f"{counted}; {canary.failing[0]}"
    if canary.failure:
        return Progressing.CANARY_DEGRADED, f"{counted}; {canary.failure}; {AFTER_FAILURE}"
    if canary.lacking:
        return Progressing.ROLLING_OUT, f"{counted}; {canary.lacking[0]}"
    if canary.metric:
        return Progressing.CANARY_PAUSED, f"{counted}; {canary.metric_sentence}"
    if ends_at := canary.ends_at:
        return Progressing.CANARY_PAUSED, f"{counted}; it is promoted at {rfc3339(ends_at)}"
    return Progressing.CANARY_PAUSED, counted if canary.pause else f"{counted}; {PROMOTED_BY_HAND}"
