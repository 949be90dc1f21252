"""What kubectl shows of an IngressDaemonSet: its counts, its conditions, and which node it waits for, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controllers.ingress_daemonset.drains import Departure
from controllers.ingress_daemonset.drift import Altered
from controllers.ingress_daemonset.node_rollout import LONG_AGO, Phase, Site
from controllers.ingress_daemonset.reasons import available_pods, rfc3339, why
from webhook.ingress_daemonset.types import IngressDaemonSet

SHOWN = 10
"""Nodes that are told of at most: a status is not a list of all nodes."""
DONE = (Phase.CURRENT, Phase.DEGRADED, Phase.STARTING)
URGENT = (
    Phase.FOREIGN,
    Phase.ALTERED,
    Phase.DETACHING,
    Phase.DRAINING,
    Phase.UPDATING,
    Phase.ATTACHING,
    Phase.DEGRADED,
    Phase.STARTING,
    Phase.OUTDATED,
)

Verdict = tuple[bool, str, str]
"""Whether it is so, the reason, and the message."""


def status_of(
    resource: IngressDaemonSet,
    sites: Sequence[Site],
    now: datetime,
    strangers: Sequence[str] = (),
    altered: Sequence[Altered] = (),
    departing: Sequence[Departure] = (),
) -> dict[str, Any]:
    """*strangers* are objects of others where those for its health checks should be; *altered* ones are left so."""
    verdicts = {
        "Available": _available(sites),
        "Progressing": _progressing(resource, sites, now),
        "Degraded": _degraded(sites, strangers, altered),
    }
    return {
        "observedGeneration": resource.metadata.generation,
        **_counts(sites),
        "conditions": [_condition(resource, kind, verdict, now) for kind, verdict in verdicts.items()],
        "waitingFor": [*(_departing(each) for each in departing if each.goes_at), *waiting_for(sites, now)][
            :SHOWN
        ],
    }


@dataclass(frozen=True)
class Unconfirmed:
    """A node whose detachment is not confirmed, since when, and *why* it is waited for.

    *patience* is for how many seconds that is no news; None is as configured.
    """

    node: str
    since: datetime
    why: str
    patience: float | None = None


def unconfirmed(sites: Sequence[Site], now: datetime) -> tuple[Unconfirmed, ...]:
    waiting = [(site, site.detached) for site in sites if _lacks_timestamp(site)]
    unstamped = [Unconfirmed(site.node.name, mark.at, why(site, now)) for site, mark in waiting if mark]
    return (*unstamped, *_doubted(sites, now))


def _doubted(sites: Sequence[Site], now: datetime) -> Iterator[Unconfirmed]:
    """Those whose graces are over, and whose health checkers do not confirm."""
    for site in sites:
        if site.phase in _DETACHED and (safe_at := site.safe_at) and site.is_doubted(now):
            timeout = site.rolling.confirm_timeout_seconds
            yield Unconfirmed(site.node.name, safe_at, why(site, now), timeout)


def _departing(departure: Departure) -> dict[str, str]:
    """What is seen of a node that has left, until its pods go."""
    name, goes_at = departure.held.metadata.name, rfc3339(departure.goes_at or LONG_AGO)
    reason = f"the node has left: health checks fail, and Deployment {name} goes at {goes_at}"
    return {"node": departure.node, "phase": "Leaving", "reason": reason}


def waiting_for(sites: Sequence[Site], now: datetime) -> list[dict[str, str]]:
    """The first few, those in the middle of something before those that have not begun."""
    those = sorted(
        (site for site in sites if site.phase in URGENT), key=lambda site: URGENT.index(site.phase)
    )
    return [_told(site, now) for site in those[:SHOWN]]


def _told(site: Site, now: datetime) -> dict[str, str]:
    told = {"node": site.node.name, "phase": site.phase.value, "reason": why(site, now)}
    mark = site.detached or site.scheduled
    return told | ({"since": rfc3339(mark.at)} if mark else {})


def _counts(sites: Sequence[Site]) -> dict[str, int]:
    full = [site for site in sites if available_pods(site) >= site.resource.spec.pods_per_node]
    return {
        "desiredNodes": len(sites),
        "updatedNodes": sum(site.deployment is not None and site.phase in _UP_TO_DATE for site in sites),
        "readyNodes": len(full),
        "detachedNodes": sum(site.off for site in sites),
        "unavailableNodes": sum(site.unavailable for site in sites),
        "degradedNodes": sum(site.degraded for site in sites),
    }


_UP_TO_DATE = (*DONE, Phase.UPDATING, Phase.ATTACHING, Phase.DRAINING)
_DETACHED = (Phase.DETACHING, Phase.DRAINING)


def _available(sites: Sequence[Site]) -> Verdict:
    serving = sum(available_pods(site) > 0 for site in sites)
    message = f"{serving} of {len(sites)} nodes have pods that are available"
    if not sites:
        return False, "NoNodes", "no node matches the template"
    return serving == len(sites), "AllNodesServe" if serving == len(sites) else "NodesWithoutPods", message


def _progressing(resource: IngressDaemonSet, sites: Sequence[Site], now: datetime) -> Verdict:
    behind = [site for site in sites if site.in_flight or site.phase in (Phase.OUTDATED, Phase.STARTING)]
    others = [site for site in sites if site.phase in (Phase.FOREIGN, Phase.ALTERED) and site not in behind]
    message = f"{len(sites) - len(behind) - len(others)} of {len(sites)} nodes are as they should be"
    if not behind:
        return False, "Complete", message
    if resource.spec.paused:
        return False, "Paused", message
    if any(_is_stuck(site) for site in sites):
        return False, "Halted", f"{message}; {_names(sites)} did not become available with the new template"
    unconfirmed = [site for site in sites if _is_unconfirmed(site, now)]
    if unconfirmed:
        name, reason = unconfirmed[0].node.name, why(unconfirmed[0], now)
        return True, "WaitingForDetachment", f"{message}; {name}: {reason}"
    if all(site.phase is Phase.DRAINING for site in behind):
        return True, "Draining", f"{message}; {len(behind)} are detached, to be drained"
    if blocking := _blocking(resource, sites):
        return True, "WaitingForNodes", f"{message}; {blocking}"
    return True, "RollingOut", message


def _blocking(resource: IngressDaemonSet, sites: Sequence[Site]) -> str:
    """Which nodes use up the budget, when none of them is being updated."""
    if not resource.spec.update_strategy.rolling_update.detaches:
        return ""
    waiting = any(site.phase is Phase.OUTDATED for site in sites)
    under_way = any(site.in_flight and not site.drains for site in sites)
    others = [f"{site.node.name} is {_hindrance(site)}" for site in sites if site.unavailable]
    if not waiting or under_way or not others:
        return ""
    return f"maxUnavailableNodes counts them, too: {', '.join(others[:SHOWN])}"


def _hindrance(site: Site) -> str:
    if not site.node.ready:
        return "NotReady"
    if site.drains or site.node.to_be_deleted:
        return "to be drained"
    return "cordoned" if site.node.cordoned else "detached"


def _is_unconfirmed(site: Site, now: datetime) -> bool:
    return _lacks_timestamp(site) or (site.phase in _DETACHED and site.is_doubted(now))


def _lacks_timestamp(site: Site) -> bool:
    if site.phase not in _DETACHED:
        return False
    annotated = not site.unscheduled and not site.attached
    return annotated and site.safe_at is None


def _is_stuck(site: Site) -> bool:
    return site.phase is Phase.UPDATING and site.deployment is not None and site.deployment.is_stuck


def _names(sites: Sequence[Site]) -> str:
    return ", ".join([site.node.name for site in sites if _is_stuck(site)][:SHOWN])


def _degraded(sites: Sequence[Site], strangers: Sequence[str], altered: Sequence[Altered]) -> Verdict:
    foreign = [site for site in sites if site.foreign]
    if foreign:
        return True, "ForeignDeployment", f"{foreign[0].node.name}: {why(foreign[0], LONG_AGO)}"
    if strangers:
        return (
            True,
            "ForeignObject",
            f"{strangers[0]}, for health checks, belongs to somebody else: rename one",
        )
    if any(_is_stuck(site) for site in sites):
        return True, "RolloutStuck", f"no pods in time on {_names(sites)}"
    if altered:
        return True, "TemplateAltered", _again(altered)
    short = [site for site in sites if site.phase is Phase.DEGRADED]
    if short:
        return (
            True,
            "PodsUnavailable",
            f"{len(short)} nodes lost pods; {short[0].node.name}: {why(short[0], LONG_AGO)}",
        )
    return False, "AsDesired", "no node has lost pods"


def _again(altered: Sequence[Altered]) -> str:
    first, others = altered[0], len(altered) - 1
    more = f" and {others} others" if others else ""
    return (
        f"{first.kind} {first.name}{more}: changed again in the same way after it was restored, and left so:"
        " the Event TemplateAltered names the field and who changes it"
    )


def _condition(resource: IngressDaemonSet, kind: str, verdict: Verdict, now: datetime) -> Mapping[str, Any]:
    """Its time moves only with its status."""
    holds, reason, message = verdict
    status = "True" if holds else "False"
    known: dict[str, dict[str, str]] = {
        each["type"]: each for each in resource.status.get("conditions") or ()
    }
    old = known.get(kind, {})
    since = old["lastTransitionTime"] if old.get("status") == status else rfc3339(now)
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}
