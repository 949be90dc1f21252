"""Count the open connections of the node's pods, when the controllers ask for it.

They are the established TCP connections to some ports, from `/proc/net/tcp`, which every process in the network of the
host may read. A pod that is not in it has none there; those of connection tracking are for root. Where sockets are not
what counts, a metric of the pod says more.
"""

from __future__ import annotations

import http.client
import math
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from healthchecker.answers import get
from healthchecker.config import Endpoint
from runtime import threading, time

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
ESTABLISHED = "01"
HOST = "127.0.0.1"
TIMEOUT = 1.0
LONGEST = 4 << 20
"""Bytes of an answer."""
PERIOD = 1.0
"""Seconds between two counts at least."""


@dataclass(frozen=True)
class Count:
    """*connections* at a time on the clock; *error* says why they are not known."""

    at: float = -math.inf
    connections: int | None = None
    error: str = "they have not been counted yet"


def established(rows: Iterable[str], ports: Collection[int]) -> int:
    """Connections to *ports* in the rows of a table as the kernel shows it; its first one is a head."""
    fields = (row.split(maxsplit=4) for row in rows)
    return sum(
        each[3] == ESTABLISHED and int(each[1].rpartition(":")[2], 16) in ports
        for each in fields
        if len(each) > 3
    )


def total(exposition: str, metric: str) -> int:
    """The sum of the samples of *metric*. ValueError without one, or without a finite sum.

    Only its lines are parsed: all of a busy proxy take seconds, and the controllers do not wait so long for an answer.
    """
    lines = re.findall(rf"^[ \t]*{re.escape(metric)}[ \t{{].*", exposition, re.MULTILINE)
    try:
        samples = [
            sample.value
            for family in text_string_to_metric_families("\n".join([*lines, ""]))
            for sample in family.samples
            if sample.name == metric
        ]
    except IndexError as error:  # by the parser, for some texts
        raise ValueError("its answer is not in the text format of Prometheus") from error
    if not samples:
        raise ValueError(f"there is no metric {metric}")
    if not math.isfinite(found := sum(samples)):
        raise ValueError(f"metric {metric} is {found}")
    return round(found)


def count_sockets(ports: Collection[int]) -> int:
    """OSError. Row by row: the tables of a busy edge node are larger than the memory of a health checker."""
    count = 0
    for path in TABLES:
        if path.exists():
            with path.open() as table:
                count += established(table, ports)
    return count


def read_metric(endpoint: Endpoint) -> int:
    """OSError, HTTPException, or ValueError for an unreadable answer."""
    answer = get(HOST, endpoint.port, endpoint.path, TIMEOUT, LONGEST)
    if answer.status != http.HTTPStatus.OK:
        raise ValueError(f"port {endpoint.port} answers {answer.status} at {endpoint.path}")
    return total(answer.body.decode(errors="replace"), endpoint.metric)


class Counter:
    """Safe to use from any thread: one counts, and the others have what was counted last, or nothing.

    *count* is one of the functions above. Where few threads answer, none waits here for another.
    """

    def __init__(self, count: Callable[[], int], clock: Callable[[], float] = time.monotonic) -> None:
        self._count, self._clock = count, clock
        self._last, self._counting = Count(), threading.Lock()

    def latest(self) -> Count:
        """The last count that is recent."""
        if self._clock() - self._last.at >= PERIOD and self._counting.acquire(blocking=False):
            try:
                self._last = self._counted()
            finally:
                self._counting.release()
        last = self._last
        return last if self._clock() - last.at <= 3 * PERIOD else Count()

    def _counted(self) -> Count:
        at = self._clock()
        try:
            return Count(at, self._count(), "")
        except (OSError, http.client.HTTPException, ValueError) as error:
            return Count(at, None, str(error) or type(error).__name__)
