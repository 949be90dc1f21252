"""Nodes that fail with what a rollout has given them: since when, and for how long in all.

Pods may crash again and again after they were available. So a node that has lost its pods counts against the budget
until it has had them for progressDeadlineSeconds without interruption, and it has failed when it has lacked them for
that long in all. So has one whose update the API server has refused for that long. What fails now is observed; the
times are in the status, and void for another template, which no node has failed with yet: it comes to those that failed
with the former one first, also at a moment at which they have their pods. In a pause no time counts against a node, so
that it is tried for a whole deadline after it, and the template does not become that of all nodes meanwhile.

When they fail with a new template, nodes return to the last one that all of them had. The spec is never written, so to
apply it again, by hand or from Git, has no effect. The status says that the spec's template has failed, and that holds
until the template changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from api.ingress_daemonset.status import FailuresStatus, NodeFailure, Phase, RollbackStatus, raw_of
from api.ingress_daemonset.types import IngressDaemonSet
from controllers.ingress_daemonset.canary import Canary
from controllers.ingress_daemonset.children import applied_digest, is_current, revision_of
from controllers.ingress_daemonset.drift import Drift
from controllers.ingress_daemonset.nodes import NodeRollout
from controllers.ingress_daemonset.revisions import Revision, of

ROLLING = (Phase.OUTDATED, Phase.DETACHING, Phase.UPDATING, Phase.ATTACHING)
"""Of a node whose update is not over."""
LOST, FORMER = "it has lost pods with the new template", "it has lost pods with the template before"


@dataclass(frozen=True)
class Failures:
    """*nodes* fail, or did less than *deadline* ago; without any, there is no field of the status."""

    digest: str = ""
    nodes: Mapping[str, NodeFailure] = field(default_factory=dict)
    deadline: timedelta = timedelta()

    @property
    def with_template(self) -> bool:
        """Whether any node fails with the present one."""
        return any(each.reason != FORMER for each in self.nodes.values())

    def failed(self, now: datetime) -> Iterator[tuple[str, NodeFailure]]:
        """Those that have failed for the deadline, in all, though they may be well again at the moment."""
        return ((name, each) for name, each in self.nodes.items() if each.lasted(now) >= self.deadline)

    def ends_at(self, node: str) -> datetime | None:
        return self.nodes[node].ends_at(self.deadline)

    def status(self) -> dict[str, Any]:
        return {"failures": raw_of(FailuresStatus(self.digest, dict(self.nodes)))} if self.nodes else {}


NO_FAILURES = Failures()


def failures_of(resource: IngressDaemonSet, rollouts: Sequence[NodeRollout], now: datetime) -> Failures:
    """None on the way back to the template that all nodes had."""
    if is_return(resource, rollouts):
        return NO_FAILURES
    digest = applied_digest(resource)
    stored = resource.stored.failures or FailuresStatus()
    old = stored.nodes
    if stored.digest != digest:
        lost = {name: each for name, each in old.items() if each.reason in (LOST, FORMER)}
        old = {name: NodeFailure(FORMER, None, each.well_since) for name, each in lost.items()}
    if not old and not any(each.phase in ROLLING for each in rollouts):
        return NO_FAILURES
    deadline, moment = timedelta(seconds=resource.spec.progress_deadline_seconds), now.replace(microsecond=0)
    found = {each.node.name: _failure(each, old.get(each.node.name), deadline, moment) for each in rollouts}
    failures = {name: each for name, each in found.items() if each}
    if resource.spec.paused:
        failures = {name: NodeFailure(each.reason, None, each.well_since) for name, each in failures.items()}
    return Failures(digest, failures, deadline)


def is_return(resource: IngressDaemonSet, rollouts: Iterable[NodeRollout]) -> bool:
    """Whether nodes go back to the template that all of them had: nothing holds that up."""
    return is_current(resource) and any(each.drift is Drift.OUTDATED for each in rollouts)


def halting(rollouts: Iterable[NodeRollout], failures: Failures, now: datetime) -> dict[str, str]:
    """The nodes because of which the rollout halts, and what is wrong.

    What a NotReady node lacks says nothing about the template.
    """
    stuck = (each.node.name for each in rollouts if each.node.ready and each.is_stuck(now))
    found = dict.fromkeys(stuck, "pods did not become available within progressDeadlineSeconds")
    return found | {
        name: f"{each.reason}, for progressDeadlineSeconds" for name, each in failures.failed(now)
    }


def _failure(
    rollout: NodeRollout, old: NodeFailure | None, deadline: timedelta, now: datetime
) -> NodeFailure | None:
    if not rollout.node.ready or rollout.draining:
        return None
    before = old or NodeFailure()
    if rollout.refusal:
        return NodeFailure(rollout.refusal, before.since or now, None, before.seconds)
    if _has_lost_pods(rollout):
        return NodeFailure(LOST, before.since or now, None, before.seconds)
    if old and rollout.outdated:
        return _untouched(rollout, old, deadline, now)
    if old and old.reason != LOST:
        return None
    if old and not old.well_since:
        return NodeFailure(old.reason, None, now, round(old.lasted(now).total_seconds()))
    ends_at = old.ends_at(deadline) if old else None
    return old if ends_at and ends_at > now else None


def _untouched(
    rollout: NodeRollout, old: NodeFailure, deadline: timedelta, now: datetime
) -> NodeFailure | None:
    if old.reason != FORMER:
        return old
    well_since = None if rollout.lost else old.well_since or now
    return None if well_since and well_since + deadline <= now else NodeFailure(FORMER, None, well_since)


def _has_lost_pods(rollout: NodeRollout) -> bool:
    """Not one that lacks them in its update."""
    was_attached = rollout.phase is Phase.DEGRADED or rollout.settled_at is not None
    return was_attached and not rollout.outdated and rollout.lost


Raw = Mapping[str, Any]
SHOWN = 5
"""Nodes that a reason names at most."""


@dataclass(frozen=True)
class Rollback:
    """*stored* is as in the status, while it is in force; *is_possible* is whether the template before is kept.

    *former* is that template, the last one that all nodes had, while another one is rolled out.
    """

    stored: RollbackStatus | None = None
    is_possible: bool = False
    former: Raw | None = None


NO_ROLLBACK = Rollback()


def resolved(resource: IngressDaemonSet, held: Sequence[Revision]) -> tuple[IngressDaemonSet, Rollback]:
    """*resource* with the template that nodes are to have.

    When that is the former one, and not kept any more, the rollout is paused: there is nothing to give to nodes.
    """
    revision, current = revision_of(resource), resource.stored.current_revision
    if revision == current:
        return resource, NO_ROLLBACK
    if not resource.spec.update_strategy.rolling_update.auto_rollback:
        return resource, Rollback(former=_template(resource, held, current))
    stored = resource.stored.rollback
    if stored is None or stored.revision != revision:
        template = _template(resource, held, current)
        return resource, Rollback(None, template is not None, template)
    template = _template(resource, held, stored.to_revision)
    if template is None:
        return replace(resource, spec=replace(resource.spec, paused=True)), Rollback(stored)
    return replace(resource, spec=replace(resource.spec, template=template)), Rollback(stored, True)


def rollback_status(
    resource: IngressDaemonSet,
    halting: Mapping[str, str],
    canary: Canary | None,
    rollback: Rollback,
    now: datetime,
) -> dict[str, Any]:
    """The field of the status; empty while nothing has failed."""
    if rollback.stored:
        return {"rollback": raw_of(rollback.stored)}
    if not rollback.is_possible or resource.spec.paused:
        return {}
    if not (reason := _fault(halting, canary, now)):
        return {}
    at, current = now.replace(microsecond=0), resource.stored.current_revision
    return {"rollback": raw_of(RollbackStatus(revision_of(resource), current, at, reason))}


def _template(resource: IngressDaemonSet, held: Sequence[Revision], revision: str) -> dict[str, Any] | None:
    ours = of(resource.metadata.uid, held)
    return next((each.template for each in ours if each.digest == revision), None)


def _fault(halting: Mapping[str, str], canary: Canary | None, now: datetime) -> str | None:
    """Why nodes return; None while nothing has failed."""
    if halting:
        reason = next(iter(halting.values()))
        names = [name for name, each in halting.items() if each == reason]
        return f"{', '.join(names[:SHOWN])}: {reason}"
    if canary and canary.failure:
        return f"the canary failed: {canary.failure}"
    fails_at = canary.fails_at if canary else None
    if canary and fails_at and fails_at <= now:
        return f"the canary failed for progressDeadlineSeconds: {canary.refusing[0]}"
    return None
