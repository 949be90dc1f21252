"""What many held addresses cost: their objects, the leader's memory and rounds, and Calico's own allocator."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any

import msgspec

from calico.ledger import Ledger
from calico.reservations import Reservations
from calico.segment import Record
from controllers.controller import Clock
from controllers.informers import Informers
from controllers.ip_reservation.caches import Caches, caches_of
from controllers.ip_reservation.calls import LiveReader
from controllers.ip_reservation.confirmations import PodAddresses
from controllers.ip_reservation.release_reconciler import ReleaseReconciler
from controllers.ip_reservation.reporter import Reporter
from controllers.ip_reservation.snapshot import SnapshotReader
from controllers.manager import Context
from dev.bench.cluster import usage
from dev.bench.deployments import CONTROLLERS, await_scaled, scale
from dev.bench.ip_reservation import storm
from dev.bench.ip_reservation.allocator import POOL, assigned, ipam
from dev.bench.processes import MIB
from dev.bench.report import Figure, figure
from dev.lab import binaries, install
from dev.lab.bootstrap import running
from dev.lab.session import Lab
from kube.event_recorder import EventRecorder
from settings import IPReservationSettings

WRITERS = 64
PATIENCE = 120.0
VALUES = {
    "replicaCount": 2,
    "controllers": {"replicaCount": 2},
    "ipReservation": {"duration": "1h", "maxCount": 20_000, "advanced": {"releasePeriod": "1s"}},
}


@dataclass(frozen=True)
class Extent:
    """*held* addresses, step by step; *pods* that the leader follows; how often Calico's allocator is timed."""

    held: tuple[int, ...] = (1_000, 10_000)
    pods: int = 3_000
    assignments: int = 5


QUICK = Extent((100, 500), 100, 2)


def run(progress: Callable[[str], None], *, quick: bool = False) -> list[Figure]:
    """About a minute; *quick* is for trying it out."""
    with running(calico=None, chart=False, nodes=1, kwok_nodes=1, progress=progress) as lab:
        progress("installing Calico's definitions and the chart")
        lab.kubectl("apply", "--server-side", "-f", str(binaries.calico_crds()))
        install.install_chart(lab, VALUES)
        return list(_grow(lab, QUICK if quick else Extent(), progress))


def _grow(lab: Lab, extent: Extent, progress: Callable[[str], None]) -> Iterator[Figure]:
    empty = _memory(lab)["leader"]
    progress(f"creating {extent.pods:,} pods")
    storm.submit(lab.client, "default", [unscheduled(number) for number in range(extent.pods)])
    ipam(lab, "pool", *POOL)
    allocating, memory = _assignment(lab, extent.assignments), _memory(lab)
    yield figure(f"{extent.pods:,} pods: memory of leader", memory["leader"], "MiB", baseline=empty)
    yield figure("0 addresses: Calico's allocator for one address", allocating, "ms")
    for before, held in pairwise((0, *extent.held)):
        progress(f"holding {held:,} addresses")
        yield from _filling(lab, before, held)
        yield from _objects(lab, held)
        _await_ends(lab, held)
        for role, now in sorted(_memory(lab).items()):
            yield figure(f"{held:,} addresses: memory of {role}", now, "MiB", baseline=memory.get(role))
        taken = _assignment(lab, extent.assignments)
        yield figure(
            f"{held:,} addresses: Calico's allocator for one address", taken, "ms", baseline=allocating
        )
    progress("making rounds over all of them")
    yield from _rounds(lab, extent.held[-1])


def unscheduled(number: int) -> dict[str, Any]:
    """A pod that the leader follows and that never runs."""
    wanted = storm.pod(f"redis-{number}", "")
    return wanted | {"spec": wanted["spec"] | {"nodeName": None, "schedulerName": "none"}}


def _filling(lab: Lab, held: int, size: int) -> Iterator[Figure]:
    """Through a ledger as each server has one, by as many at once as it has threads."""
    ledger = Ledger(Reservations(lab.client), f"bench-{size}")
    begin = time.monotonic()
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(partial(_reserve, ledger), range(held, size)))
    taken = time.monotonic() - begin
    yield figure(f"{size:,} addresses: reserved by one server", (size - held) / taken, "1/s")


def _reserve(ledger: Ledger, number: int) -> None:
    ledger.reserve([record(number, datetime.now(UTC))], time.monotonic() + PATIENCE)


def record(number: int, at: datetime) -> Record:
    """Of a pod that is long gone, with names as long as usual."""
    high, low = divmod(number, 256)
    return Record(
        cidr=f"172.{20 + high // 256}.{high % 256}.{low}/32",
        at=at,
        namespace="production-redis",
        pod=f"redis-cluster-{number}",
        uid=f"6c1f3f0a-2b7e-4c57-9d0c-{number:012d}",
        node=f"worker-{number % 300}.example.internal",
        owner="StatefulSet/redis-cluster",
        reason="deleted",
    )


def _objects(lab: Lab, size: int) -> Iterator[Figure]:
    resource = Reservations(lab.client).resource()
    sizes = [len(memoryview(each)) for each in lab.client.list(resource, type=msgspec.Raw).items]
    yield figure(f"{size:,} addresses: IPReservation objects", len(sizes), "")
    yield figure(f"{size:,} addresses: size of the largest object", max(sizes) / 1024, "KiB")
    yield figure(f"{size:,} addresses: size of all objects", sum(sizes) / MIB, "MiB")


def _await_ends(lab: Lab, size: int) -> None:
    """Until the leader has noted that all those pods are gone."""
    reservations = Reservations(lab.client)

    def noted() -> bool:
        records = [record for segment in reservations.list() for record in segment.records]
        return sum(record.ended is not None for record in records) >= size

    lab.wait(noted, PATIENCE, f"the leader to note the ends of {size} pods")


def _memory(lab: Lab) -> dict[str, float]:
    """In MiB, of each of our programs."""
    found = usage(lab)
    return {role: usage.bytes / MIB for role, usage in found.items()}


def _rounds(lab: Lab, size: int) -> Iterator[Figure]:
    """The leader's own code, in this process, so that its rounds can be timed."""
    place = install.NAMESPACE, CONTROLLERS
    scale(lab.client, place, 0)
    await_scaled(lab, place, 0)
    keeping = IPReservationSettings().model_copy(update={"max_count": 20_000})
    releasing = keeping.model_copy(update={"duration": 0.001})
    reservations, begin = Reservations(lab.client), time.monotonic()
    with cached(lab, reservations) as (context, caches):
        yield figure(
            f"{size:,} addresses: a new leader's copies are complete", 1000 * (time.monotonic() - begin), "ms"
        )
        for what, settings, times in (("nothing is due", keeping, 5), ("all are due", releasing, 1)):
            taken = _round(context, caches, reservations, settings, times)
            yield figure(f"{size:,} addresses: a round when {what}", taken, "ms")


def _round(
    context: Context, caches: Caches, reservations: Reservations, settings: IPReservationSettings, times: int
) -> float:
    """Milliseconds, the median of so many."""
    clock, reporter = Clock(), Reporter(context.recorder, reservations.resource)
    reader = SnapshotReader(caches, LiveReader(context.client, reservations, clock), PodAddresses(clock))
    reader.read(settings)  # the first one lists the segments
    release = ReleaseReconciler(reader, reservations, lambda *_: None, lambda: settings, reporter)
    return 1000 * median(_timed(lambda: release.reconcile("segments")) for _ in range(times))


@contextmanager
def cached(lab: Lab, reservations: Reservations) -> Iterator[tuple[Context, Caches]]:
    informers, recorder = Informers(lab.client), EventRecorder(lab.client, "bench")
    context = Context(lab.client, informers, recorder, lambda: None, threading.Event())
    caches = caches_of(informers, reservations.resource())
    try:
        context.wait_synced(caches.segments, caches.namespaces, caches.pods)
        yield context, caches
    finally:
        informers.stop()
        recorder.close()


def _assignment(lab: Lab, times: int) -> float:
    """Milliseconds, the median of so many, until a new pod of a node has an address."""
    return 1000 * median(assigned(lab) for _ in range(times))


def _timed(work: Callable[[], object]) -> float:
    begin = time.monotonic()
    work()
    return time.monotonic() - begin
