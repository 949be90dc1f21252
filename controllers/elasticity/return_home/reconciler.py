"""One look at all workloads with pods on super nodes, and one eviction at most."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
import structlog

from controllers.clock import CLOCK, Clock
from controllers.elasticity.eligibility import gather, request_of
from controllers.elasticity.filters import Request
from controllers.elasticity.nodes import Nodes
from controllers.elasticity.pods import Pod, PodSpec, oldest_first
from controllers.elasticity.return_home import workloads
from controllers.elasticity.return_home.failures import Failed, Failures, once_more
from controllers.elasticity.return_home.planner import (
    FAILURES,
    Burst,
    Choice,
    Group,
    Outcome,
    Return,
    choose,
    outcome,
)
from controllers.elasticity.return_home.reporter import ReturnReporter
from controllers.elasticity.return_home.room import LocalRoom
from controllers.elasticity.rules import needs, reach
from controllers.elasticity.snapshot import Location, ordinal_of
from controllers.elasticity.sources import Sources
from kube.client import Client
from kube.errors import ApiError, Conflict, KubeError, NotFound, ServerError
from settings.elasticity import ReturnHome

NO_ROOM = "no local node has room"
POSTPONED = 60.0
"""Seconds after which a workload that was refused is tried again."""
QUEUE = 100
"""Pods that wait for a node though local nodes have room for them: with more of them nothing returns."""
CROWDED = f"more than {QUEUE} pods wait for a node that could take the room of local nodes first"

log = structlog.stdlib.get_logger(__name__)


class ReturnReconciler:
    """One reconcile at a time; failures are stored in *namespace*, our own.

    The pods of *sources* are decoded with what they request. Of room, and of evictions, a new leader begins with
    nothing, and so waits.
    """

    def __init__(
        self,
        sources: Sources,
        client: Client,
        namespace: str,
        reporter: ReturnReporter,
        clock: Clock = CLOCK,
    ) -> None:
        self._sources, self._pods, self._client = sources, sources.pods, client
        self._reporter, self._clock = reporter, clock
        self._failures = Failures(client, namespace)
        self._begun: dict[str, Return] = {}
        self._room_since: dict[str, float] = {}
        self._not_before: dict[str, float] = {}
        self._evicted_at = -math.inf
        self._crowded_since = math.inf

    def reconcile(self) -> None:
        """KubeError when former failures are not known."""
        self._failures.load()
        nodes, settings = self._sources.nodes(), self._sources.settings().return_home
        self._follow(nodes, settings)
        groups = self._groups(nodes)
        choices = {key: self._choice(key, group, settings) for key, group in groups.items()}
        may_return = [choice.burst for choice in choices.values() if choice.burst]
        room = self._room(nodes) if may_return else None
        places = {key: _place(room, choice) for key, choice in choices.items()}
        now = self._clock.monotonic()
        self._room_since = {key: self._room_since.get(key, now) for key, node in places.items() if node}
        no_place = NO_ROOM if room else CROWDED
        self._reporter.count(len(may_return), len(self._begun))
        self._reporter.waits(
            {key: choice.why or no_place for key, choice in choices.items() if choice.why or not places[key]}
        )
        self._crowded(may_return if room is None else (), settings.after)
        self._forget(groups)
        if room is not None and len(self._begun) < settings.max_at_once:
            self._return_one(choices, room, nodes, settings)
        self._failures.save()

    def _follow(self, nodes: Nodes, settings: ReturnHome) -> None:
        """What became of evictions."""
        for key, begun in list(self._begun.items()):
            members = self._members(begun.request.pod)
            ended = outcome(begun, members, nodes.names, self._clock.monotonic() - begun.at)
            if ended is None:
                continue
            del self._begun[key]
            if ended is Outcome.KEPT:
                self._postpone(key)
            failed = self._note(begun, ended, settings)
            self._reporter.ended(begun, ended, members, failed)

    def _note(self, begun: Return, ended: Outcome, settings: ReturnHome) -> Failed | None:
        """The failures in a row with this one, if it is one."""
        known, failed = self._failures.known, None
        known.pop(begun.key, None)
        if ended in FAILURES:
            failed = once_more(begun.before, begun.request.pod, settings.after, self._clock.now())
            known[begun.key] = failed
        elif ended is Outcome.KEPT and begun.before:
            known[begun.key] = begun.before
        return failed

    def _groups(self, nodes: Nodes) -> dict[str, Group]:
        """By key, those with a burst pod on a super node; the one that has been there for longest comes first."""
        found: dict[str, list[Pod]] = {}
        for pod in oldest_first(self._pods.burst()):
            if pod.node_name in nodes.names:
                found.setdefault(pod.key, []).append(pod)
        return {key: self._group(key, bursts) for key, bursts in found.items()}

    def _group(self, key: str, bursts: Sequence[Pod]) -> Group:
        snapshot = self._sources.snapshot(key, {}, self._clock.now())
        policies = [(pod, snapshot.policy(pod)) for pod in bursts]
        asking = [Burst(pod, policy.replicas, policy.ordinal) for pod, policy in policies]
        return Group(self._members(bursts[0]), asking, snapshot.siblings[Location.LOCAL])

    def _members(self, pod: Pod) -> list[Pod]:
        """The active pods of its workload; those of a StatefulSet may be of several revisions."""
        is_of_set = ordinal_of(pod) is not None and bool(pod.workload)
        found = self._pods.of_workload(pod.workload) if is_of_set else self._pods.of_key(pod.key)
        return [other for other in found if other.active]

    def _choice(self, key: str, group: Group, settings: ReturnHome) -> Choice:
        if (failed := self._failures.known.get(key)) and failed.is_final and key not in self._begun:
            return Choice(None, f"its replacements were not local {failed.times} times in a row")
        choice = choose(group, self._clock.now(), settings.after)
        return replace(choice, why="its last replacement is not ready yet") if key in self._begun else choice

    def _room(self, nodes: Nodes) -> LocalRoom | None:
        """Without what pods take that have no node yet, those included that are to replace evicted ones.

        None when too many of them could take it. Those that others hold back could not.
        """
        room = LocalRoom(nodes, self._pods)
        waiting = (pod for pod in self._pods.unbound() if pod.unbound and not pod.unbound.held)
        took = 0
        for pod in waiting:
            took += room.reserve(request_of(pod))
            if took > QUEUE:
                return None
        for eviction in self._begun.values():
            room.reserve(eviction.request)
        return room

    def _crowded(self, bursts: Sequence[Burst], after: float) -> None:
        """Of *bursts*, which could otherwise return, the first one says so when that lasts."""
        now = self._clock.monotonic()
        self._crowded_since = min(self._crowded_since, now) if bursts else math.inf
        if now - self._crowded_since >= after:
            self._reporter.blocked(bursts[0].pod, CROWDED)

    def _forget(self, groups: Mapping[str, Group]) -> None:
        self._reporter.keep_only({pod.metadata.uid for group in groups.values() for pod in group.members})
        wanted = {*groups, *self._begun}
        self._not_before = {key: until for key, until in self._not_before.items() if key in wanted}
        known, now = self._failures.known, self._clock.now()
        for key in [
            key for key, failed in known.items() if now >= failed.until and not self._pods.of_key(key)
        ]:
            del known[key]

    def _return_one(
        self, choices: Mapping[str, Choice], room: LocalRoom, nodes: Nodes, settings: ReturnHome
    ) -> None:
        """The first that is due; one that turns out not to be fit is tried again later, and another one next time."""
        if self._clock.monotonic() - self._evicted_at < settings.interval:
            return
        for key, choice in choices.items():
            if choice.due is not None and self._is_due(key, settings.after):
                if not self._is_tried(choice.due, room, nodes, settings):
                    self._postpone(key)
                return

    def _is_due(self, key: str, after: float) -> bool:
        now, failed = self._clock.monotonic(), self._failures.known.get(key)
        rests = now < self._not_before.get(key, now) or (failed and self._clock.now() < failed.until)
        return not rests and now - self._room_since.get(key, now) >= after

    def _postpone(self, key: str) -> None:
        self._not_before[key] = self._clock.monotonic() + POSTPONED

    def _is_tried(self, burst: Burst, room: LocalRoom, nodes: Nodes, settings: ReturnHome) -> bool:
        try:
            return self._try(burst, room, nodes, settings)
        except KubeError as error:
            at = burst.pod.metadata
            log.warning("workload not read", namespace=at.namespace, name=at.name, error=str(error))
            return False

    def _try(self, burst: Burst, room: LocalRoom, nodes: Nodes, settings: ReturnHome) -> bool:
        """Read all of it afresh, and evict it; whether it may be gone. KubeError when it cannot be read."""
        pod = burst.pod
        current = workloads.read(pod, self._client)
        why = workloads.changed(pod, current, nodes.names) or workloads.unsettled(current)
        if not why and (why := workloads.altered(pod, current)):
            self._reporter.blocked(pod, why)
        request = self._with_volumes(_request(pod))
        node = room.node_for(request)
        if why or not node:
            self._reporter.waits({pod.key: why or NO_ROOM})
            return False
        if (done := self._evict(current.find(pod.metadata.uid) or pod)) is False:
            return False
        self._evicted_at = self._clock.monotonic()
        before = self._failures.known.get(pod.key)
        self._failures.known[pod.key] = once_more(before, pod, settings.after, self._clock.now())
        self._failures.save()
        siblings = frozenset(other.metadata.uid for other in current.pods)
        self._begun[pod.key] = Return(request, siblings, self._evicted_at, before)
        if done:
            self._reporter.evicted(pod, node, settings.after)
        return True

    def _evict(self, pod: Pod) -> bool | None:
        """That version of it. None when it is unknown whether it was evicted."""
        at = pod.metadata
        try:
            seen = {"uid": at.uid, "resourceVersion": at.resource_version}
            self._client.evict(at.name, at.namespace, preconditions=seen)
        except (Conflict, NotFound):
            return False
        except ServerError:
            return None
        except ApiError as error:
            self._reporter.refused(pod, error)
            return False
        except KubeError:
            return None
        return True

    def _with_volumes(self, request: Request) -> Request:
        if not (wanted := needs(request)):
            return request
        claims = gather(wanted, request.metadata.namespace, self._client)
        return replace(request, volumes=reach(request, claims))


def _request(pod: Pod) -> Request:
    return Request(pod, msgspec.json.decode(pod.burst_spec, type=PodSpec))


def _place(room: LocalRoom | None, choice: Choice) -> str:
    return room.node_for(_request(choice.burst.pod)) if room is not None and choice.burst is not None else ""
