"""Why a node is in its phase, in a sentence."""

from __future__ import annotations

from datetime import datetime

from controllers.ingress_daemonset.drift import Drift
from controllers.ingress_daemonset.node_rollout import Phase, Site


def why(site: Site, now: datetime) -> str:
    """What a node waits for, in a sentence."""
    not_ready = "" if site.node.ready else "; the node is NotReady"
    return _sentence(site, now) + not_ready


def _sentence(site: Site, now: datetime) -> str:
    name = site.name
    match site.phase:
        case Phase.FOREIGN:
            return f"Deployment {name} {_whose(site)}: delete or rename it"
        case Phase.DETACHING:
            return _detaching(site, now)
        case Phase.DRAINING:
            return _draining(site, now)
        case Phase.UPDATING if site.deployment and site.deployment.is_stuck:
            return f"Deployment {name} has not become available within its progressDeadlineSeconds"
        case Phase.UPDATING | Phase.STARTING | Phase.DEGRADED:
            return f"{available_pods(site)} of {site.resource.spec.pods_per_node} pods are available"
        case Phase.ATTACHING:
            return "all pods are available; its annotations are being taken off"
        case Phase.OUTDATED if site.drift is Drift.DRIFTED:
            return f"Deployment {name} was changed by another writer; it waits for its turn to be restored"
        case Phase.OUTDATED:
            return "it waits for its turn"
        case Phase.ALTERED:
            return (
                f"Deployment {name} was changed again in the same way after it was restored, and is left so"
            )
        case Phase.CURRENT:
            return "nothing is to be done"


def _whose(site: Site) -> str:
    ours = site.deployment is not None and site.deployment.is_of(site.uid)
    return "has another selector, which cannot be changed" if ours else "belongs to somebody else"


def _draining(site: Site, now: datetime) -> str:
    if site.evictable:
        return "it is detached to be drained: its pods may be evicted"
    if not site.in_flight:
        return "it is to be drained, and waits for room in maxUnavailableNodes"
    return f"it is to be drained; {_let_go(site, now)}"


def _detaching(site: Site, now: datetime) -> str:
    return "the rollout is paused" if site.resource.spec.paused else _let_go(site, now)


def _let_go(site: Site, now: datetime) -> str:
    """How far the load balancer is from having let go of it."""
    if site.unscheduled or site.attached:
        return "it is being detached"
    if site.is_doubted(now):
        return f"its detachment is not confirmed: {site.doubt}; {_way_out(site)}"
    if (safe_at := site.safe_at) is not None:
        return f"the load balancer has until {rfc3339(safe_at)} to let go"
    key = site.rolling.timestamp.key if site.rolling.timestamp else ""
    return f"nobody has confirmed its detachment in annotation {key} yet"


def _way_out(site: Site) -> str:
    if (ends := site.doubt_ends_at) is not None:
        return f"the update goes on without at {rfc3339(ends)}"
    return "see why, or set confirm to preferred or off"


def available_pods(site: Site) -> int:
    held = None if site.foreign else site.deployment
    return held.status.available_replicas if held else 0


def rfc3339(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
