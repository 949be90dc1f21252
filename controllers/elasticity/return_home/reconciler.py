"""One look at all workloads with pods on super nodes, and one eviction at most.

How often returns of a workload have failed in a row is stored, so that a new leader goes on counting. An eviction
counts as a failure until its replacement is local: so one whose outcome no leader has seen counts, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import itemgetter

import msgspec
import structlog
from prometheus_client import Counter, Gauge

from controllers.controller import CLOCK, Clock
from controllers.elasticity.eligibility import gather, request_of
from controllers.elasticity.nodes import MANAGED_BY, MANAGER, Nodes
from controllers.elasticity.pods import Pod, oldest_first
from controllers.elasticity.reporter import Reporter
from controllers.elasticity.return_home import workloads
from controllers.elasticity.return_home.planner import (
    FAILURES,
    Choice,
    Failed,
    LocalRoom,
    Outcome,
    Return,
    choose,
    once_more,
    outcome,
)
from controllers.elasticity.rules import needs, reach
from controllers.elasticity.snapshot import ordinal_of
from controllers.elasticity.sources import Sources
from kube.client import Client
from kube.errors import ApiError, Conflict, KubeError, NotFound, ServerError
from kube.store import Store
from kube.types import ConfigMap, rfc3339
from settings.elasticity import ReturnHome

RETURNING = Gauge(
    "drawbridge_elasticity_returning",
    "Workloads with pods on super nodes that may return, and those with an eviction whose replacement is not ready.",
    ["state"],
)
RETURNS = Counter(
    "drawbridge_elasticity_returns",
    "Evictions for the return to local nodes, by what became of them.",
    ["outcome"],
)

NAME, LABEL, KEY = "drawbridge-returns", "drawbridge.io/returns", "failures.json"
"""Of the ConfigMap with failures, and of these in it."""
MOST_STORED = 1000
NO_ROOM, STAYS = "no local node has room", "Stays on its super node"
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
        self, sources: Sources, client: Client, namespace: str, reporter: Reporter, clock: Clock = CLOCK
    ) -> None:
        self._sources, self._pods, self._client = sources, sources.pods, client
        self._reporter, self._clock = reporter, clock
        self._store = Store(client, namespace, ConfigMap)
        self._stored: bytes | None = None
        """None until failures are loaded."""
        self._failed: dict[str, Failed] = {}
        self._begun: dict[str, Return] = {}
        self._room_since: dict[str, float] = {}
        self._evicted_at = -math.inf
        self._crowded_since = math.inf
        self._why: dict[str, str] = {}
        for of in (*Outcome, "refused"):
            RETURNS.labels(str(of))  # an alert sees no first one that comes from nothing

    def reconcile(self) -> None:
        """KubeError when former failures are not known."""
        self._load()
        nodes, settings = self._sources.nodes(), self._sources.settings().return_home
        self._follow(nodes, settings)
        choices = {key: self._choice(pods, settings) for key, pods in self._bursts(nodes).items()}
        may_return = [choice.pod for choice in choices.values() if choice.pod]
        room = self._room(nodes) if may_return else None
        now, since = self._clock.monotonic(), self._room_since
        self._room_since = {
            key: since.get(key, now)
            for key, choice in choices.items()
            if room and choice.pod and room.node_for(request_of(choice.pod))
        }
        no_place = NO_ROOM if room else CROWDED
        whys = {key: choice.why or no_place for key, choice in choices.items()}
        self._wait({key: why for key, why in whys.items() if choices[key].why or key not in self._room_since})
        count(len(may_return), len(self._begun))
        self._crowded_since = min(self._crowded_since, now) if may_return and room is None else math.inf
        if now - self._crowded_since >= settings.after:
            self._reporter.once(may_return[0], "ReturnBlocked", f"{STAYS}: {CROWDED}", "Normal")
        for key, failed in list(self._failed.items()):
            if self._clock.now() >= failed.until and not self._pods.of_key(key):
                del self._failed[key]
        is_time = now - self._evicted_at >= settings.interval and len(self._begun) < settings.max_at_once
        if room is not None and is_time:
            self._return_one(choices, room, nodes, settings)
        self._save()

    def _load(self) -> None:
        """Once. KubeError."""
        if self._stored is not None:
            return
        found = self._store.read(NAME)
        try:
            self._failed = _DECODER.decode(found.data.get(KEY, "{}")) if found else {}
        except (msgspec.MsgspecError, RecursionError) as error:
            log.warning("failed returns not readable, counting from zero", error=str(error))
        self._stored = self._encoded()

    def _save(self) -> None:
        """What has changed; what cannot be written now is written the next time."""
        if (content := self._encoded()) == self._stored:
            return
        try:
            labels = {MANAGED_BY: MANAGER, LABEL: "elasticity"}
            self._store.write(NAME, labels, data={KEY: content.decode()})
        except KubeError as error:
            log.warning("failed returns not stored", error=str(error))
        else:
            self._stored = content

    def _encoded(self) -> bytes:
        latest = sorted(self._failed.items(), key=lambda item: item[1].until)[-MOST_STORED:]
        return msgspec.json.encode(dict(sorted(latest)))

    def _follow(self, nodes: Nodes, settings: ReturnHome) -> None:
        """What became of evictions."""
        now = self._clock.monotonic()
        for key, begun in list(self._begun.items()):
            if self._pods.current(begun.request.pod):
                begun = self._begun[key] = replace(begun, seen=now)
            members = self._members(begun.request.pod)
            ended = outcome(begun, members, nodes.names, now)
            if ended is None:
                continue
            del self._begun[key]
            self._failed.pop(key, None)
            RETURNS.labels(ended.value).inc()
            log.info("return ended", **begun.request.pod.metadata.about, outcome=ended.value)
            if ended is Outcome.KEPT:
                self._postpone(key, settings)
                if begun.doubt:
                    why = f"{STAYS} for now: {begun.doubt}"
                    self._reporter.once(begun.request.pod, "ReturnRefused", why, "Normal")
                if begun.before:
                    self._failed[key] = begun.before
            elif ended in FAILURES:
                failed = once_more(begun.before, begun.request.pod, settings.after, self._clock.now())
                self._failed[key] = failed
                self._report_failure(begun, ended, members, failed)

    def _report_failure(self, begun: Return, ended: Outcome, members: Sequence[Pod], failed: Failed) -> None:
        reason, what, new = "ReturnFailed", "came to a super node again", begun.replacements(members)
        if ended is Outcome.STALLED:
            reason, what = "ReturnStalled", "is not ready"
            new = [pod for pod in new if not pod.ready] or [begun.request.pod]
        then = f"the next return of its workload is at {rfc3339(failed.until)} at the earliest"
        if failed.is_final:
            then = (
                f"{failed.times} failures in a row, so the pods of this revision stay on super nodes;"
                " `drawbridge elasticity return` evicts them"
            )
        for pod in new:
            message = f"The replacement of {begun.request.pod.metadata.name} {what}: {then}"
            self._reporter.event(pod, reason, message, "Warning")

    def _bursts(self, nodes: Nodes) -> dict[str, list[Pod]]:
        """By key, burst pods on super nodes; what has been there for longest comes first."""
        found: dict[str, list[Pod]] = {}
        for pod in oldest_first(self._pods.burst()):
            if pod.node_name in nodes.names:
                found.setdefault(pod.key, []).append(pod)
        return found

    def _members(self, pod: Pod) -> list[Pod]:
        """The active pods of its workload; those of a StatefulSet may be of several revisions."""
        is_of_set = ordinal_of(pod) is not None and bool(pod.workload)
        found = self._pods.of_workload(pod.workload) if is_of_set else self._pods.of_key(pod.key)
        return [other for other in found if other.active]

    def _choice(self, bursts: Sequence[Pod], settings: ReturnHome) -> Choice:
        key = bursts[0].key
        is_begun, failed = key in self._begun, self._failed.get(key)
        if failed and failed.is_final and not is_begun:
            return Choice(None, f"its replacements were not local {failed.times} times in a row")
        snapshot = self._sources.snapshot(key, {}, self._clock.now())
        choice = choose(snapshot, self._members(bursts[0]), bursts, settings.after)
        return replace(choice, why="its last replacement is not ready yet") if is_begun else choice

    def _room(self, nodes: Nodes) -> LocalRoom | None:
        """Without what pods take that have no node yet, those included that are to replace evicted ones.

        None when too many of them could take it. Those that others hold back could not.
        """
        room, took = LocalRoom(nodes, self._pods), 0
        for pod in self._pods.unbound():
            took += room.reserve(request_of(pod))
            if took > QUEUE:
                return None
        for eviction in self._begun.values():
            room.reserve(eviction.replacement)
        return room

    def _return_one(
        self, choices: Mapping[str, Choice], room: LocalRoom, nodes: Nodes, settings: ReturnHome
    ) -> None:
        """The first that is due; one that turns out not to be fit is tried again later, after all others."""
        for key, since in sorted(self._room_since.items(), key=itemgetter(1)):
            pod, failed = choices[key].pod, self._failed.get(key)
            rests = failed is not None and self._clock.now() < failed.until
            if pod is None or choices[key].why or rests or self._clock.monotonic() - since < settings.after:
                continue
            try:
                is_tried = self._try(pod, room, nodes, settings)
            except KubeError as error:
                is_tried = False
                log.warning("workload not read", **pod.metadata.about, error=str(error))
            if not is_tried:
                self._postpone(key, settings)
            return

    def _postpone(self, key: str, settings: ReturnHome) -> None:
        """As if there were room since then: it is due when that was long enough ago."""
        self._room_since[key] = self._clock.monotonic() + POSTPONED - settings.after

    def _try(self, pod: Pod, room: LocalRoom, nodes: Nodes, settings: ReturnHome) -> bool:
        """Read all of it afresh, and evict it; whether it may be gone. KubeError when it cannot be read."""
        current = workloads.read(pod, self._client)
        why = workloads.changed(pod, current, nodes.names) or workloads.unsettled(current)
        if not why and (why := workloads.altered(pod, current)):
            self._reporter.once(pod, "ReturnBlocked", f"{STAYS}: {why}", "Normal")
        request = request_of(pod)
        claims = gather(needs(request), pod.metadata.namespace, self._client)
        request = replace(request, volumes=reach(claims))
        node = room.node_for(request)
        if why or not node:
            self._wait(self._why | {pod.key: why or NO_ROOM})
            return False
        if (doubt := self._evict(current.find(pod.metadata.uid) or pod)) is None:
            return False
        self._evicted_at = self._clock.monotonic()
        before = self._failed.get(pod.key)
        self._failed[pod.key] = once_more(before, pod, settings.after, self._clock.now())
        self._save()
        siblings = frozenset(other.metadata.uid for other in current.pods)
        self._begun[pod.key] = Return(request, siblings, self._evicted_at, self._evicted_at, before, doubt)
        if not doubt:
            log.info("pod evicted", **pod.metadata.about, node=pod.node_name)
            why = (
                f"Evicted from {pod.node_name}: local nodes have had room for {settings.after:g} s, for example"
                f" {node}; the scheduler decides where its replacement runs"
            )
            self._reporter.event(pod, "ReturnsHome", why, "Normal")
        return True

    def _evict(self, pod: Pod) -> str | None:
        """That version of it: why it is unknown whether it was evicted, or nothing; None when it was not."""
        at = pod.metadata
        try:
            self._client.evict(at.name, at.namespace, preconditions=at.guard)
        except (Conflict, NotFound):
            return None
        except KubeError as error:
            if isinstance(error, ServerError) or not isinstance(error, ApiError):
                return str(error)
            RETURNS.labels("refused").inc()
            log.warning("eviction refused", **at.about, error=str(error))
            self._reporter.once(pod, "ReturnRefused", f"{STAYS} for now: {error}", "Normal")
            return None
        return ""

    def _wait(self, reasons: Mapping[str, str]) -> None:
        """Why each key has no pod evicted now: logged when that changes."""
        for key, why in reasons.items():
            if self._why.get(key) != why:
                log.info("return waits", key=key, why=why)
        self._why = dict(reasons)


def count(waiting: int, in_progress: int) -> None:
    RETURNING.labels("waiting").set(waiting)
    RETURNING.labels("in_progress").set(in_progress)


_DECODER = msgspec.json.Decoder(dict[str, Failed])
