"""A cluster with Calico, and the feature as a leader's thread runs it there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec

from calico.segment import LEVEL, MANAGED_BY, MANAGER, IPReservation, Record, body
from controllers.ip_reservation import controller
from dev.fake_api import FakeAPI, Kind, calico_api
from settings import IPReservationSettings
from tests.factories import record
from tests.fakes import FakeRecorder
from tests.managed import lead
from tests.misbehaving_server import Asked, Server, serving

V3, V1 = "projectcalico.org/v3", "crd.projectcalico.org/v1"
PODS, NAMESPACES = "/api/v1/pods", "/api/v1/namespaces"
STATEFUL_SETS = "/apis/apps/v1/statefulsets"
SETTINGS = IPReservationSettings.model_validate({"duration": "300ms", "releasePeriod": "50ms"})
ENABLED = "ip-reserve in (enabled,enable)"
DUE = record("10.0.0.9/32", pod="redis-1", uid="uid-redis-1", ended=datetime(2026, 1, 1, tzinfo=UTC))
"""Of a pod that went long ago: the first round releases it."""
CREATED = "2026-01-01T00:00:00Z"


class World:
    """A cluster with Calico and a selected namespace, and the feature as a leader's thread runs it."""

    def __init__(self, api: FakeAPI, server: Server) -> None:
        self.api, self.server, self.recorder = api, server, FakeRecorder()
        self.stop, self.checks, self.settings = threading.Event(), 0, SETTINGS
        self.check: Callable[[int], None] = lambda number: None
        self.raised: BaseException | None = None
        self.thread = threading.Thread(target=self._lead, daemon=True)
        api.put(NAMESPACES, {"metadata": {"name": "redis", "labels": {"ip-reserve": "enabled"}}})
        api.put(STATEFUL_SETS, {"metadata": {"name": "redis", "namespace": "redis", "uid": "uid-redis"}})

    def hold(self, *records: Record, name: str = "drawbridge-a") -> None:
        raw = body(records)
        labels = {MANAGED_BY: MANAGER, LEVEL: "0"}
        raw["metadata"] |= {"name": name, "labels": labels, "creationTimestamp": CREATED}
        self.api.put(self.reservations, raw)

    @property
    def reservations(self) -> str:
        return f"/apis/{V1 if self.api.unserved == {V3} else V3}/ipreservations"

    @property
    def held(self) -> list[Record]:
        segments = self.api.list(self.reservations)
        return [each for raw in segments for each in msgspec.convert(raw, IPReservation).records]

    @property
    def writes(self) -> list[Asked]:
        return [asked for asked in self.server.asked if asked.method != "GET"]

    def asked_for(self, path: str) -> list[Asked]:
        return [asked for asked in self.server.asked if asked.path == path]

    def annotations(self, pod: str) -> Mapping[str, str]:
        found: Mapping[str, str] = self.api.get(PODS, pod, "redis")["metadata"].get("annotations", {})
        return found

    def end(self, within: float) -> None:
        self.stop.set()
        self.thread.join(within)
        assert not self.thread.is_alive()

    def _lead(self) -> None:
        recorder: Any = self.recorder
        try:
            sections = {"ip_reservation": self.settings}
            lead(controller, self.server.client(), lambda: sections, recorder, self.stop, self._check)
        except BaseException as error:
            self.raised = error

    def _check(self) -> None:
        self.checks += 1
        self.check(self.checks)


@contextmanager
def world(*calico: str, kinds: Iterable[Kind] = ()) -> Iterator[World]:
    api = calico_api(*calico, kinds=kinds)
    with serving(api) as server:
        made = World(api, server)
        yield made
        made.end(within=5)
        assert made.raised is None
