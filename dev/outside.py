"""A real cluster as it is seen from outside, put before the invariants of ``dev.judge`` at every change, and at rest.

Four sources show it: watches of the API server, the cloud's list of addresses, a load balancer, and the IPAM of the
lab: what an IPReservation holds is not given away, and a pod that is there has its address. What the API server shows
is in order, by the revisions of its one etcd, whichever watch is late. The others are ordered with it by time alone,
which is not exact: ``SKEW`` is what they are allowed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from heapq import heappop, heappush
from itertools import count
from typing import Any, Protocol, TypeVar

from dev.judge import (
    Disturbances,
    Finding,
    Invariant,
    Judge,
    Observation,
    address,
    edge,
    placement,
    reservation,
)
from dev.judge.judge import Since
from dev.judge.observation import CLUSTER_TAG, CloudAddress, is_ready, is_terminating, labels, notes
from dev.lab.errors import LabError
from dev.lab.session import Lab
from dev.lab.watching import Observation as Event
from dev.lab.watching import Observations, observed_by_now, watching
from dev.simulator.models.load_balancer import LoadBalancer
from kube.client import Client, Resource
from kube.resources import DEPLOYMENTS, NODES, PODS, STATEFUL_SETS

T = TypeVar("T")
Raw = dict[str, Any]
SKEW = 2.0
"""Seconds by which one source may be behind another. Each event of a watch waits so long for earlier ones; what the
cloud did is shown so much later than what made it do so; a load balancer uses a node when it did so long before and
after; and a state that contradicts a promise must last so long to count."""
EVERY, PROBES = 0.25, 1.0
SETTLED = 10.0
"""Seconds for which a node has been there before it counts."""
WORKLOADS = (DEPLOYMENTS, STATEFUL_SETS)
OVER = ("Succeeded", "Failed")


class Lasting(Invariant):
    """A promise about states: it is broken when the same invariant finds something at each look for ``SKEW``."""

    def __init__(self, invariant: Invariant) -> None:
        self.name, self._invariant, self._broken = invariant.name, invariant, Since()

    def look(self, seen: Observation) -> Iterator[str]:
        found = list(self._invariant.look(seen))
        if self._broken.of([self.name] if found else [], seen.at).get(self.name, 0.0) > SKEW:
            yield found[0]

    def rest(self, seen: Observation) -> Iterator[str]:
        yield from self._invariant.rest(seen)


def of_reservations(seconds: float) -> list[Invariant]:
    return [reservation.KeptOutOfCirculation(seconds, SKEW), reservation.ReservationsEnd()]


def of_addresses() -> list[Invariant]:
    """A cloud that takes longer to bind than a node may be open without its address shows who opens before."""
    return [
        address.BoundStaysBound(SETTLED),
        Lasting(address.BoundOnce()),
        address.OpenWithAddress(3 * SKEW),
        address.OpensInTheEnd(),
        address.CloudIsWhatNodesNeed(),
    ]


def of_placement() -> list[Invariant]:
    return [
        placement.NeverMoreThanNLocal(),
        placement.NoneWaitsBehindAGate(None),
        placement.RolloutsOfWorkloadsEnd(),
    ]


def of_edges() -> list[Invariant]:
    return [
        Lasting(edge.EdgeServes(SETTLED)),
        edge.StoppedOnlyDetached(),
        edge.RolloutsEnd(),
        edge.CompleteIsTrue(),
        edge.CompleteIsCurrent(),
    ]


class Balancer(Protocol):
    """*uses* are the nodes that get traffic, *answers* the statuses of their health checks, as of the last look."""

    uses: set[str]
    answers: Mapping[str, int]

    def poll(self, nodes: Mapping[str, Raw], pods: Mapping[str, Raw], at: float) -> None: ...


class Detacher:
    """Its controller takes a node off *grace* seconds after annotation *key* of the Node; there are no probes."""

    def __init__(self, key: str, grace: float) -> None:
        self._key, self._grace, self._annotated = key, grace, Since()
        self.uses: set[str] = set()
        self.answers: Mapping[str, int] = {}

    def poll(self, nodes: Mapping[str, Raw], pods: Mapping[str, Raw], at: float) -> None:
        off = {name for name, node in nodes.items() if self._key in notes(node)}
        since = self._annotated.of(off, at)
        self.uses = {name for name in nodes if since.get(name, -1.0) < self._grace - SKEW}
        serve = {labels(pod).get(edge.NODE_LABEL, "") for pod in pods.values() if _serves(pod)} - off
        self.answers = {name: 200 if name in serve else 503 for name in nodes}


class Prober:
    """It goes by what *probe* is answered, and is shown as of then; *uses* are those that it used all around then."""

    def __init__(self, probe: Callable[[], Mapping[str, int]]) -> None:
        self._model = LoadBalancer(probe)
        self._past: list[tuple[float, set[str], Mapping[str, int]]] = []
        self.uses: set[str] = set()
        self.answers: Mapping[str, int] = {}

    def poll(self, nodes: Mapping[str, Raw], pods: Mapping[str, Raw], at: float) -> None:
        if not self._past or time.time() >= self._past[-1][0] + PROBES:
            self._model.poll()
            self._past.append((time.time(), set(self._model.uses), self._model.answers))
        while len(self._past) > 1 and self._past[1][0] <= at - SKEW:
            del self._past[0]
        self.uses = set.intersection(*(uses for _, uses, _ in self._past))
        self.answers = next((answers for then, _, answers in reversed(self._past) if then <= at), {})


class Outside:
    """Any thread may ask it."""

    def __init__(
        self,
        lab: Lab,
        invariants: Sequence[Invariant],
        events: Mapping[str, Observations],
        balancer: Balancer | None,
        namespace: str,
    ) -> None:
        self._lab, self._invariants, self._events, self._balancer = lab, invariants, events, balancer
        self._namespaces = {"", namespace} if namespace else None
        self._has_cloud = any(isinstance(each, address.CloudIsWhatNodesNeed) for each in invariants)
        self._judge, self._lock = Judge(invariants), threading.RLock()
        self._waiting: list[tuple[int, int, str, Event]] = []
        self._numbers, self._disturbances = count(), Disturbances()
        self._shown: dict[str, dict[str, Raw]] = {}
        """By resource and uid."""
        self._bills: list[tuple[float, Mapping[str, CloudAddress]]] = []
        self._begin = self._at = self._up_to = time.time()
        self._ended = threading.Event()
        self._error: Exception | None = None
        self._addresses = self._bill()
        self._take_in(until=float("inf"))
        self.seen = self._observation()

    def disturb(self, *subjects: str) -> None:
        """Another than us interferes with these, by their names, from now on for a while."""
        for each in subjects:
            self._disturbances.note(each, time.time() - self._begin)

    def findings(self) -> list[Finding]:
        """All that was found, up to this moment, when it is shown."""
        now = time.time()
        self._lab.wait(lambda: self._error or self._up_to > now, 60, "all sources to be current")
        if self._error:
            raise self._error
        with self._lock:
            return list(self._judge.findings.values())

    def at_rest(self, seconds: float = 120.0) -> list[Finding]:
        """The same, once the promises of rest are kept, or *seconds* are over."""
        with suppress(LabError):
            self._lab.wait(lambda: not self._complaints(), seconds, "rest")
        with self._lock:
            self._judge.rest(self.seen)
            return list(self._judge.findings.values())

    def wait(self, condition: Callable[[Observation], T | None], what: str, seconds: float = 120.0) -> T:
        return self._lab.wait(lambda: condition(self.seen), seconds, what)

    def _complaints(self) -> bool:
        if self.findings():
            return False
        with self._lock:
            return any(next(each.rest(self.seen), None) is not None for each in self._invariants)

    def run(self) -> None:
        try:
            while not self._ended.wait(EVERY):
                self._go_on(time.time())
        except Exception as error:
            self._error = error
            raise

    def _go_on(self, now: float) -> None:
        self._bills.append((now + 2 * SKEW, self._bill()))
        with self._lock:
            while self._bills[0][0] <= now:
                self._addresses = self._bills.pop(0)[1]
            self._take_in(until=now - SKEW)
            self._look(now - SKEW)
            self._up_to = now - 2 * SKEW

    def end(self) -> None:
        self._ended.set()

    def _take_in(self, until: float) -> None:
        """Look at each event of before *until*, in the order of revisions; at many at once when there is no time."""
        begun = time.monotonic()
        for what, events in self._events.items():
            for each in observed_by_now(events):
                heappush(self._waiting, (each.revision, next(self._numbers), what, each))
        while self._waiting and self._waiting[0][3].seen.timestamp() <= until:
            *_, what, event = heappop(self._waiting)
            raw: Any = event.object
            if self._namespaces and raw["metadata"].get("namespace", "") not in self._namespaces:
                continue
            self._show(what, raw, gone=event.gone)
            if until < float("inf") and time.monotonic() - begun < EVERY:  # the first lists are one instant
                self._look(event.seen.timestamp())

    def _show(self, what: str, raw: Raw, *, gone: bool) -> None:
        shown = self._shown.setdefault(what, {})
        if gone:
            shown.pop(raw["metadata"]["uid"], None)
        else:
            shown[raw["metadata"]["uid"]] = raw

    def _look(self, at: float) -> None:
        self._at = max(self._at, at)
        self.seen = self._observation()
        self._judge.look(self.seen)

    def _bill(self) -> Mapping[str, CloudAddress]:
        rows = self._lab.cloud.state()["addresses"] if self._has_cloud else ()
        return {each["id"]: _elastic(each) for each in rows}

    def _observation(self) -> Observation:
        shown: Callable[[str], dict[str, Raw]] = lambda what: self._shown.get(what, {})  # noqa: E731
        nodes = {raw["metadata"]["name"]: raw for raw in shown("nodes").values()}
        if self._balancer:
            self._balancer.poll(nodes, shown("pods"), self._at)
        return Observation(
            at=self._at - self._begin,
            nodes=nodes,
            pods=dict(shown("pods")),
            workloads={**shown("deployments"), **shown("statefulsets")},
            ingress_daemon_sets=list(shown("ingressdaemonsets").values()),
            uses=set(self._balancer.uses) if self._balancer else (),
            answers=dict(self._balancer.answers) if self._balancer else {},
            addresses=self._addresses,
            disturbances=self._disturbances,
            reserved={
                entry.partition("/")[0]
                for raw in shown("ipreservations").values()
                for entry in raw["spec"].get("reservedCIDRs") or ()
            },
            assigned={
                raw["status"]["podIP"]: uid
                for uid, raw in shown("pods").items()
                if raw["status"].get("podIP") and raw["status"].get("phase") not in OVER
            },
        )


def _serves(pod: Raw) -> bool:
    return is_ready(pod) and not is_terminating(pod)


def _elastic(row: Raw) -> CloudAddress:
    return CloudAddress(row["id"], row["status"], row["instance_id"], CLUSTER_TAG in row["tags"])


@contextmanager
def judged(
    lab: Lab,
    invariants: Sequence[Invariant],
    *kinds: Resource,
    client: Client | None = None,
    balancer: Balancer | None = None,
    namespace: str = "",
) -> Iterator[Outside]:
    """From now until the end of the block, by way of *client* if it is not the lab's own.

    *kinds* are looked at beside nodes and pods: all of them, or those of one *namespace*.
    """
    with ExitStack() as stack:
        events = {
            kind.plural: stack.enter_context(watching(client or lab.client, {kind: dict}))
            for kind in (NODES, PODS, *kinds)
        }
        outside = Outside(lab, invariants, events, balancer, namespace)
        pool = stack.enter_context(ThreadPoolExecutor(1))
        running: Future[None] = pool.submit(outside.run)
        try:
            yield outside
        finally:
            outside.end()
        running.result()
