"""The leader's world for reconcilers of reservations: segments, pods, caches of both, and clocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from calico.segment import IPReservation, Record
from controllers.controller import Clock
from controllers.ip_reservation.caches import Caches, decode_pod
from controllers.ip_reservation.calls import LiveReader
from controllers.ip_reservation.confirmations import PodAddresses
from controllers.ip_reservation.late_reservations import LateReconciler, RestoreReconciler
from controllers.ip_reservation.opt_in import FOLLOWERS, follows
from controllers.ip_reservation.release_reconciler import ReleaseReconciler
from controllers.ip_reservation.reporter import Reporter
from controllers.ip_reservation.snapshot import SnapshotReader
from kube.resources import PODS
from kube.types import Namespace, ObjectMeta, Pod
from settings import IPReservationSettings
from tests.factories import NOW
from tests.fakes import FakeClock, FakeRecorder, FakeReservations, FakeStore

Raw = dict[str, Any]
TERMINATING = {"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}}


def settings(**values: object) -> IPReservationSettings:
    return IPReservationSettings.model_validate({"duration": "40m", "giveBackAfter": "2m"} | values)


class World:
    """Namespace redis is selected. *cached* are the pods that the informer has; with *lags* it has no segments."""

    def __init__(
        self,
        *segments: IPReservation,
        pods: Iterable[Pod] = (),
        **values: object,
    ) -> None:
        self.now: datetime = NOW
        self.seconds = FakeClock()
        self.clock = Clock(lambda: self.now, self.seconds)
        self.reservations = FakeReservations()
        for each in segments:
            self.reservations.put(each)
        self.api = self.reservations.api
        self.cached = list(pods)
        for pod in self.cached:
            self.serve(pod)
        self.settings = settings(**values)
        self.keys: dict[str, None] = {}
        self.lags, self.made = False, 0
        self.of_namespace: dict[str, str] = {}
        """Its annotations."""
        self.caches = self._caches()
        self.is_over: Callable[[], bool] = lambda: False
        self.live = LiveReader(self.api.client(), self.reservations, self.clock, lambda: self.is_over())
        self.recorder: Any = FakeRecorder()
        self.reporter = Reporter(self.recorder, self.reservations.resource)
        self.restore = RestoreReconciler(
            self.caches, self.reserve, lambda: self.settings, self.reporter, self.clock
        )
        self.addresses = PodAddresses(self.clock)

    def _caches(self) -> Caches:
        segments: Any = FakeStore(lambda: [] if self.lags else self.reservations.objects.values())
        namespaces: Any = FakeStore(
            lambda: [Namespace(ObjectMeta(name="redis", annotations=self.of_namespace))]
        )
        pods: Any = FakeStore(self.known_pods)
        pods.add_index(FOLLOWERS, follows)
        return Caches(segments, namespaces, pods)

    def known_pods(self) -> Iterable[Pod]:
        return self.cached

    def releasing(self, pools: Callable[..., Any] = lambda _: None) -> ReleaseReconciler:
        """The reconciler of releases in this world."""
        reader = SnapshotReader(self.caches, self.live, self.addresses, pools)
        at = self.reservations, self.restore.note_own, lambda: self.settings, self.reporter
        return ReleaseReconciler(reader, *at)

    def reserving_late(self) -> LateReconciler:
        """The reconciler of late reservations in this world."""
        at = self.caches, self.live, self.reserve, lambda: self.settings, self.reporter
        return LateReconciler(*at)

    def serve(self, pod: Pod) -> None:
        """Place *pod* at the API server."""
        self.api.put(PODS, msgspec.json.decode(msgspec.json.encode(pod)))

    def enqueue(self, *keys: str) -> None:
        self.keys |= dict.fromkeys(keys)

    def reserve(self, records: Sequence[Record]) -> IPReservation:
        self.made += 1
        return self.reservations.create(f"leader-{self.made}", records)

    def advance(self, **delta: float) -> None:
        """Both clocks."""
        self.now += timedelta(**delta)
        self.seconds.advance(timedelta(**delta).total_seconds())

    def settle(self, reconciler: Any) -> None:
        """Reconcile until no key asks to be reconciled again."""
        for _ in range(1000):
            if not self.keys:
                return
            key, _ = self.keys.popitem()
            if (again := reconciler.reconcile(key)) is not None:
                self.seconds.advance(again)
                self.enqueue(key)
        raise AssertionError("a key asks to be reconciled again and again")


class Served(World):
    """Whose informer has the pods of the API server, unless *stale* says what it has, or that it has none, by name."""

    def __init__(self, *segments: IPReservation, **settings: object) -> None:
        self.stale: dict[str, Raw | None] = {}
        super().__init__(*segments, **settings)

    def known_pods(self) -> Iterable[Pod]:
        found = [self.stale.get(raw["metadata"]["name"], raw) for raw in self.api.list(PODS)]
        return [decode_pod(encoded(raw)) for raw in found if raw]

    def put_pod(self, raw: Raw) -> Raw:
        spec = {"containers": [{"name": "main", "image": "main"}]} | raw["spec"]
        return dict(self.api.put(PODS, raw | {"spec": spec}))

    def annotations(self, name: str) -> Mapping[str, str]:
        return dict(self.api.get(PODS, name, "redis")["metadata"].get("annotations", {}))


def encoded(raw: Mapping[str, Any]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(raw))


class Killed(BaseException):
    """The end of a process, which nothing in it catches."""


def doubted(*forged: Record, unconfirmed: Sequence[Record] = ()) -> dict[str, frozenset[str]]:
    """What is known of pods that may not have existed."""
    keys = frozenset(record.key for record in forged)
    return {"unconfirmed": keys | {record.key for record in unconfirmed}, "forged": keys}
