"""The arrival of one crowd, with all that the control plane and the kernel counted meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

from dev.bench import cluster
from dev.bench.cluster import DISPATCHED, REQUESTS, Counted, counters
from dev.bench.elasticity.crowd import Arrival, Crowd, arrive
from dev.lab.session import Lab

COMPONENTS = ("kube-apiserver", "etcd", "kube-scheduler", "kube-controller-manager")


@dataclass(frozen=True)
class Phase(Counted):
    """What was counted while *crowd* arrived."""

    crowd: Crowd
    arrival: Arrival


def measured(lab: Lab, crowd: Crowd) -> Phase:
    before = counted(lab)
    arrival = arrive(lab, crowd)
    cost = counted(lab).since(before)
    return Phase(cost.grown, cost.used, crowd, arrival)


def counted(lab: Lab) -> Counted:
    return Counted(counters(lab.client, REQUESTS, DISPATCHED), cluster.usage(lab, *COMPONENTS))
