"""One look at all workloads with pods on super nodes, and one eviction at most."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import msgspec
import structlog

from controllers.clock import CLOCK, Clock
from controllers.elasticity.eligibility import candidate_of, gather
from controllers.elasticity.filters import Request
from controllers.elasticity.nodes import Nodes
from controllers.elasticity.pods import Candidate, Pod, PodSpec
from controllers.elasticity.return_home import workloads
from controllers.elasticity.return_home.failures import Failed, Failures, once_more
from controllers.elasticity.return_home.planner import (
    FAILURES,
    Attempts,
    Burst,
    Choice,
    Group,
    Member,
    Outcome,
    Return,
    choose,
    outcome,
)
from controllers.elasticity.return_home.reporter import ReturnReporter
from controllers.elasticity.return_home.room import BURSTS, ON_NODES, LocalRoom, Occupant, decode, facets
from controllers.elasticity.rules import needs, reach
from controllers.elasticity.snapshot import Snapshot, ordinal_of
from controllers.elasticity.sources import Sources
from controllers.manager import Context
from kube.client import Client
from kube.errors import ApiError, Conflict, KubeError, NotFound, ServerError
from kube.informer import Indexer, Informer
from kube.resources import PODS
from kube.types import key_of
from settings.elasticity import ReturnHome

FACET = "facet"
NO_ROOM = "no local node has room"
QUEUE = 100
"""Pods that wait for a node though local nodes have room for them: with more of them nothing returns."""
CROWDED = f"more than {QUEUE} pods wait for a node that could take the room of local nodes first"

log = structlog.stdlib.get_logger(__name__)


class Survey:
    """All that one reconcile reads of the caches."""

    def __init__(self, sources: Sources, occupants: Indexer[Occupant], now: datetime) -> None:
        self._sources, self._occupants, self._now = sources, occupants, now
        self.nodes: Nodes = sources.nodes()

    def groups(self) -> dict[str, Group]:
        """By key, those with a burst pod on a super node; the one that has been there for longest comes first."""
        found: dict[str, list[tuple[Pod, Occupant]]] = {}
        for occupant in sorted(self._occupants.by_index(FACET, BURSTS), key=_since):
            pod = self._sources.pods.get(key_of(occupant.metadata))
            is_known = pod is not None and pod.metadata.uid == occupant.metadata.uid and pod.active
            if pod is not None and is_known and occupant.node_name in self.nodes.names:
                found.setdefault(pod.key, []).append((pod, occupant))
        return {key: self._group(key, bursts) for key, bursts in found.items()}

    def members(self, pod: Pod) -> list[Member]:
        """The active pods of its workload; those of a StatefulSet may be of several revisions."""
        pods = self._sources.pods
        is_of_set = ordinal_of(pod) is not None and bool(pod.workload)
        found = pods.of_workload(pod.workload) if is_of_set else pods.of_key(pod.key)
        return [Member(other, self._is_ready(other)) for other in found if other.active]

    def room(self, begun: Iterable[Return]) -> LocalRoom | None:
        """Without what pods take that have no node yet, those included that are to replace evicted ones.

        None when too many of them could take it. Those that others hold back could not.
        """
        pods = self._sources.pods
        room = LocalRoom(self.nodes, self._occupants.by_index(FACET, ON_NODES), pods)
        waiting = (pod for pod in pods.unbound() if pod.unbound and not pod.unbound.held)
        took = 0
        for pod in waiting:
            took += room.reserve(Request(pod, candidate_of(pod).spec))
            if took > QUEUE:
                return None
        for eviction in begun:
            room.reserve(eviction.request)
        return room

    def _group(self, key: str, found: Sequence[tuple[Pod, Occupant]]) -> Group:
        snapshot = self._sources.snapshot(key, {}, self._now)
        bursts = tuple(_burst(pod, occupant, snapshot) for pod, occupant in found)
        return Group(self.members(found[0][0]), bursts, snapshot.siblings.local)

    def _is_ready(self, pod: Pod) -> bool:
        found = self._occupants.get(key_of(pod.metadata))
        return found is not None and found.metadata.uid == pod.metadata.uid and found.ready


class ReturnReconciler:
    """One reconcile at a time; failures are stored in *namespace*, our own."""

    def __init__(
        self,
        sources: Sources,
        occupants: Indexer[Occupant],
        client: Client,
        namespace: str,
        reporter: ReturnReporter,
        clock: Clock = CLOCK,
    ) -> None:
        self._sources, self._occupants, self._client = sources, occupants, client
        self._reporter, self._clock = reporter, clock
        self._attempts = Attempts(clock.monotonic)
        self._failures = Failures(client, namespace)
        self._begun: dict[str, Return] = {}
        self._crowded_since = math.inf

    def reconcile(self) -> None:
        """KubeError when former failures are not known."""
        self._failures.load()
        settings = self._sources.settings().return_home
        survey = Survey(self._sources, self._occupants, self._clock.now())
        self._follow(survey, settings)
        groups = survey.groups()
        choices = {key: self._choice(key, group, settings) for key, group in groups.items()}
        may_return = [choice.burst for choice in choices.values() if choice.burst]
        room = survey.room(self._begun.values()) if may_return else None
        places = {key: _place(room, choice) for key, choice in choices.items()}
        self._attempts.observe({key: bool(node) for key, node in places.items()})
        self._report(groups, choices, places, NO_ROOM if room else CROWDED)
        self._crowded(may_return if room is None else (), settings.after)
        if room is not None and len(self._begun) < settings.max_at_once:
            self._return_one(choices, room, survey.nodes, settings)
        self._failures.save()

    def _choice(self, key: str, group: Group, settings: ReturnHome) -> Choice:
        if (failed := self._failures.get(key)) and failed.is_final and key not in self._begun:
            return Choice(None, f"its replacements were not local {failed.times} times in a row")
        choice = choose(group, self._clock.now(), settings.after)
        return replace(choice, why="its last replacement is not ready yet") if key in self._begun else choice

    def _follow(self, survey: Survey, settings: ReturnHome) -> None:
        for key, begun in list(self._begun.items()):
            members = survey.members(begun.request.pod)
            ended = outcome(begun, members, survey.nodes.names, self._clock.monotonic() - begun.at)
            if ended is None:
                continue
            del self._begun[key]
            if ended is Outcome.KEPT:
                self._attempts.postpone(key)
            failed = self._note(begun, ended, settings)
            self._reporter.ended(begun, ended, members, failed)

    def _note(self, begun: Return, ended: Outcome, settings: ReturnHome) -> Failed | None:
        """The failures in a row with this one, if it is one."""
        failed = None
        if ended in FAILURES:
            failed = once_more(begun.before, begun.request.pod, settings.after, self._clock.now())
        as_before = begun.before if ended is Outcome.KEPT else None
        self._failures.set(begun.key, failed or as_before)
        return failed

    def _crowded(self, bursts: Sequence[Burst], after: float) -> None:
        """Of *bursts*, which could otherwise return, the first one says so when that lasts."""
        now = self._clock.monotonic()
        if not bursts:
            self._crowded_since = math.inf
            return
        self._crowded_since = min(self._crowded_since, now)
        if now - self._crowded_since >= after:
            self._reporter.blocked(bursts[0].pod, CROWDED)

    def _report(
        self,
        groups: Mapping[str, Group],
        choices: Mapping[str, Choice],
        places: Mapping[str, str],
        no_place: str,
    ) -> None:
        self._reporter.count(sum(choice.burst is not None for choice in choices.values()), len(self._begun))
        why = {
            key: choice.why or no_place for key, choice in choices.items() if choice.why or not places[key]
        }
        self._reporter.waits(why)
        self._reporter.keep_only({pod.metadata.uid for group in groups.values() for pod in _pods(group)})
        self._attempts.keep_only({*groups, *self._begun})
        pods, now = self._sources.pods, self._clock.now()
        self._failures.keep_only(lambda key, failed: bool(pods.of_key(key)) or now < failed.until)

    def _return_one(
        self, choices: Mapping[str, Choice], room: LocalRoom, nodes: Nodes, settings: ReturnHome
    ) -> None:
        """The first that is due; one that turns out not to be fit is tried again later, and another one next time."""
        if not self._attempts.may_evict(settings.interval):
            return
        for key, choice in choices.items():
            if choice.due is not None and self._is_due(key, settings.after):
                if not self._is_tried(choice.due, room, nodes, settings):
                    self._attempts.postpone(key)
                return

    def _is_due(self, key: str, after: float) -> bool:
        failed = self._failures.get(key)
        rests = failed is not None and self._clock.now() < failed.until
        return not rests and self._attempts.is_due(key, after)

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
        request = self._with_volumes(_request(burst))
        node = room.node_for(request)
        if why or not node:
            self._reporter.waits({pod.key: why or NO_ROOM})
            return False
        siblings = frozenset(other.metadata.uid for other, _ in current.pods)
        version = next(other.metadata.resource_version for other, _ in current.pods if _is(other, pod))
        if (done := self._evict(pod, version)) is False:
            return False
        self._attempts.evicted()
        before = self._failures.get(pod.key)
        self._failures.set(pod.key, once_more(before, pod, settings.after, self._clock.now()))
        self._failures.save()
        self._begun[pod.key] = Return(request, siblings, self._clock.monotonic(), before)
        if done:
            self._reporter.evicted(pod, node, settings.after)
        return True

    def _evict(self, pod: Pod, version: str) -> bool | None:
        """None when it is unknown whether it was evicted."""
        at = pod.metadata
        try:
            seen = {"uid": at.uid, "resourceVersion": version}
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
        judged = Candidate(request.pod.metadata, request.spec)
        if not (wanted := needs(judged)):
            return request
        claims = gather(wanted, request.pod.metadata.namespace, self._client)
        return Request(request.pod, request.spec, reach(judged, claims))


def _since(occupant: Occupant) -> tuple[float, str]:
    created = occupant.metadata.creation_timestamp
    return created.timestamp() if created else 0.0, key_of(occupant.metadata)


def _burst(pod: Pod, occupant: Occupant, snapshot: Snapshot) -> Burst:
    return Burst(pod, occupant, snapshot.policy(pod).replicas, snapshot.ordinal(pod).number)


def _request(burst: Burst) -> Request:
    return Request(burst.pod, msgspec.json.decode(burst.occupant.spec, type=PodSpec))


def _place(room: LocalRoom | None, choice: Choice) -> str:
    return room.node_for(_request(choice.burst)) if room is not None and choice.burst is not None else ""


def _pods(group: Group) -> Iterator[Pod]:
    return (member.pod for member in group.members)


def _is(one: Pod, other: Pod) -> bool:
    return one.metadata.uid == other.metadata.uid


class ReturnHomeController:
    """Follows the setting: pods are decoded once more only while it is on."""

    def __init__(self, context: Context, sources: Sources) -> None:
        self._context, self._sources = context, sources
        self._reporter = ReturnReporter(context.recorder)
        self._informer: Informer[Occupant] | None = None
        self._reconciler: ReturnReconciler | None = None

    def reconcile(self) -> None:
        if not self._sources.settings().return_home.enabled:
            self.close()
        elif (reconciler := self._reconciler or self._open()) is not None:
            reconciler.reconcile()

    def close(self) -> None:
        if self._informer is not None:
            self._context.informers.release(self._informer)
            self._reporter.count(0, 0)
        self._informer = self._reconciler = None

    def _open(self) -> ReturnReconciler | None:
        """None when the context stops before the pods are known."""
        informer = self._informer
        if informer is None:
            informer = self._informer = self._context.informers.of(PODS, Occupant, decode=decode)
            informer.add_index(FACET, facets)
        if not self._context.wait_synced(informer):
            return None
        client, namespace = self._context.client, self._context.namespace
        self._reconciler = ReturnReconciler(self._sources, informer, client, namespace, self._reporter)
        return self._reconciler
