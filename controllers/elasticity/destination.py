"""Super nodes as the planners see them in one decision: the rules, what fits, and the quota."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from controllers.elasticity.assumptions import Action, Kind
from controllers.elasticity.eligibility import Eligibility
from controllers.elasticity.filters import Reach, Request
from controllers.elasticity.fleet import Fleet
from controllers.elasticity.nodes import Outages
from controllers.elasticity.patches import as_burst, as_sent
from controllers.elasticity.planner import Objections
from controllers.elasticity.pods import Pod, Unbound, spec_of
from controllers.elasticity.quota import Room
from controllers.elasticity.scheduling import Scheduling, scheduling_of

Change = Callable[[Pod], dict[str, Any]]
"""Makes of a pod the spec that it would have, raw."""


class SuperNodeDestination:
    """What is taken counts for the pods that come after it. *to_look_up* are pods whose volumes must be read first."""

    def __init__(self, eligibility: Eligibility, fleet: Fleet, room: Room, outages: Outages) -> None:
        self._eligibility, self._fleet, self._room, self._outages = eligibility, fleet, room, outages
        self.to_look_up: list[Pod] = []

    def objections(self, pod: Pod, *, bound: bool) -> Objections | None:
        rules = self._eligibility.violations(pod)
        if rules is None:
            self.to_look_up.append(pod)
            return None
        if rules:
            return Objections(rules)
        request = self._request(pod, bound=bound)
        if misfit := self._fleet.why_not(request):
            outages = map(self._outages.seconds, self._fleet.passing(request))
            return Objections(misfit=misfit, outage=min(outages, default=None))
        return Objections()

    def take(self, pod: Pod, *, bound: bool) -> str:
        if full := self._room.take(pod):
            return full
        self._fleet.take(self._request(pod, bound=bound))
        return ""

    def is_asked_for(self, pod: Pod) -> bool:
        return self._fleet.is_asked_for(_request(pod, spec_of))

    def _request(self, pod: Pod, *, bound: bool) -> Request:
        return _request(pod, as_sent if bound else as_burst, self._eligibility.reach(pod))


def on_the_way(allowed: Iterable[Pod], assumed: Iterable[Action]) -> list[Request]:
    """Pods without a node that may get a super node: *allowed* to already, or *assumed* to be."""
    pods = {pod.metadata.uid: (pod, as_burst) for pod in allowed}
    pods |= {each.uid: (each.pod, as_sent if each.kind is Kind.SUPER else as_burst) for each in assumed}
    return [_request(pod, change) for pod, change in pods.values()]


def _request(pod: Pod, change: Change, volumes: tuple[Reach, ...] = ()) -> Request:
    return Request(pod, _scheduling(pod.unbound or Unbound(), change), volumes)


@lru_cache(maxsize=512)
def _scheduling(unbound: Unbound, change: Change) -> Scheduling:
    """Of a pod as it is or would be; decoded once for each version of it."""
    return scheduling_of(change(Pod(unbound=unbound)))
