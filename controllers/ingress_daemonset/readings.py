"""What health checkers say of themselves, read in other threads: a reconcile never waits for a node."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

import msgspec
from prometheus_client import Counter

from controllers.executor import Work
from controllers.ingress_daemonset.confirmation import Reading, Readings
from controllers.ingress_daemonset.node_rollout import Phase, Site
from healthchecker import STATE_PATH
from healthchecker.state import State
from webhook.ingress_daemonset.types import OFF

PERIOD = 1.0
"""Seconds between two readings of a checker."""
SOON = 0.1
"""Seconds after which the first reading is looked for."""
OLD = 30.0
"""Seconds after which a reading counts for nothing."""
TIMEOUT = 2.0
LONGEST = 1 << 16
"""Bytes of an answer."""

READS = Counter("drawbridge_ingress_daemonset_checker_reads", "Readings of health checkers.", ["result"])
for _result in ("ok", "error"):
    READS.labels(_result)


@dataclass(frozen=True)
class Checker:
    """Where the health checker of a node is reached."""

    node: str
    address: str
    port: int


def checkers_of(sites: Iterable[Site]) -> set[Checker]:
    """Those on whose word a node waits."""
    return {
        Checker(site.node.name, site.node.address, port)
        for site in sites
        if site.phase in (Phase.DETACHING, Phase.DRAINING) and site.rolling.confirm != OFF
        for port in site.resource.spec.health_check_node_ports
    }


def read(checker: Checker) -> Reading:
    """Ask it now; nothing is raised."""
    try:
        if not checker.address:
            raise ValueError("its Node has no InternalIP")
        state, error = _state(checker), ""
    except (OSError, http.client.HTTPException, ValueError) as failure:
        state, error = None, str(failure) or type(failure).__name__
    return Reading(checker.address, checker.port, state, error)


def _state(checker: Checker) -> State:
    """OSError, HTTPException, or ValueError for an answer that is none."""
    end = time.monotonic() + TIMEOUT
    connection = http.client.HTTPConnection(checker.address, checker.port, timeout=TIMEOUT)
    try:
        connection.request("GET", STATE_PATH)
        answer = connection.getresponse()
        if answer.status != http.HTTPStatus.OK:
            raise ValueError(f"it answers {answer.status} at {STATE_PATH}, as one of an older image does")
        return msgspec.json.decode(_body(answer, end), type=State)
    finally:
        connection.close()


def _body(answer: http.client.HTTPResponse, end: float) -> bytes:
    """However slowly it comes, it ends in time."""
    body = b""
    while chunk := answer.read1(LONGEST):
        body += chunk
        if len(body) > LONGEST:
            raise ValueError("its answer is too long")
        if time.monotonic() > end:
            raise TimeoutError("its answer took too long")
    return body


@dataclass
class Reader:
    """Safe to use from any thread; *hand_out* takes work for another one."""

    hand_out: Callable[[Work], None]
    read: Callable[[Checker], Reading] = read
    stopped: Callable[[], bool] = lambda: False
    clock: Callable[[], float] = time.monotonic
    _known: dict[Checker, tuple[float, Reading]] = field(default_factory=dict)
    _under_way: set[Checker] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def look(self, asked: Iterable[Checker]) -> tuple[Readings, float | None]:
        """What is known of them, by node; seconds until there may be more, None when none is asked."""
        wanted, now = set(asked), self.clock()
        with self._lock:
            self._known = {each: known for each, known in self._known.items() if now - known[0] <= OLD}
            known = dict(self._known)
            due = {each for each in wanted - self._under_way if now - known.get(each, (-OLD,))[0] >= PERIOD}
            self._under_way |= due
        for each in due:
            self.hand_out(partial(self._read, each))
        if not wanted:
            return {}, None
        return _by_node(wanted, known), PERIOD if wanted <= known.keys() else SOON

    def _read(self, checker: Checker) -> None:
        try:
            if not self.stopped():
                reading = self.read(checker)
                READS.labels("error" if reading.state is None else "ok").inc()
                with self._lock:
                    self._known[checker] = (self.clock(), reading)
        finally:
            with self._lock:
                self._under_way.discard(checker)


def _by_node(wanted: set[Checker], known: dict[Checker, tuple[float, Reading]]) -> Readings:
    found: dict[str, tuple[Reading, ...]] = {}
    for each in sorted(wanted & known.keys(), key=lambda each: (each.node, each.port)):
        found[each.node] = (*found.get(each.node, ()), known[each][1])
    return found
