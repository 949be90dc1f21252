"""What the load balancer, the cloud's bill, Calico's allocator, the scheduler and kubectl see at one instant."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

Raw = dict[str, Any]
NEED_ADDRESS = "tke.cloud.tencent.com/need-aia-ip"
NO_ADDRESS = "tke.cloud.tencent.com/no-aia-ip"
HAS_ADDRESS = "drawbridge.io/anycast-ip"
ADDRESS_READY = "AnycastIPReady"
ADDRESS_ID = "tke.cloud.tencent.com/anycast-ip-id"
SHOWN_ADDRESS = "tke.cloud.tencent.com/anycast-ip-address"
NODE_ADDRESS = "drawbridge.io/node-anycast-ip"
INSTANCE = "cloud.tencent.com/node-instance-id"
CLUSTER_TAG = "aia-official-cluster-uuid"
INSTANCE_TAG = "aia-node-ins-id"
SUPER_TYPE = ("node.kubernetes.io/instance-type", "eklet")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
BOUND = ("BIND", "BIND_ENI")
ADMITTED = 30.0
"""Seconds that all webhooks may take together."""


@dataclass(frozen=True)
class CloudAddress:
    """An elastic address, as the cloud lists it."""

    id: str
    status: str
    instance: str
    is_ours: bool
    """Whether it has our cluster's tag."""
    ordered_for: str = ""
    """The instance of the node that it was ordered for, by its tag."""
    bandwidth: int = 0
    ip: str = ""


class Disturbances:
    """Who but us has interfered with what, and when last: the outside forgives us what others do."""

    def __init__(self) -> None:
        self._at: dict[str, float] = {}

    def note(self, subject: str, at: float) -> None:
        """*subject* names a pod, node, workload or address, `drain of`, `admission of` or `release of` one, the
        `lease`, `etcd` when it was restored, or `super nodes`, when others have closed or opened them to pods."""
        self._at[subject] = at

    def within(self, seconds: float, now: float, *subjects: str) -> bool:
        return any(now - self._at.get(subject, float("-inf")) <= seconds for subject in subjects)


@dataclass(frozen=True)
class Observation:
    """*at* is in seconds; objects are as the API server shows them."""

    at: float
    nodes: Mapping[str, Raw] = field(default_factory=dict)
    pods: Mapping[str, Raw] = field(default_factory=dict)
    """By uid."""
    workloads: Mapping[str, Raw] = field(default_factory=dict)
    """ReplicaSets, StatefulSets and Deployments, by uid."""
    namespaces: Sequence[Raw] = ()
    ingress_daemon_sets: Sequence[Raw] = ()
    uses: Collection[str] = ()
    """The nodes to which the load balancer sends traffic."""
    answers: Mapping[str, int] = field(default_factory=dict)
    """The last status of each node's health check; 0 when nothing answers."""
    addresses: Mapping[str, CloudAddress] = field(default_factory=dict)
    """By id."""
    tagged: Collection[str] = ()
    """The instances of nodes that the cloud has a tag for, on an address or not. It is asked for at rest."""
    running: Collection[str] = ()
    """The instances that the cloud has, and is not ending."""
    reserved: Collection[str] = ()
    """Addresses that Calico's allocator does not assign."""
    assigned: Mapping[str, str] = field(default_factory=dict)
    """The uid of the pod that has an address."""
    pools: Sequence[Raw] = ()
    """Calico's."""
    now: datetime = EPOCH
    """The true time, by which certificates are valid."""
    secrets: Sequence[Raw] = ()
    webhook_configurations: Sequence[Raw] = ()
    report: Raw = field(default_factory=dict)
    """What `drawbridge status` prints as JSON. It is asked for at rest."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Gauges of the leader, as Prometheus writes their names and labels. They are asked for at rest."""
    disturbances: Disturbances = field(default_factory=Disturbances)


def labels(raw: Raw) -> Mapping[str, str]:
    found: Mapping[str, str] = raw["metadata"].get("labels") or {}
    return found


def notes(raw: Raw) -> Mapping[str, str]:
    found: Mapping[str, str] = raw["metadata"].get("annotations") or {}
    return found


def name(raw: Raw) -> str:
    return str(raw["metadata"]["name"])


def is_terminating(raw: Raw) -> bool:
    return bool(raw["metadata"].get("deletionTimestamp"))


def condition(raw: Raw, kind: str) -> Raw:
    found = (raw.get("status") or {}).get("conditions") or []
    return next((each for each in found if each["type"] == kind), {})


def is_ready(raw: Raw) -> bool:
    """Of a pod or a node."""
    return condition(raw, "Ready").get("status") == "True"


def is_super(node: Raw) -> bool:
    key, value = SUPER_TYPE
    return labels(node).get(key) == value


def instance(node: Raw) -> str:
    """By its label, else by where its kubelet says that it runs."""
    provider = str((node.get("spec") or {}).get("providerID", ""))
    return labels(node).get(INSTANCE) or provider.rpartition("/")[2]


def needs_address(node: Raw) -> bool:
    return labels(node).get(NEED_ADDRESS) == "true" and not is_super(node)


def is_open(node: Raw) -> bool:
    taints = (node.get("spec") or {}).get("taints") or []
    return not any(each["key"] == NO_ADDRESS for each in taints)


def is_open_without(node: Raw) -> bool:
    """Whether it is open, and its label says that it has no address."""
    return is_open(node) and labels(node).get(HAS_ADDRESS) == "none"


def owner(raw: Raw, kind: str) -> Raw | None:
    owners = raw["metadata"].get("ownerReferences") or []
    return next((each for each in owners if each["kind"] == kind and each.get("controller")), None)


def is_missed(raw: Raw, seen: Observation) -> bool:
    """Whether it has just come without an answer of a webhook server, or with a warning that nothing is done about it.

    A name that the API server makes up is not known to admission.
    """
    about = raw["metadata"]
    subject = about.get("generateName") or about["name"]
    return seen.disturbances.within(ADMITTED, seen.at, f"admission of {subject}")


def bound_instances(seen: Observation) -> Mapping[str, list[str]]:
    """The ids of our addresses that are bound to an instance."""
    found: dict[str, list[str]] = {}
    for address in seen.addresses.values():
        if address.is_ours and address.status in BOUND:
            found.setdefault(address.instance, []).append(address.id)
    return found
