"""Stand-ins for the edges, with the few rules of the real thing that the tests rely on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from calico.segment import MANAGED_BY, MANAGER, IPReservation, Record, ReservationSpec, body
from kube.client import Resource
from kube.errors import AlreadyExists, Conflict, NotFound
from kube.objects import Namespace, ObjectMeta, Pod


class FakeClock:
    """Monotonic seconds that move only when told."""

    def __init__(self, at: float = 1000.0) -> None:
        self.at = at

    def __call__(self) -> float:
        return self.at

    def advance(self, seconds: float) -> None:
        self.at += seconds


class FakeReservations:
    """IPReservations with resourceVersions; *before* runs ahead of every call and may raise or meddle."""

    def __init__(self, before: Callable[[str, str], None] = lambda verb, name: None) -> None:
        self.objects: dict[str, IPReservation] = {}
        self.writes = 0
        self.before = before
        self._version = 0
        self._lock = threading.Lock()

    def resource(self) -> Resource:
        return Resource("projectcalico.org", "v3", "ipreservations", namespaced=False)

    def list(self) -> list[IPReservation]:
        self.before("list", "")
        return list(self.objects.values())

    def get(self, name: str, *, timeout: float = 1.0) -> IPReservation:
        self.before("get", name)
        return self._existing(name)

    def create(self, name: str, records: Iterable[Record], *, timeout: float = 1.0) -> IPReservation:
        self.before("create", name)
        with self._lock:
            if name in self.objects:
                raise AlreadyExists(409, "AlreadyExists", name)
            empty = IPReservation(ObjectMeta(name=name, labels={MANAGED_BY: MANAGER}))
            return self._store(empty, records)

    def write(
        self, segment: IPReservation, records: Iterable[Record], *, timeout: float = 1.0
    ) -> IPReservation:
        self.before("write", segment.metadata.name)
        with self._lock:
            return self._store(self._unchanged(segment), records)

    def delete(self, segment: IPReservation) -> None:
        self.before("delete", segment.metadata.name)
        with self._lock:
            self._unchanged(segment)
            del self.objects[segment.metadata.name]

    def put(self, segment: IPReservation) -> None:
        """Place *segment* as somebody else would."""
        with self._lock:
            self._store(segment, segment.records)
        self.writes -= 1

    @property
    def held(self) -> list[str]:
        return sorted(record.cidr for each in self.objects.values() for record in each.records)

    def _existing(self, name: str) -> IPReservation:
        if name not in self.objects:
            raise NotFound(404, "NotFound", name)
        return self.objects[name]

    def _unchanged(self, segment: IPReservation) -> IPReservation:
        current = self._existing(segment.metadata.name)
        if current.metadata.resource_version != segment.metadata.resource_version:
            raise Conflict(409, "Conflict", segment.metadata.name)
        return current

    def _store(self, segment: IPReservation, records: Iterable[Record]) -> IPReservation:
        self._version += 1
        self.writes += 1
        written = body(records)
        stored = IPReservation(
            replace(
                segment.metadata,
                resource_version=str(self._version),
                annotations=segment.metadata.annotations | written["metadata"]["annotations"],
            ),
            ReservationSpec(written["spec"]["reservedCIDRs"]),
        )
        self.objects[segment.metadata.name] = stored
        return stored


class FakeLedger:
    """Remembers what was reserved, or refuses."""

    def __init__(self, refuse: Exception | None = None) -> None:
        self.records: list[Record] = []
        self.refuse = refuse

    def reserve(self, records: Sequence[Record], deadline: float) -> None:
        if self.refuse:
            raise self.refuse
        self.records += records


class FakeCluster:
    """Pods and namespaces by name, and how often each was read."""

    def __init__(
        self, pods: Iterable[Pod] = (), annotations: dict[str, dict[str, str]] | None = None
    ) -> None:
        self.pods = {(pod.metadata.namespace, pod.metadata.name): pod for pod in pods}
        self.annotations = annotations or {}
        self.reads = 0

    def pod(self, namespace: str, name: str, *, deadline: float = 0.0) -> Pod:
        self.reads += 1
        if (namespace, name) not in self.pods:
            raise NotFound(404, "NotFound", f"{namespace}/{name}")
        return self.pods[namespace, name]

    def namespace(self, name: str, *, deadline: float = 0.0) -> Namespace:
        return Namespace(ObjectMeta(name=name, annotations=self.annotations.get(name, {})))


class FakeStore:
    """A synced reflector's store."""

    silence = 0.0

    def __init__(
        self, objects: Callable[[], Iterable[Any]], **indexes: Callable[[Any], Iterable[str]]
    ) -> None:
        self._objects, self._indexes = objects, indexes

    def list(self) -> list[Any]:
        return list(self._objects())

    def get(self, key: str) -> Any:
        return next((each for each in self._objects() if key in (each.metadata.name, _key(each))), None)

    def by_index(self, name: str, value: str) -> list[Any]:
        return [each for each in self._objects() if value in self._indexes[name](each)]


class FakeRecorder:
    """Events as (reason, message), the names of their objects, and the objects *instead* of those."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.about: list[str] = []
        self.instead: list[object] = []

    def event(
        self,
        regarding: object,
        reason: str,
        message: str,
        type: str = "Normal",  # noqa: A002
        *,
        instead: object = None,
    ) -> None:
        self.events.append((reason, message))
        self.about.append(getattr(regarding, "name", ""))
        self.instead.append(instead)

    @property
    def reasons(self) -> list[str]:
        return [reason for reason, _ in self.events]


def _key(each: Any) -> str:
    return f"{each.metadata.namespace}/{each.metadata.name}"
