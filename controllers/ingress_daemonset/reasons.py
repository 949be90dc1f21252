"""Why a node is in its phase, in a sentence."""

from __future__ import annotations

from datetime import datetime

from controllers.ingress_daemonset.drift import Drift
from controllers.ingress_daemonset.node_rollout import NodeRollout, Phase
from kube.types import rfc3339


def why(rollout: NodeRollout, now: datetime) -> str:
    not_ready = "" if rollout.node.ready else "; the node is NotReady"
    return _sentence(rollout, now) + not_ready


def _sentence(rollout: NodeRollout, now: datetime) -> str:
    name = rollout.name
    if rollout.refusal:
        return rollout.refusal
    match rollout.phase:
        case Phase.UNMANAGED:
            return f"Deployment {name} {_difference(rollout)}: delete or rename it"
        case Phase.DETACHING:
            return "the rollout is paused" if rollout.resource.spec.paused else _detaching(rollout, now)
        case Phase.DRAINING:
            return _draining(rollout, now)
        case Phase.UPDATING if rollout.is_stuck(now):
            return f"Deployment {name} has not become available within its progressDeadlineSeconds"
        case Phase.UPDATING | Phase.STARTING | Phase.DEGRADED:
            return f"{available_pods(rollout)} of {_wanted_pods(rollout)} pods are available"
        case Phase.ATTACHING if (
            rollout.settled_at and rollout.settled_at <= now and rollout.attach_doubt(now)
        ):
            return f"it is attached, and waits for traffic: {rollout.attach_doubt(now)}"
        case Phase.ATTACHING if rollout.settled_at is not None:
            return (
                f"it is attached; the load balancer has until {rfc3339(rollout.settled_at)} to send traffic"
            )
        case Phase.ATTACHING:
            return "all pods are available; its annotations are being removed"
        case Phase.OUTDATED if rollout.drift is Drift.DRIFTED:
            return f"Deployment {name} was changed by another writer; it waits for its turn to be restored"
        case Phase.OUTDATED:
            return "it waits for its turn"
        case Phase.ALTERED:
            return f"Deployment {name} was changed again in the same way after it was restored, and is left as it is"
        case Phase.CURRENT:
            return "it is up to date"


def _difference(rollout: NodeRollout) -> str:
    ours = rollout.deployment is not None and rollout.deployment.is_of(rollout.uid)
    return "has another selector, which cannot be changed" if ours else "is not managed by Drawbridge"


def _draining(rollout: NodeRollout, now: datetime) -> str:
    if rollout.drain.evictable:
        return "it is detached to be drained: its pods may be evicted"
    if not rollout.in_flight:
        return "it is to be drained, and waits for room in maxUnavailableNodes"
    return f"it is to be drained; {_detaching(rollout, now)}"


def _detaching(rollout: NodeRollout, now: datetime) -> str:
    if rollout.deployment_unmarked or rollout.node_unmarked:
        return "it is being detached"
    if rollout.is_doubted(now):
        return f"its detachment is not confirmed: {rollout.doubt}; {_way_out(rollout)}"
    if rollout.is_confirmed(now) and rollout.waits_for_connections(now):
        ends = rfc3339(rollout.connections_end_at or now)
        return f"{open_connections(rollout)}; its pods are replaced at {ends} at the latest"
    if (detached_at := rollout.detached_at) is not None:
        return f"the load balancer has until {rfc3339(detached_at)} to stop sending traffic"
    key = rollout.rolling.timestamp.key if rollout.rolling.timestamp else ""
    return f"its detachment is not confirmed: annotation {key} is missing or old"


def open_connections(rollout: NodeRollout) -> str:
    """How many there are, or why that is not known."""
    wanted, count = rollout.rolling.connections, rollout.connections
    if count is not None:
        return f"{count} connections are open, and at most {wanted.max if wanted else 0} may be"
    errors = (each.state.connections_error if each.state else each.error for each in rollout.readings)
    why = next((each for each in errors if each), "no health checker has said so")
    return f"it is not known how many connections are open: {why}"


def _way_out(rollout: NodeRollout) -> str:
    if (ends := rollout.doubt_ends_at) is not None:
        return f"the update goes on without a confirmation at {rfc3339(ends)}"
    return "see why, or set confirm to preferred or off"


def _wanted_pods(rollout: NodeRollout) -> int:
    return rollout.deployment.replicas if rollout.deployment else rollout.resource.spec.pods_per_node


def available_pods(rollout: NodeRollout) -> int:
    held = None if rollout.unmanaged else rollout.deployment
    return held.status.available_replicas if held else 0
