"""Read the health checkers of nodes on other threads: a reconcile never waits for a node."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
from prometheus_client import Counter

from api.health_checks import STATE_PATH, State
from api.ingress_daemonset.types import OFF
from controllers.executor import Submit
from controllers.ingress_daemonset.confirmation import Reading, Readings
from controllers.ingress_daemonset.node_rollout import NodeRollout
from healthchecker.answers import get
from runtime import threading, time

PERIOD = 1.0
"""Seconds between two readings of a checker."""
SOON = 0.1
"""Seconds until the first reading is looked for."""
OLD = 30.0
"""Seconds after which a reading no longer counts."""
TIMEOUT = 2.0
LONGEST = 1 << 16
"""Bytes of an answer."""

READS = Counter("drawbridge_ingress_daemonset_checker_reads", "Readings of health checkers.", ["result"])
for _result in ("ok", "error"):
    READS.labels(_result)


class Checker(NamedTuple):
    """Where the health checker of a node is reached."""

    node: str
    address: str
    port: int


def checkers_of(rollouts: Iterable[NodeRollout], canary: Sequence[str] = ()) -> set[Checker]:
    """Those whose confirmation a node waits for, and those of the nodes of the *canary*."""
    return {
        Checker(each.node.name, each.node.address, port)
        for each in rollouts
        if (each.is_detaching and each.rolling.connections is not None)
        or ((each.is_detaching or each.node.name in canary) and each.rolling.confirm != OFF)
        for port in each.resource.spec.health_check_node_ports
    }


def read(checker: Checker) -> Reading:
    """Raises nothing."""
    try:
        if not checker.address:
            raise ValueError("its Node has no InternalIP")
        return Reading(checker.address, checker.port, _state(checker))
    except (OSError, http.client.HTTPException, ValueError) as error:
        return Reading(checker.address, checker.port, error=str(error) or type(error).__name__)


def _state(checker: Checker) -> State:
    """OSError, HTTPException, or ValueError for an unreadable answer."""
    answer = get(checker.address, checker.port, STATE_PATH, TIMEOUT, LONGEST)
    if answer.status != http.HTTPStatus.OK:
        raise ValueError(f"it answers {answer.status} at {STATE_PATH}, as one of an older image does")
    return msgspec.json.decode(answer.body, type=State)


class HealthCheckReader:
    """Safe to use from any thread; *submit* hands work to another one."""

    def __init__(
        self,
        submit: Submit,
        stop: threading.Event,
        read: Callable[[Checker], Reading] = read,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._submit, self._stop, self._read, self._clock = submit, stop, read, clock
        self._known: dict[Checker, tuple[float, Reading]] = {}
        self._under_way: set[Checker] = set()
        self._lock = threading.Lock()

    def readings(self, wanted: set[Checker]) -> tuple[Readings, float | None]:
        """The last readings of *wanted*, by node; seconds until there may be more, None without *wanted*."""
        now = self._clock()
        with self._lock:
            self._known = {each: known for each, known in self._known.items() if now - known[0] <= OLD}
            known = dict(self._known)
            due = {each for each in wanted - self._under_way if now - known.get(each, (-OLD,))[0] >= PERIOD}
            self._under_way |= due
        for each in due:
            self._submit(partial(self._update, each))
        if not wanted:
            return {}, None
        found: dict[str, tuple[Reading, ...]] = {}
        for each in sorted(wanted & known.keys()):
            found[each.node] = (*found.get(each.node, ()), known[each][1])
        return found, PERIOD if wanted <= known.keys() else SOON

    def _update(self, checker: Checker) -> None:
        try:
            if not self._stop.is_set():
                reading = self._read(checker)
                READS.labels("error" if reading.state is None else "ok").inc()
                with self._lock:
                    self._known[checker] = (self._clock(), reading)
        finally:
            with self._lock:
                self._under_way.discard(checker)
