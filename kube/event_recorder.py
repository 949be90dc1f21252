"""Record Events on the objects that users look at; recording never raises and never blocks.

A separate thread writes. Equal notes on one object within ten minutes are one Event with a count, and after a burst
on one object the rest is dropped, so that a loop cannot flood etcd.
"""

# ruff: noqa: A002 (``type`` and ``object`` are Kubernetes' own words)

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

import structlog
from prometheus_client import Counter

from kube.client import Client
from kube.errors import Forbidden, KubeError, NotFound
from kube.resources import EVENTS, Resource
from kube.types import Object, ObjectMeta, Value, rfc3339
from runtime import queue, secrets, threading, time, utc_now

DROPPED = Counter(
    "drawbridge_events_dropped", "Kubernetes Events that were not written, and why.", ["reason"]
)

QUEUE_SIZE = 1000
CALL_TIMEOUT = 5.0
MESSAGE_SIZE = 1024
"""The API server refuses longer messages."""

log = structlog.get_logger(__name__)


Type = Literal["Normal", "Warning"]

WINDOW = 600.0
BURST = 25
"""Writes about one object within the window, in seconds; client-go's spam filter has the same burst."""


class Regarding(Value, frozen=True):
    """The object that an Event is about."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""

    @classmethod
    def of(cls, object: Object, resource: Resource, kind: str) -> Regarding:
        metadata: ObjectMeta = object.metadata
        return cls(resource.api_version, kind, metadata.name, metadata.namespace, metadata.uid)

    @classmethod
    def pod(cls, namespace: str, name: str, uid: str = "") -> Regarding:
        return cls("v1", "Pod", name, namespace, uid)


@dataclass(frozen=True)
class Note:
    """What an Event says; equal ones are counted."""

    regarding: Regarding
    reason: str
    message: str
    type: Type


@dataclass
class Series:
    """How often a note was recorded, and the Event that counts it."""

    event_name: str
    first: datetime
    last_at: float = 0.0
    count: int = 0


class EventCorrelator:
    """Finds the Event for each note; *now* is on a monotonic clock."""

    def __init__(self) -> None:
        self._series: dict[Note, Series] = {}
        """In the order of last_at."""
        self._written: dict[Regarding, tuple[float, int]] = {}
        """Since when, and how many; in the order of the first."""

    def enter(self, note: Note, at: datetime, now: float) -> Series | None:
        """The series to write; None when its object has had too many Events."""
        then = now - WINDOW
        while (oldest := next(iter(self._series), None)) and self._series[oldest].last_at <= then:
            del self._series[oldest]
        while (of := next(iter(self._written), None)) and self._written[of][0] <= then:
            del self._written[of]
        series = self._series.pop(note, None) or Series(_event_name(note.regarding), at)
        series.count, series.last_at = series.count + 1, now
        self._series[note] = series
        since, written = self._written.get(note.regarding, (now, 0))
        self._written[note.regarding] = since, written + 1
        return series if written < BURST else None


class EventRecorder:
    """Events by *component*."""

    def __init__(
        self, client: Client, component: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client, self._component, self._clock = client, component, clock
        self._notes: queue.Queue[tuple[Note, datetime, Regarding | None] | None] = queue.Queue(QUEUE_SIZE)
        self._correlator = EventCorrelator()
        self._thread = threading.Thread(target=self._write_all, name="events", daemon=True)
        self._thread.start()

    def event(
        self,
        regarding: Regarding,
        reason: str,
        message: str,
        type: Type = "Normal",
        *,
        instead: Regarding | None = None,
    ) -> None:
        """*instead* is the object of the Event when *regarding* can have none: its namespace is being deleted."""
        note = Note(regarding, reason, message[:MESSAGE_SIZE], type)
        try:
            self._notes.put_nowait((note, utc_now(), instead))
        except queue.Full:
            DROPPED.labels("queue full").inc()

    def close(self, timeout: float = 2.0) -> None:
        """Write what is queued, for at most *timeout* seconds."""
        deadline = time.monotonic() + timeout
        try:
            self._notes.put(None, timeout=timeout)
        except queue.Full:
            return
        self._thread.join(max(0.0, deadline - time.monotonic()))

    def _write_all(self) -> None:
        while (queued := self._notes.get()) is not None:
            try:
                self._write_somewhere(*queued)
            except KubeError as error:
                DROPPED.labels("refused").inc()
                log.warning("event not written", reason=queued[0].reason, error=str(error))
            except Exception:
                log.exception("event not written", reason=queued[0].reason)

    def _write_somewhere(self, note: Note, at: datetime, instead: Regarding | None) -> None:
        try:
            self._write(note, at)
        except (Forbidden, NotFound):  # its namespace is being deleted, or gone
            if instead is None:
                raise
            self._write(replace(note, regarding=instead), at)

    def _write(self, note: Note, at: datetime) -> None:
        series = self._correlator.enter(note, at, self._clock())
        if series is None:
            DROPPED.labels("burst").inc()
            return
        namespace = note.regarding.namespace or "default"  # of objects without one, as client-go has it
        counted = {"count": series.count, "lastTimestamp": rfc3339(at)}
        if series.count > 1:
            with suppress(NotFound):  # it was refused, or has expired
                self._client.patch(EVENTS, series.event_name, counted, namespace, timeout=CALL_TIMEOUT)
                return
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": series.event_name, "namespace": namespace},
            "involvedObject": note.regarding,
            "reason": note.reason,
            "message": note.message,
            "type": note.type,
            "firstTimestamp": rfc3339(series.first),
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": socket.gethostname(),
            **counted,
        }
        self._client.create(EVENTS, body, namespace, timeout=CALL_TIMEOUT)


def _event_name(regarding: Regarding) -> str:
    return f"{regarding.name[:230].rstrip('.-')}.{secrets.token_hex(8)}"  # a DNS name of at most 253
