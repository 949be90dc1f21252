"""The arrival of one crowd, with all that the control plane and the kernel counted meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dev.bench import processes
from dev.bench.arithmetic import Samples, growth, samples
from dev.bench.elasticity.crowd import Arrival, Crowd, arrive
from dev.bench.ip_reservation.runs import roles
from dev.bench.ip_reservation.variants import leader
from dev.bench.processes import Usage
from dev.lab.install import NAMESPACE
from dev.lab.session import Lab
from kube.client import Client

REQUESTS = "apiserver_request_total"
DISPATCHED = "apiserver_flowcontrol_dispatched_requests_total"
"""By flow schema: our own has our ServiceAccounts, all their requests and no others."""
COMPONENTS = ("kube-apiserver", "etcd", "kube-scheduler", "kube-controller-manager")
PATIENCE = 60.0


@dataclass(frozen=True)
class Phase:
    """By how much each counter grew, and what each program used."""

    crowd: Crowd
    arrival: Arrival
    grown: Samples
    used: Mapping[str, Usage]


def measured(lab: Lab, crowd: Crowd) -> Phase:
    counted, before = _counted(lab.client), usage(lab)
    arrival = arrive(lab, crowd)
    after, grown = usage(lab), growth(counted, _counted(lab.client))
    return Phase(crowd, arrival, grown, used(before, after))


def usage(lab: Lab) -> dict[str, Usage]:
    """By the role that a program has."""
    leads = lab.wait(lambda: leader(lab.client), PATIENCE, "one of the controllers to lead")
    return {
        **roles(processes.of_pods(lab.client, NAMESPACE), leads),
        **{name: processes.of_component(lab, name) for name in COMPONENTS},
    }


def used(before: Mapping[str, Usage], after: Mapping[str, Usage]) -> dict[str, Usage]:
    """The CPU of the time between, and the memory at its end."""
    return {
        role: Usage(now.seconds - before[role].seconds, now.bytes, now.peak)
        for role, now in after.items()
        if role in before
    }


def _counted(client: Client) -> dict[str, float]:
    return samples(client.request("GET", "/metrics", type=bytes), REQUESTS, DISPATCHED)
