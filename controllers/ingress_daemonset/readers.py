"""Read health checkers, MetalLB and Prometheus on other threads: a reconcile waits for neither a node nor a query.

A Prometheus is asked for one value, with bounds on time and size, and without following it anywhere.
"""

from __future__ import annotations

import http.client
import math
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec
from prometheus_client import Counter

from api.health_checks import STATE_PATH, State
from api.ingress_daemonset.types import OFF, IngressDaemonSet
from controllers.controller import Clock
from controllers.executor import Submit
from controllers.ingress_daemonset.children import LONG_AGO
from controllers.ingress_daemonset.detachment import METALLB, BackendsByNode, NodeBackends, Reading, Readings
from controllers.ingress_daemonset.nodes import NodeRollout
from controllers.ingress_daemonset.pacing import Measurement, Query
from controllers.ingress_daemonset.planner import Plan
from controllers.ingress_daemonset.rollout import Snapshot
from healthchecker.answers import OK, answer_of, get
from kube.client import Client
from kube.errors import KubeError, NotFound
from kube.resources import Resource
from kube.types import Completed, ObjectMeta, Value
from runtime import threading, time
from settings.ingress_daemonset import Prometheus

SOON = 0.1
"""Seconds until the first answer is looked for."""
LOOK = 1.0
"""Seconds until another one is."""
OLD = 30.0
"""Seconds after its period in which an answer still counts."""
K = TypeVar("K")
V = TypeVar("V")


class Reader(Generic[K, V]):
    """The last answers to what is wanted; each is read again after its *period*, in seconds.

    *submit* hands work to another thread, and *read* raises nothing. Safe to use from any thread.
    """

    def __init__(
        self,
        submit: Submit,
        stop: threading.Event,
        read: Callable[[K], V],
        period: Callable[[K], float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._submit, self._stop, self._read = submit, stop, read
        self._period, self._clock = period, clock
        self._known: dict[K, tuple[float, V]] = {}
        """With the time at which each was asked for."""
        self._under_way: set[K] = set()
        self._lock = threading.Lock()

    def latest(self, wanted: Set[K]) -> tuple[dict[K, V], float | None]:
        """The last answers; seconds until there may be others, None without *wanted*."""
        now = self._clock()
        with self._lock:
            self._known = {
                key: known for key, known in self._known.items() if now - known[0] <= OLD + self._period(key)
            }
            found = {key: self._known[key] for key in wanted & self._known.keys()}
            due = {key: at + self._period(key) - now for key, (at, _) in found.items()}
            begins = {key for key in wanted - self._under_way if due.get(key, 0.0) <= 0}
            self._under_way |= begins
            awaited = wanted & self._under_way
        for key in begins:
            self._submit(partial(self._update, key))
        dues = [LOOK if key in awaited else each for key, each in due.items()]
        again = min(dues, default=None) if due.keys() == wanted else SOON
        return {key: answer for key, (_, answer) in found.items()}, again

    def _update(self, key: K) -> None:
        began = self._clock()
        try:
            if not self._stop.is_set():
                answer = self._read(key)
                with self._lock:
                    self._known[key] = (began, answer)
        finally:
            with self._lock:
                self._under_way.discard(key)


READS = Counter("drawbridge_ingress_daemonset_checker_reads", "Readings of health checkers.", ["result"])
for _result in ("ok", "error"):
    READS.labels(_result)
PERIOD = 1.0
"""Seconds between two readings of a checker."""
TIMEOUT = 2.0
LONGEST = 1 << 16
"""Bytes of an answer."""


class Checker(NamedTuple):
    """Where the health checker of a node is reached."""

    node: str
    address: str
    port: int


def checkers_of(rollouts: Iterable[NodeRollout], canary: Sequence[str] = ()) -> set[Checker]:
    """Those whose answer a node waits for, detached or just attached, and those of the nodes of the *canary*."""
    return {
        Checker(each.node.name, each.node.address, port)
        for each in rollouts
        if (each.is_detaching and each.rolling.connections is not None)
        or (
            (each.is_detaching or each.settled_at or each.node.name in canary) and each.rolling.confirm != OFF
        )
        for port in each.resource.spec.health_check_node_ports
    }


def by_node(found: Mapping[Checker, Reading]) -> Readings:
    readings: dict[str, tuple[Reading, ...]] = {}
    for checker in sorted(found):
        readings[checker.node] = (*readings.get(checker.node, ()), found[checker])
    return readings


def read(checker: Checker) -> Reading:
    """Raises nothing."""
    try:
        if not checker.address:
            raise ValueError("its Node has no InternalIP")
        answer = get(checker.address, checker.port, STATE_PATH, TIMEOUT, LONGEST)
        if answer.status != OK:
            raise ValueError(f"it answers {answer.status} at {STATE_PATH}, and not as a health checker does")
        reading = Reading(checker.address, checker.port, msgspec.json.decode(answer.body, type=State))
    except (OSError, http.client.HTTPException, ValueError, RecursionError) as error:
        reading = Reading(checker.address, checker.port, error=str(error) or type(error).__name__)
    READS.labels("error" if reading.state is None else "ok").inc()
    return reading


MEASUREMENTS = Counter(
    "drawbridge_ingress_daemonset_canary_measurements",
    "Queries about canaries, by whether they had one value.",
    ["result"],
)
for _result in ("value", "inconclusive"):
    MEASUREMENTS.labels(_result)


class Announcement(Value, frozen=True):
    """Of one Service, from one node."""

    node: str = ""
    service_name: str = ""
    service_namespace: str = ""


class AnnouncementStatus(Value, frozen=True):
    """A ServiceL2Status or ServiceBGPStatus."""

    metadata: ObjectMeta = ObjectMeta()
    status: Announcement = Announcement()


Announcements = Mapping[str, str] | KubeError
"""By node, one Service that MetalLB announces from it; or why that is not known."""
STATUSES = tuple(
    Resource("metallb.io", "v1beta1", plural) for plural in ("servicel2statuses", "servicebgpstatuses")
)


def announcements(client: Client, _key: str = METALLB) -> Announcements:
    """Raises nothing. None where MetalLB is not installed, or so old that it says nothing."""
    found = dict[str, str]()
    for resource in STATUSES:
        try:
            items = client.list(resource, type=AnnouncementStatus, timeout=TIMEOUT).items
        except NotFound:
            continue
        except KubeError as error:
            return error
        found |= {
            at.node: f"{at.service_namespace}/{at.service_name}" for at in (each.status for each in items)
        }
    return found


def with_announcements(
    backends: BackendsByNode, nodes: Iterable[str], known: Announcements | None
) -> BackendsByNode:
    """*known* is None until it was read for the first time."""

    def of(node: str) -> NodeBackends:
        if known is None:
            return NodeBackends(METALLB, error="has not been read yet")
        if isinstance(known, KubeError):
            return NodeBackends(METALLB, error=f"could not be read: {known}")
        service = known.get(node)
        return NodeBackends(
            METALLB, LONG_AGO, error=f"announces {service} from the node" if service else None
        )

    return {**backends, **{node: (*backends.get(node, ()), of(node)) for node in nodes}}


Ask = Callable[[str], float]


def measure(ask: Ask, clock: Clock, query: Query) -> Measurement:
    """Raises nothing, though *ask* may raise as a client of HTTP does."""
    now = clock.now()
    try:
        found = Measurement(query, now, ask(query.text))
    except (OSError, http.client.HTTPException, ValueError) as error:
        found = Measurement(query, now, error=str(error) or type(error).__name__)
    MEASUREMENTS.labels("inconclusive" if found.value is None else "value").inc()
    return found


class Questions(NamedTuple):
    """What a plan waits for that is no object; *announcements* has MetalLB while a node waits until it is left out."""

    checkers: Set[Checker]
    announcements: Set[str]
    queries: Set[Query]

    def are_within(self, others: Questions) -> bool:
        return all(mine <= theirs for mine, theirs in zip(self, others, strict=True))


def questions_of(planned: Plan) -> Questions:
    return Questions(
        checkers_of(planned.rollouts, planned.unanswered),
        {METALLB for each in planned.rollouts if each.is_detaching and each.follows_label},
        {planned.query} if planned.query else set(),
    )


@dataclass(frozen=True)
class Readers:
    """What answers later, and is not waited for; *backends* are what load balancers have of nodes, by their names."""

    checkers: Reader[Checker, Reading]
    announcements: Reader[str, Announcements]
    metrics: Reader[Query, Measurement]
    backends: Callable[[IngressDaemonSet, Sequence[str]], BackendsByNode]

    def answered(self, snapshot: Snapshot, asked: Questions) -> tuple[Snapshot, float | None]:
        """*snapshot* with the last answers; seconds until there may be others, None where nothing is *asked*."""
        readings, next_reading = self.checkers.latest(asked.checkers)
        announced, next_announcement = self.announcements.latest(asked.announcements)
        measured, next_measurement = self.metrics.latest(asked.queries)
        resource, nodes = snapshot.resource, snapshot.nodes
        backends = self.backends(resource, [each.name for each in nodes])
        # Also of nodes that it was not asked about yet: none is released before that.
        follows = resource.spec.update_strategy.rolling_update.labels_node
        excluded = [each.name for each in nodes if follows and each.excluded]
        found = replace(
            snapshot,
            readings=by_node(readings),
            backends=with_announcements(backends, excluded, announced.get(METALLB)),
            measured=next(iter(measured.values()), None),
        )
        dues = (next_reading, next_announcement, next_measurement)
        return found, min((each for each in dues if each is not None), default=None)


PATH = "/api/v1/query"
QUERY_TIMEOUT = 5.0
"""Seconds for one answer, however slowly it is sent."""
LONGEST_ERROR = 200
"""Characters of what it says of an error, which a status repeats."""


class Inconclusive(ValueError):
    """The answer has no single value; the message says why."""


class Scalar(msgspec.Struct, metaclass=Completed, tag_field="resultType", tag="scalar"):
    result: tuple[float, str]


class Series(msgspec.Struct, metaclass=Completed):
    value: tuple[float, str]


class Vector(msgspec.Struct, metaclass=Completed, tag_field="resultType", tag="vector"):
    result: list[Series]


class Answer(msgspec.Struct, metaclass=Completed):
    data: Scalar | Vector | None = None
    error: str = ""


def ask(prometheus: Prometheus, query: str) -> float:
    """The one value that *query* has now, which is finite. OSError, HTTPException, ValueError."""
    if not prometheus.url:
        raise Inconclusive("no Prometheus is configured: set ingressDaemonSet.prometheus.url")
    url = urlsplit(prometheus.url)
    host = (url.hostname or "", url.port)
    connection = http.client.HTTPConnection(*host, timeout=QUERY_TIMEOUT)
    if url.scheme != "http":
        trusted = ssl.create_default_context(cafile=prometheus.ca_file or None)
        connection = http.client.HTTPSConnection(*host, timeout=QUERY_TIMEOUT, context=trusted)
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    if prometheus.token_file:
        # Read each time: tokens of ServiceAccounts are replaced.
        headers["Authorization"] = f"Bearer {Path(prometheus.token_file).read_text().strip()}"
    body = urlencode({"query": query, "timeout": f"{QUERY_TIMEOUT:g}s"})
    path = url.path.rstrip("/") + PATH
    return value_of(*answer_of(connection, "POST", path, body, headers, longest=LONGEST))


def value_of(status: int, body: bytes) -> float:
    """Of an answer. Inconclusive for one that has no value, several, or none that can be compared."""
    try:
        answer = msgspec.json.decode(body, type=Answer)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Inconclusive(
            f"it answers {status}, and not with one value as Prometheus does: {_line(str(error))}"
        ) from None
    if status != OK or answer.data is None:
        raise Inconclusive(f"it answers {status}: {_line(answer.error)}")
    found = answer.data
    values = [found.result] if isinstance(found, Scalar) else [each.value for each in found.result]
    if len(values) != 1:
        way_out = "write one with a single value, as by sum()" if values else "no series matches it"
        raise Inconclusive(f"the query has {len(values)} series: {way_out}")
    [(_, text)] = values
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise Inconclusive(f"the query has the value {_line(text)}, which is no finite number")
    return value


def _line(text: str) -> str:
    """What fits into a sentence of a status."""
    return "".join(each if each.isprintable() else " " for each in text[:LONGEST_ERROR]) or "without a reason"
