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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from api.ingress_daemonset import PROMOTE
from api.ingress_daemonset import types as spec
from api.ingress_daemonset.status import Phase, Progressing, Promotion
from api.ingress_daemonset.types import NODES, OFF, IngressDaemonSet, Metric, share, time_of
from controllers.ingress_daemonset.children import digest, is_current, revision_of, template_digest
from controllers.ingress_daemonset.nodes import NodeRollout
from kube.types import rfc3339

Raw = Mapping[str, Any]
LONGEST_GAP = 3
"""Intervals between two good measurements at most: one that is lost, and one that is late, interrupt nothing."""
PASSING = ("passingSince", "passedAt")
OF_THE_LAST = ("value", "message", "unknownSince")
"""Fields that say what the last measurement has shown, and no other."""


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
    error: str = ""


def filled(query: str, nodes: Iterable[str]) -> str:
    """With the names of the canary's *nodes*; in brackets, a dot needs no backslash, which a string would take."""
    return query.replace(NODES, "|".join(sorted(nodes)).replace(".", "[.]"))


def judged(wanted: Metric, stored: Raw, measured: Measurement | None) -> dict[str, Any]:
    """The field of the status after *measured*. What is stored for another metric is void."""
    revision = digest(msgspec.to_builtins(wanted))[:10]
    found = dict(stored) if stored.get("revision") == revision else {"revision": revision, "failures": 0}
    if measured is None or has_failed(found) or _is_counted(measured, found):
        return found
    at = rfc3339(measured.at)
    unknown_since = found.get("unknownSince", at)
    found = {name: each for name, each in found.items() if name not in OF_THE_LAST} | {"measuredAt": at}
    if measured.value is None:
        return found | {"unknownSince": unknown_since, "message": measured.error}
    found["value"] = f"{measured.value:.10g}"
    if problem := _out_of_bounds(wanted, measured.value):
        return _failed(wanted, interrupted(found), problem, measured.at)
    since = found["passingSince"] if _continues(wanted, found, measured.at) else at
    return found | {"passingSince": since, "passedAt": at}


def interrupted(found: Raw) -> dict[str, Any]:
    """The time in which it was good begins again; what was out of bounds stays counted."""
    return {name: each for name, each in found.items() if name not in PASSING}


def has_passed(wanted: Metric, found: Raw, now: datetime) -> bool:
    """Whether it was good for long enough, the last time just now."""
    since, last = (time_of(found.get(name, "")) for name in PASSING)
    if since is None or last is None or "message" in found or has_failed(found):
        return False
    return last - since >= timedelta(seconds=wanted.for_seconds) and _continues(wanted, found, now)


def has_failed(found: Raw) -> bool:
    return "failedAt" in found


def sentence(wanted: Metric, found: Raw) -> str:
    """What the canary waits for."""
    if has_failed(found):
        return f"its metric has failed: {found['message']}"
    if "unknownSince" in found:
        return f"its metric is not known since {found['unknownSince']}: {found['message']}"
    if "message" in found:
        return f"its metric: {found['message']}"
    if "passingSince" in found:
        return f"its metric is good since {found['passingSince']}, and has to be for {wanted.for_seconds} s"
    return "its metric has not been measured yet"


def _is_counted(measured: Measurement, found: Raw) -> bool:
    """By whole seconds, as the status has them."""
    last = time_of(found.get("measuredAt", ""))
    return last is not None and measured.at.replace(microsecond=0) <= last


def _continues(wanted: Metric, found: Raw, moment: datetime) -> bool:
    last = time_of(found.get("passedAt", ""))
    longest = timedelta(seconds=LONGEST_GAP * wanted.interval_seconds)
    return last is not None and "passingSince" in found and moment - last <= longest


def _failed(wanted: Metric, found: dict[str, Any], problem: str, at: datetime) -> dict[str, Any]:
    failures = found.get("failures", 0) + 1
    found |= {"failures": failures, "message": f"{problem} ({failures} of {wanted.failure_limit})"}
    return found | ({"failedAt": rfc3339(at)} if failures >= wanted.failure_limit else {})


def _out_of_bounds(wanted: Metric, value: float) -> str:
    if wanted.max is not None and value > wanted.max:
        return f"it is {value:.10g}, above max ({wanted.max:g})"
    if wanted.min is not None and value < wanted.min:
        return f"it is {value:.10g}, below min ({wanted.min:g})"
    return "" if wanted.has_bounds else "it has neither min nor max"


SERVING = 200
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
    stored: Raw
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
    def judgement(self) -> Raw:
        """What its metric has shown, as for the status. Only what was measured with all nodes complete counts."""
        if self.metric is None:
            return {}
        old: Raw = self.stored.get("metric") or {}
        since = time_of(self.stored.get("completeSince", ""))
        if since is None or not self.is_complete:
            return interrupted(judged(self.metric, old, None))
        found = self.measured
        counts = found is not None and found.query == self._asked and found.at >= since
        return judged(self.metric, old, found if counts else None)

    @property
    def query(self) -> Query | None:
        """What is to be measured; None while nothing is."""
        return None if has_failed(self.judgement) else self._asked

    @property
    def _asked(self) -> Query | None:
        if self.metric is None or "completeSince" not in self.stored or not self.is_complete:
            return None
        text = filled(self.metric.query, (each.node.name for each in self.observed))
        return Query(self.stored["id"], text, self.metric.interval_seconds)

    @property
    def failure(self) -> str:
        """Of its metric; empty while that has not failed."""
        if self.metric is None or not has_failed(self.judgement):
            return ""
        return sentence(self.metric, self.judgement)

    @property
    def begins(self) -> tuple[NodeRollout, ...]:
        """In the order of their turns. One that gets no traffic shows little, so it comes last."""
        room = max(0, self.size - len(self.observed))
        serving = [each for each in self.waiting if not each.unavailable and _has_pods(each)]
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
        return tuple(text for each in self.observed if (text := self._lack_of(each)))

    @cached_property
    def failing(self) -> tuple[str, ...]:
        """The same of nodes that have had their pods: a node that is being updated has its own deadline."""
        lost = (self._lack_of(each) for each in self.observed if each.phase is Phase.DEGRADED)
        return (*lost, *self.refusing)

    @cached_property
    def refusing(self) -> tuple[str, ...]:
        """Of nodes that have all their pods, and whose health checks have not been answered 200 since."""
        read = (each for each in self.observed if each.phase is Phase.CURRENT and each.readings)
        return tuple(text for each in read if (text := self._lack_of(each)))

    @property
    def unanswered(self) -> tuple[str, ...]:
        """Nodes whose health checkers are to be read: they have their pods, and not all of them have answered 200."""
        if "completeSince" in self.stored:
            return ()
        return tuple(each.node.name for each in self.observed if each.phase is Phase.CURRENT)

    @property
    def fails_at(self) -> datetime | None:
        """When health checks have not been answered 200 for too long; None while they are."""
        since = time_of(self.stored.get("failingSince", ""))
        return since + self._deadline if since and self.refusing else None

    @property
    def ends_at(self) -> datetime | None:
        """When its pause is over, after which it is promoted by time; None while that is not known."""
        since = time_of(self.stored.get("completeSince", ""))
        return since + self.pause if since and self.pause and self.is_complete else None

    def status(self, now: datetime) -> dict[str, Any]:
        """The field of the status."""
        found = {
            **_identity(self.resource, self.stored, now),
            "nodes": self.size,
            "nodesComplete": len(self.observed) - len(self.lacking),
            **self._since(now),
            **({"metric": dict(self.judgement)} if self.metric else {}),
        }
        way = self._promoted_by(now)
        return promoted(found, way, now) if way else found

    def _promoted_by(self, now: datetime) -> Promotion | None:
        """None while it is not; by a metric only after the pause, too."""
        if self.ends_at and self.ends_at > now:
            return None
        if self.metric is None:
            return Promotion.BY_TIME if self.ends_at else None
        is_good = self.is_complete and has_passed(self.metric, self.judgement, now)
        return Promotion.BY_METRIC if is_good else None

    def _since(self, now: datetime) -> dict[str, str]:
        holds = {"completeSince": self.is_complete, "failingSince": bool(self.refusing)}
        return {name: self.stored.get(name, rfc3339(now)) for name, is_so in holds.items() if is_so}

    @property
    def _deadline(self) -> timedelta:
        return timedelta(seconds=self.resource.spec.progress_deadline_seconds)

    def _lack_of(self, rollout: NodeRollout) -> str:
        if rollout.phase is not Phase.CURRENT:
            return f"{rollout.node.name} is {rollout.phase}"
        return "" if "completeSince" in self.stored else unserved(rollout)


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
    if not stored and all(each.joined for each in rollouts):
        return None
    matching = [each for each in rollouts if _is_eligible(wanted, each)]
    nodes = [each for each in matching if not each.joined]
    begun = [each for each in nodes if _has_begun(each)]
    observed = sum(each.node.ready for each in begun)
    size = sum(each.node.ready for each in nodes)
    if "completeSince" in stored and observed:
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
        return {"canary": promoted(old, Promotion.BY_HAND, now)} if old else {}
    return {"canary": canary.status(now)}


def stored_canary(resource: IngressDaemonSet) -> Raw:
    """As in the status; empty if that is of another template."""
    found: Raw = resource.status.get("canary") or {}
    known = found.get("revision"), found.get("digest")
    return found if known == (revision_of(resource), template_digest(resource)) else {}


def promoted(found: Raw, by: Promotion, now: datetime) -> dict[str, Any]:
    """The field of the status afterwards."""
    return {"promotedAt": rfc3339(now), "promotedBy": by, **found}


def pause_of(resource: IngressDaemonSet) -> timedelta:
    """How long the promoted canary was paused for: no pace of the nodes."""
    stored = stored_canary(resource)
    since, promoted = (time_of(stored.get(name, "")) for name in ("completeSince", "promotedAt"))
    return promoted - since if since and promoted else timedelta()


def unserved(rollout: NodeRollout) -> str:
    """Why the node is not known to answer its health checks with 200; empty if it does."""
    by_port = {each.port: each for each in rollout.readings}
    ports = () if rollout.rolling.confirm == OFF else rollout.resource.spec.health_check_node_ports
    for port in ports:
        checker, reading = f"the health checker of {rollout.node.name} on port {port}", by_port.get(port)
        if reading is None:
            return f"{checker} has not been read yet"
        if reading.state is None:
            return f"{checker} cannot be read: {reading.error}"
        if reading.state.status != SERVING:
            return f"{checker} answers {reading.state.status}: {reading.state.reason}"
    return ""


def _identity(resource: IngressDaemonSet, stored: Raw, now: datetime) -> dict[str, Any]:
    if stored:
        return {name: stored[name] for name in ("id", "revision", "digest", "startedAt")}
    revision = revision_of(resource)
    return {
        "id": f"{revision}-{int(now.timestamp())}",
        "revision": revision,
        "digest": template_digest(resource),
        "startedAt": rfc3339(now),
    }


def _is_promoted(resource: IngressDaemonSet) -> bool:
    """By what is stored only: no node begins before a crash would change nothing any more."""
    stored = stored_canary(resource)
    by_hand = resource.metadata.annotations.get(PROMOTE)
    return bool(stored) and ("promotedAt" in stored or by_hand == stored["id"])


def _is_eligible(wanted: spec.Canary, rollout: NodeRollout) -> bool:
    if rollout.phase in (Phase.UNMANAGED, Phase.ALTERED):
        return False
    labels = rollout.node.metadata.labels
    return all(labels.get(key) == value for key, value in wanted.node_selector.items())


def _has_begun(rollout: NodeRollout) -> bool:
    """Whether it has the new template, or gets it; it may still wait for another number of pods."""
    is_on_its_way = rollout.phase is not Phase.OUTDATED and not rollout.untouched
    return is_on_its_way or not rollout.needs_template


def _has_pods(rollout: NodeRollout) -> bool:
    return rollout.deployment is not None and rollout.deployment.available


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
        return Progressing.CANARY_PAUSED, f"{counted}; {sentence(canary.metric, canary.judgement)}"
    if ends_at := canary.ends_at:
        return Progressing.CANARY_PAUSED, f"{counted}; it is promoted at {rfc3339(ends_at)}"
    return Progressing.CANARY_PAUSED, counted if canary.pause else f"{counted}; {PROMOTED_BY_HAND}"
