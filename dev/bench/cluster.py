"""What a lab's cluster has used and counted up to now: its programs by their roles, and its API server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dev.bench import processes
from dev.bench.arithmetic import Samples, growth, samples
from dev.bench.deployments import PATIENCE, SERVERS
from dev.bench.processes import Usage
from dev.lab.install import NAMESPACE, RELEASE
from dev.lab.session import Lab
from kube.client import Client
from kube.errors import NotFound
from kube.resources import LEASES, PODS

REQUESTS = "apiserver_request_total"
DISPATCHED = "apiserver_flowcontrol_dispatched_requests_total"
"""By flow schema: our own has our ServiceAccounts, all their requests and no others."""
CALLS = "apiserver_admission_webhook_request_total"
DURATION = "apiserver_admission_webhook_admission_duration_seconds"


@dataclass(frozen=True)
class Counted:
    """By how much each counter *grew*, and what each program *used* by its role."""

    grown: Samples
    used: Mapping[str, Usage]

    def since(self, before: Counted) -> Counted:
        """The CPU of the time between, and the memory at its end; without programs that were not there before."""
        used = {
            role: Usage(now.seconds - before.used[role].seconds, now.bytes, now.peak)
            for role, now in self.used.items()
            if role in before.used
        }
        return Counted(growth(before.grown, self.grown), used)


def counters(client: Client, *names: str) -> dict[str, float]:
    """Of the API server."""
    return samples(client.request("GET", "/metrics", type=bytes), *names)


def usage(lab: Lab, *components: str) -> dict[str, Usage]:
    """Of our own programs, and of these of the control plane, while one of the controllers leads."""
    ours = processes.of_pods(lab.client, NAMESPACE)
    return {
        **roles(ours, awaited_leader(lab)),
        **{name: processes.of_component(lab, name) for name in components},
    }


def roles(ours: Mapping[str, Usage], leads: str) -> dict[str, Usage]:
    """Our own pods by what they do."""
    servers = {name: each for name, each in ours.items() if name.startswith(SERVERS)}
    others = {name: each for name, each in ours.items() if name not in servers}
    return {
        **numbered("webhook server", servers),
        **{"leader" if name == leads else "standby": each for name, each in others.items()},
    }


def numbered(role: str, usages: Mapping[str, Usage]) -> dict[str, Usage]:
    return {f"{role} {number}": usages[name] for number, name in enumerate(sorted(usages), 1)}


def awaited_leader(lab: Lab) -> str:
    return lab.wait(lambda: leader(lab.client), PATIENCE, "one of the controllers to lead")


def leader(client: Client) -> str:
    """The pod that leads, or nothing."""
    try:
        holder = client.get(LEASES, RELEASE, NAMESPACE)["spec"].get("holderIdentity", "")
    except NotFound:
        return ""
    names = [pod["metadata"]["name"] for pod in client.list(PODS, NAMESPACE).items]
    return next((name for name in names if name == holder.rpartition("_")[0]), "")
