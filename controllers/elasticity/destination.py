"""Super nodes as the planners see them in one turn: the rules, what fits, and the caps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from controllers.elasticity.filters import Reach, Request
from controllers.elasticity.fleet import Fleet
from controllers.elasticity.outages import Outages
from controllers.elasticity.patches import as_burst, as_sent
from controllers.elasticity.placement import Objections
from controllers.elasticity.pods import Pod, spec_of
from controllers.elasticity.quota import Room
from controllers.elasticity.scheduling import scheduling_of

Change = Callable[[Pod], dict[str, Any]]
"""Makes of a pod the spec that it would have, raw."""


class Requests:
    """Pods as they are and as they would be on super nodes; each is decoded once for each version of it."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, Change], tuple[str, Request]] = {}

    def of(self, pod: Pod, change: Change, volumes: tuple[Reach, ...] = ()) -> Request:
        key, version = (pod.metadata.uid, change), pod.metadata.resource_version
        known = self._known.get(key)
        if known is None or known[0] != version or known[1].volumes != volumes:
            known = version, Request(pod, scheduling_of(change(pod)), volumes)
            self._known[key] = known
        return known[1]

    def keep_only(self, uids: Collection[str]) -> None:
        for key in [key for key in self._known if key[0] not in uids]:
            del self._known[key]


class SuperNodeDestination:
    """What is taken counts for the pods that come after it in the same turn."""

    def __init__(
        self,
        violations: Callable[[Pod], tuple[str, ...] | None],
        reach: Callable[[Pod], tuple[Reach, ...]],
        requests: Requests,
        fleet: Fleet,
        room: Room,
        outages: Outages,
    ) -> None:
        self._violations, self._reach, self._requests = violations, reach, requests
        self._fleet, self._room, self._outages = fleet, room, outages

    def objections(self, pod: Pod, *, bound: bool) -> Objections | None:
        rules = self._violations(pod)
        if rules is None or rules:
            return None if rules is None else Objections(rules)
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
        return self._fleet.is_asked_for(self._requests.of(pod, spec_of))

    def _request(self, pod: Pod, *, bound: bool) -> Request:
        return self._requests.of(pod, as_sent if bound else as_burst, self._reach(pod))


def under_way(pods: Iterable[Pod], requests: Requests) -> list[Request]:
    """Those of *pods* that have no node yet; of a pod that is not written to yet, as it will be."""
    return [requests.of(pod, as_sent if pod.gated else as_burst) for pod in pods if not pod.node_name]
