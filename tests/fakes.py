"""Stand-ins for the edges, with the few rules of the real thing that the tests rely on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from calico.reservations import Reservations
from calico.segment import IPReservation, Record, body
from dev.fake_api import BUILT_IN, CALICO_V3, FakeAPI, merged
from kube.errors import NotFound
from kube.types import Namespace, ObjectMeta, Pod

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
AT_LEISURE = 60.0
"""Seconds for a call that has no socket: a busy machine is no failure of it."""


class FakeClock:
    """Monotonic seconds that move only by advance()."""

    def __init__(self, at: float = 1000.0) -> None:
        self.at = at

    def __call__(self) -> float:
        return self.at

    def advance(self, seconds: float) -> None:
        self.at += seconds


class FakeReservations(Reservations):
    """Those of a fake API server; *before* runs ahead of every call and may raise or meddle."""

    def __init__(self, before: Callable[[str, str], None] = lambda verb, name: None) -> None:
        self.api = FakeAPI(*BUILT_IN, *CALICO_V3, now=lambda: LONG_AGO)
        super().__init__(self.api.client(), CALICO_V3[0].resource.api_version)
        self.objects = Segments(self.api)
        self.before = before

    @property
    def writes(self) -> int:
        return sum(each.method != "GET" for each in self.api.calls)

    def list(self) -> list[IPReservation]:
        self.before("list", "")
        return super().list()

    def create(self, name: str, records: Iterable[Record], **options: Any) -> IPReservation:
        self.before("compact" if options.get("level") else "create", name)
        return super().create(name, records, **options | {"timeout": AT_LEISURE})

    def write(self, segment: IPReservation, records: Iterable[Record], **options: Any) -> IPReservation:
        self.before("confirm" if options.get("term") else "write", segment.metadata.name)
        return super().write(segment, records, **options | {"timeout": AT_LEISURE})

    def delete(self, segment: IPReservation, **_options: Any) -> None:
        self.before("delete", segment.metadata.name)
        super().delete(segment, timeout=AT_LEISURE)

    def put(self, segment: IPReservation) -> None:
        """Place *segment* as another client would."""
        written = msgspec.json.decode(msgspec.json.encode(body(segment.records)))
        self.objects.store(segment, written)

    @property
    def records(self) -> Sequence[Record]:
        return [record for each in self.objects.values() for record in each.records]

    @property
    def held(self) -> Sequence[str]:
        return sorted(record.cidr for record in self.records)


class Segments(MutableMapping[str, IPReservation]):
    """By name, as they are stored."""

    def __init__(self, api: FakeAPI) -> None:
        self._api, self._resource = api, CALICO_V3[0].resource

    def __getitem__(self, name: str) -> IPReservation:
        found = self._api.find(self._resource, name)
        if found is None:
            raise KeyError(name)
        return msgspec.convert(found, IPReservation)

    def __setitem__(self, name: str, segment: IPReservation) -> None:
        self.store(segment, {})

    def store(self, segment: IPReservation, change: dict[str, Any]) -> None:
        raw = msgspec.json.decode(msgspec.json.encode(segment))
        raw["metadata"].pop("resourceVersion", None)
        raw["metadata"].setdefault("creationTimestamp", LONG_AGO.isoformat())
        self._api.put(self._resource, merged(raw, change))

    def __delitem__(self, name: str) -> None:
        self._api.remove(self._resource, name)

    def __iter__(self) -> Iterator[str]:
        return iter([each["metadata"]["name"] for each in self._api.list(self._resource)])

    def __len__(self) -> int:
        return len(self._api.list(self._resource))


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
    """A synced informer's store."""

    silence, version, lists = 0.0, 0, 1

    def __init__(self, objects: Callable[[], Iterable[Any]]) -> None:
        self._objects = objects
        self._indexes: dict[str, Callable[[Any], Iterable[str]]] = {}

    def add_index(self, name: str, function: Callable[[Any], Iterable[str]]) -> None:
        self._indexes[name] = function

    def list(self) -> list[Any]:
        return list(self._objects())

    def get(self, key: str) -> Any:
        return next((each for each in self._objects() if key in (each.metadata.name, _key(each))), None)

    def wrote(self, answer: Any) -> None:
        """There is no watch to wait for."""

    def by_index(self, name: str, value: str) -> list[Any]:
        return [each for each in self._objects() if value in self._indexes[name](each)]


class FakeRecorder:
    """Events as (reason, message), the names and uids of their objects, and the objects *instead* of those."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.about: list[str] = []
        self.uids: list[str] = []
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
        self.uids.append(getattr(regarding, "uid", ""))
        self.instead.append(instead)

    @property
    def reasons(self) -> list[str]:
        return [reason for reason, _ in self.events]


def _key(each: Any) -> str:
    return f"{each.metadata.namespace}/{each.metadata.name}"
