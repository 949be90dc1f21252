"""From what is known to what is to be written now: no more nodes off than allowed, none updated before it is off."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any

from controllers.ingress_daemonset import budgets, drains, rollout_annotations
from controllers.ingress_daemonset.actions import Action, Change, Writes, change
from controllers.ingress_daemonset.child_resources import accesses, altered, health_checkers, strangers
from controllers.ingress_daemonset.confirmation import Reading, Readings
from controllers.ingress_daemonset.desired import deployment
from controllers.ingress_daemonset.drift import Altered, Drift
from controllers.ingress_daemonset.node_rollout import Phase, Site
from controllers.ingress_daemonset.objects import Grant, Workload
from controllers.ingress_daemonset.status import Unconfirmed, status_of, unconfirmed
from controllers.ingress_daemonset.steps import step
from healthchecker.naming import deployment_name
from settings.ingress_daemonset import HealthChecker
from webhook.ingress_daemonset import FINALIZER
from webhook.ingress_daemonset.node_matching import FollowedNode, Where, matches, where_of
from webhook.ingress_daemonset.types import IngressDaemonSet

Step = tuple[Action, ...]
NOTHING = Writes()
NO_READINGS: Readings = MappingProxyType({})


@dataclass(frozen=True)
class Plan:
    """What to do: the actions of a step in their order, and none of them after one that failed.

    *look_again_at* is when time alone changes something; *status* is raw, and whole.
    """

    steps: tuple[Step, ...] = ()
    look_again_at: datetime | None = None
    status: dict[str, Any] | None = None
    unconfirmed: tuple[Unconfirmed, ...] = ()
    sites: tuple[Site, ...] = ()
    """For the plan after this one, which need not look at what has not changed."""
    altered: tuple[Altered, ...] = ()
    """What another writer changes again and again, so that it is left as it is."""

    @property
    def actions(self) -> tuple[Action, ...]:
        return tuple(action for step in self.steps for action in step)


def plan(
    resource: IngressDaemonSet,
    nodes: Iterable[FollowedNode],
    deployments: Iterable[Workload],
    daemonsets: Iterable[Workload],
    now: datetime,
    *,
    roles: Iterable[Grant] = (),
    bindings: Iterable[Grant] = (),
    checker: HealthChecker,
    writes: Writes = NOTHING,
    before: Sequence[Site] = (),
    readings: Readings = NO_READINGS,
) -> Plan:
    """All but *nodes* are those of its namespace; *before* are the sites of the last plan for it.

    *readings* are of the health checkers of nodes that were being detached then.
    """
    everywhere, held = list(nodes), list(deployments)
    checking, granted, bound = list(daemonsets), list(roles), list(bindings)
    if resource.metadata.deletion_timestamp is not None:
        return Plan(tuple((action,) for action in _ending(resource, everywhere, writes)))
    sites = sites_of(resource, everywhere, held, writes, before, readings)
    gone = _gone(resource, sites, everywhere)
    departing = drains.departures(resource, {site.name for site in sites}, held, writes, now)
    finalizer = [*_finalizer(resource, needed=bool(gone) or _is_under_way(sites, writes))]
    beside = [
        # Both are for the same version of it.
        *(finalizer or _handed_over(resource, sites, departing, writes, now)),
        *(_left(resource, node) for node in gone if ("Node", node.name) not in writes.uncertain),
        *(each.action for each in departing if each.action),
        *health_checkers(resource, checking, checker),
    ]
    # The API server lets nobody bind a Role that it does not know yet.
    access = tuple(accesses(resource, granted, bound))
    chosen = {
        site.node.name for site in (*_chosen(resource, sites, len(gone)), *_drained(resource, sites, now))
    }
    stepping = (tuple(step(site, site.node.name in chosen, now)) for site in sites if not site.uncertain)
    steps = (*((each,) for each in beside), *(each for each in (access, *stepping) if each))
    others = strangers(resource, [*checking, *granted, *bound])
    left = (*_altered(sites), *altered(resource, checking, checker))
    return Plan(
        steps,
        _look_again_at(resource, sites, departing, now),
        status_of(resource, sites, now, others, left, departing),
        unconfirmed(sites, now),
        tuple(sites),
        left,
    )


def _handed_over(
    resource: IngressDaemonSet,
    sites: Sequence[Site],
    departing: Iterable[drains.Departure],
    writes: Writes,
    now: datetime,
) -> Iterable[Action]:
    if ("IngressDaemonSet", resource.metadata.name) not in writes.uncertain:
        yield from drains.hand_over(resource, sites, departing, now)


def _altered(sites: Iterable[Site]) -> Iterable[Altered]:
    for site in sites:
        if site.deployment is not None and not site.foreign and site.drift is Drift.ALTERED:
            yield Altered("Deployment", site.name, site.deployment.template_digest)


def sites_of(
    resource: IngressDaemonSet,
    nodes: Iterable[FollowedNode],
    deployments: Iterable[Workload],
    writes: Writes = NOTHING,
    before: Sequence[Site] = (),
    readings: Readings = NO_READINGS,
) -> list[Site]:
    """One for each node that it runs on, or should."""
    held = {each.metadata.name: each for each in deployments}
    known = {site.node.name: site for site in before} if _still_holds(before, resource, writes) else {}
    where = where_of(resource)
    found = (
        _site(resource, node, held, where, writes, known.get(node.name), readings.get(node.name, ()))
        for node in sorted(nodes, key=lambda each: each.name)
    )
    return [site for site in found if site]


def _site(
    resource: IngressDaemonSet,
    node: FollowedNode,
    deployments: Mapping[str, Workload],
    where: Where,
    writes: Writes,
    known: Site | None,
    readings: tuple[Reading, ...],
) -> Site | None:
    name = deployment_name(resource.metadata.name, node.name)
    held = deployments.get(name)
    # What is held is a value, and another one as soon as it changes.
    requested = resource.drain_requests.get(node.name, "")
    evictable = node.name in resource.evictable_nodes
    same = known is not None and known.node is node and known.deployment is held
    said = (readings, requested, evictable)
    if same and known is not None and (known.readings, known.drain_requested, known.evictable) == said:
        return known
    runs = held is not None and held.is_of(resource.metadata.uid)
    if not matches(where, node, runs=runs):
        return None
    return Site(resource, node, deployment(resource, node.name), held, writes, readings, requested, evictable)


def _still_holds(before: Sequence[Site], resource: IngressDaemonSet, writes: Writes) -> bool:
    """Whether the same was asked then: of an IngressDaemonSet, a site goes by the spec and the uid."""
    if not before:
        return False
    then = before[0].resource
    asked = (then.spec, then.metadata.uid, before[0].writes)
    return asked == (resource.spec, resource.metadata.uid, writes)


def _ending(resource: IngressDaemonSet, nodes: Iterable[FollowedNode], writes: Writes) -> Iterable[Action]:
    """Nodes first: once the finalizer is off, nobody knows any more whose annotations they bear."""
    bearing = [node for node in nodes if _attached(resource, node)]
    yield from (_left(resource, node) for node in bearing)
    # To one that is going, the API server lets nobody add any.
    if _is_held(resource):
        yield from _finalizer(resource, needed=bool(bearing) or _may_bear(writes))


def _finalizer(resource: IngressDaemonSet, *, needed: bool) -> Iterable[Action]:
    """Only for the length of a rollout: at rest nothing of ours keeps it from going, also when Drawbridge is gone."""
    if needed != _is_held(resource):
        others = [each for each in resource.metadata.finalizers if each != FINALIZER]
        finalizers = [*others, FINALIZER] if needed else others
        yield change("IngressDaemonSet", resource.metadata, {"finalizers": finalizers})


def _is_under_way(sites: Iterable[Site], writes: Writes) -> bool:
    """Whether a node bears an annotation of ours, or soon may."""
    return _may_bear(writes) or any(
        site.in_flight or site.drains or site.phase is Phase.OUTDATED for site in sites
    )


def _may_bear(writes: Writes) -> bool:
    return any(kind == "Node" for kind, _ in writes.uncertain)


def _is_held(resource: IngressDaemonSet) -> bool:
    return FINALIZER in resource.metadata.finalizers


def _left(resource: IngressDaemonSet, node: FollowedNode) -> Change:
    return change("Node", node.metadata, {"annotations": _attached(resource, node)})


def _attached(resource: IngressDaemonSet, node: FollowedNode) -> rollout_annotations.Changes:
    return rollout_annotations.attach(node.metadata.annotations, resource.metadata.uid)


def _gone(
    resource: IngressDaemonSet, sites: Iterable[Site], nodes: Iterable[FollowedNode]
) -> list[FollowedNode]:
    """Nodes that bear a mark of ours, and have nothing of ours any more that would be updated."""
    served = {site.node.name for site in sites if not site.foreign}
    return [node for node in nodes if node.name not in served and _attached(resource, node)]


def _chosen(resource: IngressDaemonSet, sites: Sequence[Site], gone: int) -> list[Site]:
    """Those whose update may begin now.

    The nodes that are unavailable already cost nothing more, but never are more updated at a time than may be off.
    """
    rolling = resource.spec.update_strategy.rolling_update
    if resource.spec.paused or not _is_held(resource):
        return []
    limit = budgets.limit(rolling, len(sites))
    counted = [site for site in sites if (site.unavailable if rolling.detaches else site.degraded)]
    free = max(0, limit - len(counted) - (gone if rolling.detaches else 0))
    waiting = _in_turn(sites)
    off, others = ([each for each in waiting if (each in counted) is is_off] for is_off in (True, False))
    in_flight = sum(site.in_flight for site in sites)
    return [*off, *others[:free]][: max(0, limit - in_flight)]


def _drained(resource: IngressDaemonSet, sites: Sequence[Site], now: datetime) -> list[Site]:
    """Those that are detached because they are drained, each of which takes a place in the budget.

    A node that is cordoned, or about to be deleted, does not wait for one: that is an administrator's word. Anything
    that reaches the webhook can ask for an eviction.
    """
    if not _is_held(resource):
        return []
    draining = [site for site in sites if site.drains and not drains.is_over(site, now)]
    meant = [site for site in draining if site.node.cordoned or site.node.to_be_deleted]
    free = budgets.limit(resource.spec.update_strategy.rolling_update, len(sites)) - sum(
        site.unavailable for site in sites
    )
    others = [site for site in draining if site not in meant]
    waiting = [site for site in others if not site.unavailable]
    return [*meant, *(site for site in others if site.unavailable), *waiting[: max(0, free)]]


def _in_turn(sites: Sequence[Site]) -> list[Site]:
    """Nodes that are NotReady come last, when there is no other left: they could hold the place of one for ever."""
    waiting = [site for site in sites if site.phase is Phase.OUTDATED]
    ready = [site for site in waiting if site.node.ready]
    busy = any(site.in_flight and site.node.ready for site in sites)
    return ready if ready or busy else waiting


def _look_again_at(
    resource: IngressDaemonSet,
    sites: Iterable[Site],
    departing: Iterable[drains.Departure],
    now: datetime,
) -> datetime | None:
    waits = [each.goes_at for each in departing]
    waits += [drains.times_out(resource, each) for each in resource.drain_requests.values()]
    for site in sites:
        if site.phase in (Phase.DETACHING, Phase.DRAINING):
            waits += [site.safe_at, site.doubt_ends_at]
    return min((each for each in waits if each is not None and each > now), default=None)
