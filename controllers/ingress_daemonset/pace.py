"""How long the update of a node takes: its graces as they are configured now, and its pods as they have taken."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from statistics import median

from controllers.ingress_daemonset.actions import LONG_AGO
from controllers.ingress_daemonset.node_rollout import NodeRollout

ASSUMED = 30.0
"""Seconds that pods take to be replaced, where no rollout was measured; minReadySeconds come on top."""


def measured(rollouts: Iterable[NodeRollout], since: datetime = LONG_AGO) -> list[int]:
    """Seconds that the pods of each node took in its last update, of those that were updated *since* then."""
    baselines = (each.baseline for each in rollouts if each.baseline)
    return [
        each.took for each in baselines if each.took is not None and each.updated and each.updated >= since
    ]


def seconds_of_pods(rollouts: Sequence[NodeRollout], since: datetime = LONG_AGO) -> float:
    """Until the pods of a node are replaced: by those that were *since* then, else by earlier ones, else assumed."""
    ready = max((each.resource.spec.min_ready_seconds for each in rollouts), default=0)
    times = measured(rollouts, since) or measured(rollouts)
    return max(ready, median(times)) if times else ASSUMED + ready


def seconds_of_turn(rollout: NodeRollout, pods: float) -> float:
    """Until it counts no longer, when its *pods* take so many seconds, and nothing else is waited for."""
    rolling = rollout.rolling
    ways = (rolling.deployment_annotation, rolling.node_annotation, rolling.weights, rolling.timestamp)
    graces = max((each.grace_period_seconds for each in ways if each), default=0)
    return graces + pods + rolling.attach_grace_period_seconds


def waits_for_others(rollout: NodeRollout) -> bool:
    """Whether a turn may take longer than graces and pods do, for as long as another program or clients like."""
    rolling = rollout.rolling
    return any((rolling.timestamp, rolling.connections, rolling.weights))
