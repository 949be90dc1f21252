"""Which Kubernetes Events are created, which are counted, and which are dropped: values and decisions."""

# ruff: noqa: A002 (``type`` and ``object`` are Kubernetes' own words)

from __future__ import annotations

import secrets
from collections import deque
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from kube.client import Resource
from kube.indexer import Object
from kube.types import ObjectMeta

Type = Literal["Normal", "Warning"]

WINDOW = 600.0
BURST = 25
"""Writes about one object within the window, in seconds; client-go's spam filter has the same burst."""


@dataclass(frozen=True)
class Regarding:
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
    last_at: float
    count: int = 1


class EventCorrelator:
    """Finds the Event for each note; *now* is on a monotonic clock."""

    def __init__(self) -> None:
        self._series: dict[Note, Series] = {}
        self._written: dict[Regarding, deque[float]] = {}

    def enter(self, note: Note, at: datetime, now: float) -> Series | None:
        """The series to write; None when its object has had too many Events."""
        self._forget_before(now - WINDOW)
        series = self._series.pop(note, None)
        if series is None:
            series = Series(_event_name(note.regarding), at, now)
        else:
            series.count, series.last_at = series.count + 1, now
        self._series[note] = series  # at the end: they are in the order of last_at
        written = self._written.setdefault(note.regarding, deque())
        if len(written) >= BURST:
            return None
        written.append(now)
        return series

    def _forget_before(self, then: float) -> None:
        for note, series in list(self._series.items()):
            if series.last_at > then:
                break
            del self._series[note]
        for regarding, written in list(self._written.items()):
            while written and written[0] <= then:
                written.popleft()
            if not written:
                del self._written[regarding]


def _event_name(regarding: Regarding) -> str:
    return f"{regarding.name[:230].rstrip('.-')}.{secrets.token_hex(8)}"  # a DNS name of at most 253
