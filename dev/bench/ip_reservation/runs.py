"""One load in one variant, with all that the control plane and the kernel counted meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from calico.reservations import Reservations
from calico.segment import IPReservation
from dev.bench import processes
from dev.bench.cluster import CALLS, DURATION, REQUESTS, Counted, counters, leader, numbered, roles
from dev.bench.deployments import BENCH
from dev.bench.ip_reservation import storm
from dev.bench.ip_reservation.ahead import await_marks
from dev.bench.ip_reservation.allocator import assigned, assigning
from dev.bench.ip_reservation.judge import Judged, judged
from dev.bench.ip_reservation.side_load import side_load
from dev.bench.ip_reservation.storm import Load, Storm
from dev.bench.ip_reservation.variants import AHEAD, OURS, Variant
from dev.bench.processes import Usage
from dev.lab import workdir
from dev.lab.errors import LabError
from dev.lab.install import NAMESPACE
from dev.lab.session import Lab
from dev.lab.watching import Kind, Observation, Observations, observed_by_now, watching
from kube.client import Resource
from kube.resources import PODS
from kube.types import Pod

COMPONENTS = ("kube-apiserver", "etcd")
CLUSTER = "whole cluster"
"""All processes of the lab: our own and no-op servers and the lab's kubelets and Services, no client of the bench."""
SETTLE, PAUSE = 15.0, 2.0
"""Seconds that are measured after the last pod of a storm, and of other loads: what is done later has its price."""
LATE = 30.0
ASSIGNMENTS = 10


@dataclass(frozen=True)
class Setting:
    """*load* on a machine *busy* with a side load or not; *allocating* while Calico assigns addresses."""

    load: Load
    busy: bool = False
    allocating: bool = False

    def __str__(self) -> str:
        return f"{'busy' if self.busy else 'quiet'}, {self.load}{', allocating' if self.allocating else ''}"


@dataclass(frozen=True)
class Assigned:
    """Seconds of each assignment of Calico's allocator, *before* a storm and *during* it."""

    before: Sequence[float] = ()
    during: Sequence[float] = ()


@dataclass(frozen=True)
class Run:
    """What was counted during *storm*, and *later*, until the cluster has settled."""

    variant: Variant
    setting: Setting
    storm: Storm
    counted: Counted
    later: Counted
    judged: Judged
    assigned: Assigned = field(default_factory=Assigned)


@dataclass(frozen=True)
class Site:
    """Where the pods are: in *namespace*, on so many *nodes*."""

    lab: Lab
    namespace: str
    nodes: int

    def fill(self, count: int) -> list[str]:
        return storm.create(self.lab, self.namespace, count, self.nodes)

    def warm_up(self, count: int) -> None:
        """Delete *count* pods at once, so that connections are open."""
        names = self.fill(count)
        with watching(self.lab.client, {PODS: Pod}) as observations:
            stream = storm.observed(observations)
            storm.delete(self.lab, self.namespace, names, Load(count, count), stream)


def measured(site: Site, variant: Variant, setting: Setting) -> Run:
    """Create the pods, which is not measured, and delete them."""
    lab, names, seen = site.lab, site.fill(setting.load.size), list[Observation]()
    if variant.name == AHEAD:
        await_marks(lab, site.namespace, names)
        time.sleep(SETTLE)  # what the creation of the pods leaves to do is no price of their deletion
    kinds: dict[Resource, Kind] = {PODS: Pod, Reservations(lab.client).resource(): IPReservation}
    with watching(lab.client, kinds) as observations:
        with side_load(busy=setting.busy):
            before = [assigned(lab) for _ in range(ASSIGNMENTS)] if setting.allocating else []
            begin = _now(lab)
            with assigning(lab, on=setting.allocating) as during:
                stream = _kept(storm.observed(observations), seen)
                result = storm.delete(lab, site.namespace, names, setting.load, stream)
            end = _now(lab)
            time.sleep(SETTLE if setting.load.is_storm else PAUSE)
            counted, later = end.since(begin), _now(lab).since(end)
        verdict = _judged(site, variant, seen, observations)
    return Run(variant, setting, result, counted, later, verdict, Assigned(before, during))


def _kept(stream: Iterator[Observation], seen: list[Observation]) -> Iterator[Observation]:
    for each in stream:
        seen.append(each)
        yield each


def _judged(site: Site, variant: Variant, seen: list[Observation], observations: Observations) -> Judged:
    """Wait for a watch that may be behind the other, as long as anything seems to be lost."""

    def verdict() -> Judged:
        seen.extend(observed_by_now(observations))
        return judged(seen, site.namespace)

    if variant.name in (OURS, AHEAD):
        with suppress(LabError):
            site.lab.wait(
                lambda: not verdict().lost,
                LATE,
                "no address to be lost",
            )
    return verdict()


def _now(lab: Lab) -> Counted:
    """Of the no-op servers, and of all programs together, too."""
    counted = counters(lab.client, CALLS, REQUESTS, f"{DURATION}_sum", f"{DURATION}_count")
    state = workdir.read_state(lab.name)
    return Counted(
        counted,
        {
            **roles(processes.of_pods(lab.client, NAMESPACE), leader(lab.client)),
            **numbered("no-op", processes.of_pods(lab.client, BENCH)),
            **{name: processes.of_component(lab, name) for name in COMPONENTS},
            CLUSTER: Usage(processes.seconds_of_tree(state.pid) if state else 0.0, 0),
        },
    )
