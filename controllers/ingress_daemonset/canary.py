"""The nodes that get a new template first, and when the others may follow.

It is decided on what is observed: a node belongs to the canary when it has the new template, or is on the way. What
cannot be observed is in the status, and counts from when it is stored: since when the canary is as desired, and that
it was promoted. All of it is void for another template.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from controllers.ingress_daemonset.desired import revision_of
from controllers.ingress_daemonset.node_rollout import LONG_AGO, NodeRollout, Phase
from kube.types import rfc3339
from webhook.ingress_daemonset import PROMOTE
from webhook.ingress_daemonset import types as spec
from webhook.ingress_daemonset.types import IngressDaemonSet, share, time_of

Raw = Mapping[str, Any]
BY_HAND, BY_TIME = "Annotation", "Duration"
"""How a canary was promoted."""
PROMOTED_BY_HAND = "it waits to be promoted: drawbridge rollout promote"


@dataclass(frozen=True)
class Canary:
    """*begun* nodes have the new template or get it, and *waiting* ones are next; *size* is of both at most."""

    spec: spec.Canary
    size: int
    begun: tuple[NodeRollout, ...]
    waiting: tuple[NodeRollout, ...]

    @property
    def begins(self) -> tuple[NodeRollout, ...]:
        """In the order of their turns. One that gets no traffic shows little, so it comes last."""
        room = max(0, self.size - len(self.begun))
        serving = [each for each in self.waiting if not each.unavailable]
        return tuple((serving or self.waiting)[:room])

    @property
    def nodes(self) -> set[NodeRollout]:
        """Those that get the new template."""
        return {*self.begun, *self.begins}

    @property
    def is_complete(self) -> bool:
        """Whether all of its nodes have the new template, and their pods."""
        return bool(self.size) and len(self.begun) >= self.size and not self.lacking

    @cached_property
    def lacking(self) -> tuple[NodeRollout, ...]:
        """Those that have begun, and are not as desired."""
        return tuple(each for each in self.begun if each.phase is not Phase.CURRENT)

    def ends_at(self, stored: Raw) -> datetime | None:
        """When it is promoted by time; None while that is not known. *stored* is as in the status."""
        since = time_of(stored.get("completeSince", ""))
        if since is None or not self.spec.pause.duration_seconds or not self.is_complete:
            return None
        return since + timedelta(seconds=self.spec.pause.duration_seconds)


def canary_of(resource: IngressDaemonSet, rollouts: Sequence[NodeRollout]) -> Canary | None:
    """None when all nodes may be updated."""
    wanted = resource.spec.update_strategy.rolling_update.canary
    if wanted is None or _is_promoted(resource) or revision_of(resource) == resource.current_revision:
        return None
    nodes = [each for each in rollouts if _is_eligible(wanted, each)]
    size = len(nodes) if wanted.nodes is None else min(len(nodes), share(wanted.nodes, len(nodes)))
    begun = [each for each in nodes if each.phase is not Phase.OUTDATED and not _is_untouched(each)]
    # After a drain, or for the template before, more nodes may be detached than the canary has room for.
    detached = sorted((each for each in nodes if _is_untouched(each) and not each.draining), key=_detached_at)
    begun += detached[: max(0, size - len(begun))]
    waiting = [each for each in nodes if each.phase is Phase.OUTDATED]
    return Canary(wanted, size, tuple(begun), tuple(waiting))


def canary_status(
    resource: IngressDaemonSet, canary: Canary | None, current: str, now: datetime
) -> dict[str, Any]:
    """The field of the status, while a rollout from *current* goes on; empty without one."""
    revision = revision_of(resource)
    if resource.spec.update_strategy.rolling_update.canary is None or revision == current:
        return {}
    old = stored_canary(resource)
    if canary is None:
        return {"canary": promoted(old, BY_HAND, now)} if old else {}
    begun = old or {
        "id": f"{revision}-{int(now.timestamp())}",
        "revision": revision,
        "startedAt": rfc3339(now),
    }
    kept = {name: begun[name] for name in ("id", "revision", "startedAt")}
    found = kept | {"nodes": canary.size, "nodesComplete": len(canary.begun) - len(canary.lacking)}
    if canary.is_complete:
        found["completeSince"] = begun.get("completeSince", rfc3339(now))
    if (ends_at := canary.ends_at(found)) and ends_at <= now:
        found = promoted(found, BY_TIME, now)
    return {"canary": found}


def stored_canary(resource: IngressDaemonSet) -> Raw:
    """As in the status; empty if that is of another template."""
    found: Raw = resource.status.get("canary") or {}
    return found if found.get("revision") == revision_of(resource) else {}


def promoted(found: Raw, by: str, now: datetime) -> dict[str, Any]:
    """The field of the status afterwards."""
    return {"promotedAt": rfc3339(now), "promotedBy": by, **found}


def pause_of(resource: IngressDaemonSet) -> timedelta:
    """How long the promoted canary was paused for: no pace of the nodes."""
    stored = stored_canary(resource)
    since, promoted = (time_of(stored.get(name, "")) for name in ("completeSince", "promotedAt"))
    return promoted - since if since and promoted else timedelta()


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


def _is_untouched(rollout: NodeRollout) -> bool:
    """Whether it is detached, and its template has not been replaced since."""
    updated = rollout.baseline.updated if rollout.baseline else None
    return rollout.phase is Phase.DETACHING and (updated is None or updated < _detached_at(rollout)[0])


def _detached_at(rollout: NodeRollout) -> tuple[datetime, str]:
    marks = [mark.at for mark in (rollout.deployment_mark, rollout.node_mark) if mark]
    return min(marks, default=LONG_AGO), rollout.node.name


def standstill(resource: IngressDaemonSet, canary: Canary) -> tuple[str, str] | None:
    """The reason and the message of the condition Progressing; None while its nodes are being updated."""
    begun = canary.begun
    if any(each.in_flight for each in begun) or (canary.begins and canary.size):
        return None
    counted = f"canary: {len(begun) - len(canary.lacking)} of {canary.size} nodes are as desired"
    if not canary.size:
        return "CanaryPaused", f"canary: no node has the labels of its nodeSelector; {PROMOTED_BY_HAND}"
    if canary.lacking:
        return "CanaryDegraded", f"{counted}; {canary.lacking[0].node.name} is {canary.lacking[0].phase}"
    if ends_at := canary.ends_at(stored_canary(resource)):
        return "CanaryPaused", f"{counted}; it is promoted at {rfc3339(ends_at)}"
    if canary.spec.pause.duration_seconds:
        return "CanaryPaused", counted
    return "CanaryPaused", f"{counted}; {PROMOTED_BY_HAND}"
