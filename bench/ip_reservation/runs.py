"""One storm in one variant, with all that the control plane and the kernel counted meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from bench import processes
from bench.arithmetic import Samples, growth, samples
from bench.ip_reservation import storm
from bench.ip_reservation.deployments import BENCH, SERVERS
from bench.ip_reservation.storm import Storm
from bench.ip_reservation.variants import Variant, leader
from bench.processes import Usage
from kube.client import Client
from lab.install import NAMESPACE
from lab.session import Lab

CALLS = "apiserver_admission_webhook_request_total"
DURATION = "apiserver_admission_webhook_admission_duration_seconds"
REQUESTS = "apiserver_request_total"
COMPONENTS = ("kube-apiserver", "etcd")


class Load(NamedTuple):
    """*size* deletions, *concurrency* at once."""

    size: int
    concurrency: int

    def __str__(self) -> str:
        return f"{self.size:,} deletions, {self.concurrency} at once"


@dataclass(frozen=True)
class Run:
    """What *storm* cost in *variant*: by how much each counter grew, and what each program used for it."""

    variant: Variant
    load: Load
    storm: Storm
    grown: Samples
    used: Mapping[str, Usage]


def measured(lab: Lab, variant: Variant, namespace: str, load: Load, nodes: int) -> Run:
    """Create the pods, which is not measured, and delete them."""
    names = storm.create(lab, namespace, load.size, nodes)
    counted, before = _counted(lab.client), usage(lab)
    result = storm.delete(lab, namespace, names, concurrency=load.concurrency)
    after, grown = usage(lab), growth(counted, _counted(lab.client))
    used = {
        role: Usage(now.seconds - before[role].seconds, now.bytes)
        for role, now in after.items()
        if role in before
    }
    return Run(variant, load, result, grown, used)


def usage(lab: Lab) -> dict[str, Usage]:
    """By the role that a program has: ours, the no-op's, and the control plane's."""
    ours = processes.of_pods(lab.client, NAMESPACE)
    return {
        **roles(ours, leader(lab.client)),
        **{f"no-op {number}": each for number, each in _numbered(processes.of_pods(lab.client, BENCH))},
        **{name: processes.of_component(lab, name) for name in COMPONENTS},
    }


def roles(ours: Mapping[str, Usage], leads: str) -> dict[str, Usage]:
    """Our own pods by what they do."""
    servers = {name: each for name, each in ours.items() if name.startswith(SERVERS)}
    others = {name: each for name, each in ours.items() if name not in servers}
    return {
        **{f"webhook server {number}": each for number, each in _numbered(servers)},
        **{"leader" if name == leads else "standby": each for name, each in others.items()},
    }


def _numbered(usages: Mapping[str, Usage]) -> list[tuple[int, Usage]]:
    return [(number, usages[name]) for number, name in enumerate(sorted(usages), 1)]


def _counted(client: Client) -> dict[str, float]:
    scrape = client.request("GET", "/metrics", type=bytes)
    return samples(scrape, CALLS, REQUESTS, f"{DURATION}_bucket")
