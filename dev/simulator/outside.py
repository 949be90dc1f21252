"""What can be seen of a simulated world from outside, at each instant at which something changed."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from api.ingress_daemonset import INGRESS_DAEMONSETS
from cli.installation import CONFIGURATIONS
from dev.fake_api import FakeAPI
from dev.fake_api.calls import Request
from dev.judge import Disturbances, Judge, Observation
from dev.judge.observation import CLUSTER_TAG, INSTANCE_TAG, CloudAddress, instance
from dev.lab.cloud.values import Address
from dev.simulator.core.kernel import EPOCH, Kernel, Process
from dev.simulator.models.calico import POOLS, RESERVATIONS, Calico
from dev.simulator.models.cloud import CHANGES, Cloud
from dev.simulator.models.load_balancer import LoadBalancer, is_target
from kube.client import Resource
from kube.resources import CONFIG_MAPS, DAEMON_SETS, DEPLOYMENTS, NAMESPACES, NODES, PODS, STATEFUL_SETS

Raw = dict[str, Any]
SECRETS = Resource("", "v1", "secrets")
SEEN = (
    PODS,
    NODES,
    DEPLOYMENTS,
    STATEFUL_SETS,
    INGRESS_DAEMONSETS,
    SECRETS,
    *CONFIGURATIONS.values(),
    *RESERVATIONS,
)
KEPT = (NODES, DEPLOYMENTS, DAEMON_SETS, STATEFUL_SETS, INGRESS_DAEMONSETS, CONFIG_MAPS, *RESERVATIONS)
"""Kinds whose objects are the same after a fresh start."""
TERM = "drawbridge.io/term"
"""The annotation by which a leader confirms a reservation."""
PASSING = ("resourceVersion", "managedFields", "generation", "uid", "creationTimestamp")
PACE_SECONDS, MOST_WRITES = 30.0, 100
"""In so many seconds, so often one object may be written by us."""
MOST_AT_ONCE = 2
FEW_AT_ONCE = f"ip: a webhook server has at most {MOST_AT_ONCE} writes of reservations under way"
LEADS_ON = 15.0
"""Seconds: renewDeadline, and the longest write. A longer leaseDuration alters neither."""
LEASE, EVENT = "/leases/", "/events"


class Outside:
    """Look after each turn in which something changed; *judge* keeps what contradicts a promise."""

    def __init__(
        self, api: FakeAPI, kernel: Kernel, calico: Calico, cloud: Cloud, edge: LoadBalancer
    ) -> None:
        self._api, self._kernel = api, kernel
        self._calico, self._cloud, self._edge = calico, cloud, edge
        self.judge = Judge([])
        self.note: Callable[[str, str], None] = lambda who, what: None
        """Keeps a line of the history."""
        self.disturbances = Disturbances()
        self.writes: Counter[str] = Counter()
        """Ours since the last reset, by method and kind; without renewals of the Lease."""
        self._paced: Counter[str] = Counter()
        self._paced_until = 0.0
        self._leader: Process | None = None
        self._unclear_until = 0.0
        """Until then a former leader may not know yet that its Lease was taken away."""
        self._looked_at = self._seen_version = -1
        self._is_stale = True
        self._listed: dict[Resource, tuple[int, Mapping[str, Raw]]] = {}
        self._billed: list[Address] = []
        self._addressed: Mapping[str, CloudAddress] = {}
        self._weights: Mapping[str, int] = {}
        cloud.on_arrival = self._called
        calico.on_assign = calico.on_release = lambda _: self.changed()

    def changed(self) -> None:
        """Something outside the API server."""
        self._is_stale = True

    def look_at_the_bill(self) -> None:
        """The cloud's tasks end by themselves."""
        before, weights = self._addressed, self._weights
        self._weights = self._cloud.weights
        if self._addresses() is not before or self._weights != weights:
            self.changed()

    @property
    def version(self) -> int:
        """Of the last change that can be seen."""
        return self._api.version_of(*SEEN)

    def look(self) -> None:
        if self._api.version == self._looked_at and not self._is_stale:
            return
        self._looked_at, version = self._api.version, self.version
        if version != self._seen_version or self._is_stale:
            self._seen_version, self._is_stale = version, False
            self.judge.look(self.observation())

    def observation(self) -> Observation:
        """Its parts are the same objects for as long as nothing in them changes."""
        nodes = self._of(NODES)
        workloads = {**self._of(DEPLOYMENTS), **self._of(STATEFUL_SETS)}
        return Observation(
            at=self._kernel.now,
            nodes=nodes,
            pods=self._of(PODS),
            workloads=workloads,
            namespaces=list(self._of(NAMESPACES).values()),
            ingress_daemon_sets=list(self._of(INGRESS_DAEMONSETS).values()),
            uses=self._uses(nodes),
            answers=self._edge.answers,
            addresses=self._addresses(),
            running=self._cloud.running,
            reserved=self._calico.reserved(),
            assigned={address: held.pod for address, held in self._calico.held.items()},
            pools=list(self._of(POOLS).values()),
            now=datetime.fromtimestamp(EPOCH + self._kernel.now, UTC),
            secrets=list(self._of(SECRETS).values()),
            webhook_configurations=[
                raw for each in CONFIGURATIONS.values() for raw in self._of(each).values()
            ],
            disturbances=self.disturbances,
        )

    def _uses(self, nodes: Mapping[str, Raw]) -> set[str]:
        """The nodes to which the load balancer sends traffic: by weights where it has some, else by its probes."""
        if self._weights:
            return {name for name, node in nodes.items() if self._weights.get(instance(node))}
        return {name for name in self._edge.uses if (node := nodes.get(name)) and is_target(node)}

    def disturb(self, *subjects: str) -> None:
        for each in subjects:
            self.disturbances.note(each, self._kernel.now)

    def _of(self, resource: Resource) -> Mapping[str, Raw]:
        """By uid; nodes by name."""
        version = self._api.version_of(resource)
        known = self._listed.get(resource)
        if known is None or known[0] != version:
            key = "name" if resource == NODES else "uid"
            known = version, {raw["metadata"][key]: raw for raw in self._api.peek(resource)}
            self._listed[resource] = known
        return known[1]

    def _addresses(self) -> Mapping[str, CloudAddress]:
        if (billed := self._cloud.addresses) != self._billed:
            self._billed, self._addressed = billed, {each.id: _shown(each) for each in billed}
        return self._addressed

    # Leadership.

    def written(self, process: Process, call: Request) -> None:
        """A write of the controllers arrives at the API server."""
        if EVENT in call.path:
            return
        if LEASE in call.path or call.path.endswith("/leases"):
            return
        what = f"{call.method} {call.path}"
        self.writes[what] += 1
        self._check_pace(what)
        self._check_leads(process, what)

    def _check_pace(self, what: str) -> None:
        if self._kernel.now >= self._paced_until:
            self._paced_until = self._kernel.now + PACE_SECONDS
            self._paced.clear()
        self._paced[what] += 1
        if self._paced[what] == MOST_WRITES and not what.startswith("POST"):
            self.judge.find("rest: no object is written over and over", self._kernel.now, what)

    def reserving(self, process: Process, writes: int) -> None:
        """A webhook server begins a write, and has so many under way."""
        if writes > MOST_AT_ONCE:
            self.judge.find(FEW_AT_ONCE, self._kernel.now, f"{writes} of {process.name}")

    def elected(self, process: Process, holder: str) -> None:
        """The Lease was written. A new leader counts the waits of drains again: documented."""
        if process is not self._leader:
            for each in self._of(INGRESS_DAEMONSETS).values():
                requests = (each.get("status") or {}).get("drainRequests") or ()
                self.disturb(*(f"drain of {node}" for node in requests))
        self._leader = process if holder else None

    @property
    def has_leader(self) -> bool:
        return self._leader is not None and not self._leader.dead

    def lease_taken(self) -> None:
        """By a person: the one who led finds out when it renews."""
        self._unclear_until = self._kernel.now + LEADS_ON
        self.disturb("lease")

    def _called(
        self, process: Process | None, action: str, params: Mapping[str, object], outcome: str
    ) -> None:
        self.changed()
        if action in CHANGES:
            self.note(process.name if process else "cloud", f"{action} {_ids(params)} -> {outcome}")
            self.writes[action] += 1
            if process:
                self._check_leads(process, f"{action} ({outcome}) {params}")
            if self._cloud.has_keys_of_the_other_account:  # what is bound there, no bill of ours shows
                self.disturb(str(params.get("InstanceId", "")))
            if process is None and (action, outcome) == (
                "CreateTags",
                "OK",
            ):  # its claim may be gone: documented
                self.disturb(
                    *(tag["TagValue"] for tag in msgspec.convert(params["Tags"], list[dict[str, str]]))
                )

    def _check_leads(self, process: Process, what: str) -> None:
        is_clear = self._kernel.now > self._unclear_until
        if is_clear and self._leader is not None and self._leader is not process:
            self.judge.find(
                "leadership: after another may lead, no write of the former leader arrives",
                self._kernel.now,
                f"{what} of {process.name}, while {self._leader.name} leads",
            )

    # Rest.

    def digest(self) -> Mapping[str, str]:
        """Of each object that we and others keep, without what passes."""
        found = {}
        for resource in KEPT:
            for raw in self._api.peek(resource):
                about = {key: value for key, value in raw["metadata"].items() if key not in PASSING}
                about["annotations"] = {**(about.get("annotations") or {}), TERM: ""}
                rest = {key: raw[key] for key in ("spec", "data") if key in raw}
                key = f"{resource.plural} {about.get('namespace', '')}/{about['name']}"
                content = msgspec.json.encode([about, rest], order="sorted")
                found[key] = hashlib.sha256(content).hexdigest()[:12]
        return found


def _ids(params: Mapping[str, object]) -> str:
    named = [params[key] for key in ("AddressId", "AddressIds", "InstanceId", "AddressName") if key in params]
    return " ".join(str(each) for each in named)


def _shown(address: Address) -> CloudAddress:
    is_ours = CLUSTER_TAG in address.tags
    ordered_for = address.tags.get(INSTANCE_TAG, "")
    return CloudAddress(
        address.id, address.status, address.instance_id, is_ours, ordered_for, address.bandwidth, address.ip
    )
