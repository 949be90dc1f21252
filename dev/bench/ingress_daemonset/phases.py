"""What one phase of an IngressDaemonSet's life cost: all writes, and what the leader used and decided."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from dev.bench import cluster
from dev.bench.arithmetic import Samples, growth, samples, total
from dev.bench.cluster import DISPATCHED, REQUESTS, Counted, awaited_leader, counters
from dev.bench.processes import Usage
from dev.lab.direct import urlopen
from dev.lab.install import NAMESPACE, RELEASE
from dev.lab.session import Lab
from kube.resources import PODS

PLAN = "drawbridge_ingress_daemonset_plan_seconds"
WRITES = "drawbridge_ingress_daemonset_writes_total"
VERBS = ("POST", "PUT", "PATCH", "DELETE")
METRICS_PORT = 8080
COMPONENTS = ("kube-apiserver", "etcd", "kube-controller-manager", "kube-scheduler", "kwok-controller")

T = TypeVar("T")


@dataclass(frozen=True)
class Cost(Counted):
    """Also by how much the counters of the *leader* grew."""

    leader: Samples

    def writes(self, resource: str, *verbs: str, subresource: str = "", **labels: str) -> float:
        """By all clients, with any result; without *verbs*, of all verbs that write."""
        labels |= {"resource": resource, "subresource": subresource}
        return sum(total(self.grown, REQUESTS, verb=verb, **labels) for verb in verbs or VERBS)

    @property
    def own_writes(self) -> float:
        """By the leader's own account."""
        return total(self.leader, WRITES)

    @property
    def requests(self) -> float:
        """All of ours, of any kind."""
        return total(self.grown, DISPATCHED, flow_schema=RELEASE)

    @property
    def seconds(self) -> float:
        """Of CPU, of all programs of the cluster and of this one: on a busy machine it shows more than the wall."""
        return sum(each.seconds for each in self.used.values())

    @property
    def plans(self) -> float:
        return total(self.leader, f"{PLAN}_count")

    @property
    def planning(self) -> float:
        """In seconds."""
        return total(self.leader, f"{PLAN}_sum")


def measured(lab: Lab, phase: Callable[[], T]) -> tuple[T, Cost]:
    """The result of *phase*, and its cost; the leader must be the same at its end."""
    before, observed = _counted(lab), _leader_samples(lab)
    result = phase()
    cost = _counted(lab).since(before)
    return result, Cost(cost.grown, cost.used, growth(observed, _leader_samples(lab)))


def _counted(lab: Lab) -> Counted:
    return Counted(counters(lab.client, REQUESTS, DISPATCHED), usage(lab))


def usage(lab: Lab) -> dict[str, Usage]:
    """Of this process, too, which is a client of the cluster."""
    return {**cluster.usage(lab, *COMPONENTS), "client": Usage(time.process_time(), 0)}


def _leader_samples(lab: Lab) -> dict[str, float]:
    address = lab.client.get(PODS, awaited_leader(lab), NAMESPACE)["status"]["podIP"]
    with urlopen(f"http://{address}:{METRICS_PORT}/metrics", timeout=10) as answer:
        return samples(answer.read(), f"{PLAN}_count", f"{PLAN}_sum", WRITES)
