"""What is kept of a pod: all that its placement needs while it has no node, and little afterwards.

`PodSpec` has the fields of a spec that the scheduler's filters and the rules for super nodes read.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache, partial
from itertools import chain
from typing import Any

import msgspec
from msgspec.structs import replace

from api.elasticity import (
    ANY,
    BURST,
    COST,
    GATE,
    LOCAL,
    LOCAL_REPLICAS,
    OUR_COST,
    PLACEMENT,
    SUPER,
    SWITCH,
    is_daemon_pod,
    tolerates_super_nodes,
)
from kube.selectors import REQUIRED, LabelSelector, NodeAffinity, NodeSelector
from kube.types import Condition, ObjectMeta, SchedulingGate, Toleration, Value, amount, compact

HOSTNAME = "kubernetes.io/hostname"
HostPort = tuple[str, str, int]
"""Protocol, host IP and port."""
ANY_IP = ("", "0.0.0.0", "::")
Amounts = Mapping[str, Decimal]


class PodAffinityTerm(Value, frozen=True):
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    topology_key: str = ""


class PodAffinity(Value, frozen=True):
    required: tuple[PodAffinityTerm, ...] = msgspec.field(default=(), name=REQUIRED)


class Affinity(Value, frozen=True):
    node_affinity: NodeAffinity = NodeAffinity()
    pod_affinity: PodAffinity = PodAffinity()
    pod_anti_affinity: PodAffinity = PodAffinity()


class SpreadConstraint(Value, frozen=True):
    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    min_domains: int | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"


class Port(Value, frozen=True):
    name: str = ""
    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = "TCP"


class Ports(Value, frozen=True):
    """A container, as far as it matters to other pods."""

    ports: tuple[Port, ...] = ()
    restart_policy: str = ""

    @property
    def is_sidecar(self) -> bool:
        """Of an init container: whether it goes on beside the others."""
        return self.restart_policy == "Always"


class Resources(Value, frozen=True):
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}


class Handler(Value, frozen=True):
    port: int | str = 0


class Probe(Value, frozen=True):
    http_get: Handler | None = None
    tcp_socket: Handler | None = None
    grpc: Handler | None = None

    @property
    def port(self) -> int | str:
        """A number or a name; 0 for a probe that runs a command."""
        handler = self.http_get or self.tcp_socket or self.grpc
        return handler.port if handler else 0


class Container(Ports, frozen=True):
    name: str = ""
    resources: Resources = Resources()
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None
    startup_probe: Probe | None = None

    @property
    def probes(self) -> dict[str, Probe]:
        """By the name of their field."""
        named = {
            "livenessProbe": self.liveness_probe,
            "readinessProbe": self.readiness_probe,
            "startupProbe": self.startup_probe,
        }
        return {name: probe for name, probe in named.items() if probe}

    def number_of(self, port: int | str) -> int:
        """As the kubelet resolves the port of a probe: by the container's own names, else as digits."""
        if isinstance(port, int):
            return port
        named = (held.container_port for held in self.ports if held.name == port)
        return next(named, int(port) if port.isascii() and port.isdigit() else 0)


class Sysctl(Value, frozen=True):
    name: str = ""
    value: str = ""


class SecurityContext(Value, frozen=True):
    sysctls: tuple[Sysctl, ...] = ()


class PodSpec(Value, frozen=True):
    """*volumes* are raw: the kind of each is the name of one of its fields."""

    node_selector: dict[str, str] = {}
    affinity: Affinity = Affinity()
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[SpreadConstraint, ...] = ()
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    security_context: SecurityContext = SecurityContext()
    volumes: tuple[dict[str, Any], ...] = ()
    resource_claims: tuple[dict[str, Any], ...] = ()
    resources: Resources = Resources()
    overhead: dict[str, str] = {}

    @property
    def required(self) -> NodeSelector | None:
        return self.affinity.node_affinity.required

    @property
    def attracts(self) -> tuple[PodAffinityTerm, ...]:
        return self.affinity.pod_affinity.required

    @property
    def spread(self) -> list[SpreadConstraint]:
        """Those that keep a pod from being scheduled."""
        constraints = self.topology_spread_constraints
        return [constraint for constraint in constraints if constraint.when_unsatisfiable == "DoNotSchedule"]

    @property
    def requests(self) -> dict[str, Decimal]:
        """What the scheduler wants of a node.

        Of each resource, what the whole pod requests; else what its containers and sidecars take together, or before
        that an init container and the sidecars that started before it. The overhead of its runtime class comes on top.
        """
        sidecars: Amounts = {}
        most: Amounts = {}
        for container in self.init_containers:
            wanted = _sum(_amounts(container.resources.requests), sidecars)
            if container.is_sidecar:
                sidecars = wanted
            most = _max(most, wanted)
        together = _sum(sidecars, *(_amounts(container.resources.requests) for container in self.containers))
        whole = _amounts(self.resources.requests)
        return _sum(_max(together, most) | whole, _amounts(self.overhead))

    @property
    def named_containers(self) -> Iterator[tuple[str, Container]]:
        """Each under the name that messages give it."""
        yield from ((f"initContainer {container.name}", container) for container in self.init_containers)
        yield from ((f"container {container.name}", container) for container in self.containers)


def host_ports(spec: RawSpec) -> tuple[HostPort, ...]:
    """Without those of init containers that end: all but sidecars."""
    sidecars = (container for container in spec.init_containers if container.is_sidecar)
    return tuple(
        (port.protocol, port.host_ip, port.host_port)
        for container in (*spec.containers, *sidecars)
        for port in container.ports
        if port.host_port
    )


def conflict(one: HostPort, other: HostPort) -> bool:
    same_ip = one[1] == other[1] or one[1] in ANY_IP or other[1] in ANY_IP
    return same_ip and (one[0], one[2]) == (other[0], other[2])


@lru_cache(maxsize=1024)
def repelled_by(affinity: bytes) -> tuple[PodAffinityTerm, ...]:
    """The terms of required anti-affinity; one value for all pods of a template."""
    return _AFFINITY.decode(affinity).pod_anti_affinity.required


def _amounts(quantities: Mapping[str, str]) -> dict[str, Decimal]:
    return {name: amount(quantity) for name, quantity in quantities.items()}


def _sum(*all_of: Amounts) -> dict[str, Decimal]:
    found: dict[str, Decimal] = defaultdict(Decimal)
    for amounts in all_of:
        for name, quantity in amounts.items():
            found[name] += quantity
    return dict(found)


def _max(one: Amounts, other: Amounts) -> dict[str, Decimal]:
    return {name: max(one.get(name, Decimal()), other.get(name, Decimal())) for name in {**one, **other}}


_AFFINITY = msgspec.json.Decoder(Affinity)


REVISIONS = ("pod-template-hash", "controller-revision-hash")
"""Labels by which Deployments, and StatefulSets and others, name their revisions."""
ROLLED = (*REVISIONS, "rollouts-pod-template-hash")
"""These, and that of Argo Rollouts: each of its ReplicaSets is one revision, as with Deployments."""
KEPT = frozenset((LOCAL_REPLICAS, SWITCH, PLACEMENT, COST, OUR_COST, BURST))
"""The annotations that still matter when a pod is bound."""


class RawSpec(Value, frozen=True):
    """The parts of a spec that are read of each pod."""

    node_name: str = ""
    restart_policy: str = ""
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    affinity: msgspec.Raw = msgspec.Raw(b"{}")
    containers: tuple[Ports, ...] = ()
    init_containers: tuple[Ports, ...] = ()


STARTING = ("", "ContainerCreating", "PodInitializing")
"""Why a container waits whose pod has only been bound; others, as ErrImagePull, come once a machine has the pod."""


class Waiting(Value, frozen=True):
    reason: str = ""


class ContainerState(Value, frozen=True):
    waiting: Waiting = Waiting()
    running: dict[str, Any] | None = None
    terminated: dict[str, Any] | None = None


class ContainerStatus(Value, frozen=True):
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()

    @property
    def untouched(self) -> bool:
        ran = (self.state.running, self.state.terminated, self.last_state.terminated)
        return ran == (None, None, None) and self.state.waiting.reason in STARTING


class Status(Value, frozen=True):
    """*container_statuses* are raw: of most pods they are not read."""

    phase: str = ""
    nominated_node_name: str = ""
    conditions: tuple[Condition, ...] = ()
    pod_ip: str = msgspec.field(default="", name="podIP")
    container_statuses: msgspec.Raw = msgspec.Raw(b"[]")
    init_container_statuses: msgspec.Raw = msgspec.Raw(b"[]")


class RawPod(Value, frozen=True):
    """A pod as it arrives; its spec is read in part."""

    metadata: ObjectMeta = ObjectMeta()
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: Status = Status()


class Unbound(Value, frozen=True):
    """*spec* is the whole of it, as JSON; *stuck*: the scheduler finds no room for the pod.

    *gated* by us, *held* by gates of others. *nominated* is the node that a preemption chose for it.
    """

    spec: bytes = b"{}"
    gated: bool = False
    held: bool = False
    tolerates: bool = False
    stuck: bool = False
    nominated: str = ""


class Pod(Value, frozen=True):
    """*unbound* is empty for a pod that has a node, and for one that no longer needs one."""

    metadata: ObjectMeta = ObjectMeta()
    node_name: str = ""
    finished: bool = False
    unbound: Unbound = Unbound()
    repels: tuple[PodAffinityTerm, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    key: str = ""
    """What the total "at most N" is of: its owner and revision, or the pod itself."""
    ready: bool = False
    daemon: bool = False
    """Whether a DaemonSet made it."""
    unstarted: bool = False
    """Whether it was bound, and no machine is known to have it since."""
    completes: bool = False
    """Whether it runs to an end, so that its controller may count its deletion as a failure: as a Job does."""
    requests: Amounts = {}
    burst_spec: bytes = b""
    """The whole spec of a burst pod that has a node, as JSON. This and *requests* are kept while pods return only."""

    @property
    def workload(self) -> str:
        """What the pods of all revisions share; nothing where there are no revisions.

        A ReplicaSet is called after its workload and its revision.
        """
        owner, labels = self.metadata.controller, self.metadata.labels
        revision = next(filter(None, map(labels.get, ROLLED)), "")
        if owner is None or not revision:
            return ""
        name = owner.name.removesuffix(f"-{revision}")
        return f"{self.metadata.namespace}/{owner.uid if name == owner.name else f'{owner.kind}/{name}'}"

    @property
    def active(self) -> bool:
        return not self.finished and self.metadata.deletion_timestamp is None

    @property
    def gated(self) -> bool:
        """Whether it waits for its placement."""
        return self.active and self.unbound.gated

    @property
    def held(self) -> bool:
        """Whether gates of others hold it back: its placement waits for what they make of the pod."""
        return self.unbound.held

    @property
    def tolerates(self) -> bool:
        """Whether it tolerates super nodes, while it has no node."""
        return self.unbound.tolerates

    @property
    def placed(self) -> str:
        return self.metadata.annotations.get(PLACEMENT, "")

    @property
    def stuck(self) -> bool:
        return self.active and self.unbound.stuck and not self.gated

    @property
    def may_come_to_super_nodes(self) -> bool:
        """Whether it has no node yet, and we have allowed it to get a super node: by a toleration, too."""
        if not self.active or self.node_name or self.gated or not self.tolerates:
            return False
        return self.placed in (SUPER, ANY) or BURST in self.metadata.annotations


def decode(encoded: msgspec.Raw) -> Pod:
    """MsgspecError when it cannot be read."""
    return _pod(_RAW_POD.decode(encoded))


def decode_for_return(encoded: msgspec.Raw) -> Pod:
    """With what it takes of its node, and all of a burst pod: it may return. MsgspecError when it cannot be read."""
    raw = _RAW_POD.decode(encoded)
    pod = _pod(raw)
    if pod.finished or not pod.node_name:
        return pod
    pod = replace(pod, requests=_SPEC.decode(raw.spec).requests)
    if BURST not in raw.metadata.annotations:
        return pod
    return replace(pod, metadata=raw.metadata, burst_spec=bytes(raw.spec))


def _pod(raw: RawPod) -> Pod:
    spec = _RAW_SPEC.decode(raw.spec)
    finished = raw.status.phase in ("Succeeded", "Failed")
    repels = repelled_by(bytes(spec.affinity))
    ports, key, daemon = host_ports(spec), _key(raw.metadata), is_daemon_pod(raw.metadata)
    completes = spec.restart_policy in ("OnFailure", "Never")
    if not spec.node_name and not finished:
        unbound = _unbound(raw, spec)
        return Pod(raw.metadata, "", False, unbound, repels, ports, key, daemon=daemon, completes=completes)
    bound, node = compact(raw.metadata, KEPT), sys.intern(spec.node_name)
    ready = any((each.type, each.status) == ("Ready", "True") for each in raw.status.conditions)
    unstarted = not ready and _is_unstarted(raw.status)
    ready = ready and not finished
    return Pod(bound, node, finished, Unbound(), repels, ports, key, ready, daemon, unstarted, completes)


def _is_unstarted(status: Status) -> bool:
    """By what Kubernetes documents: it has no IP, no sandbox, and no container that says more than that it waits."""
    has_sandbox = any(
        (each.type, each.status) == ("PodReadyToStartContainers", "True") for each in status.conditions
    )
    if status.phase not in ("", "Pending") or status.pod_ip or has_sandbox:
        return False
    containers = chain(*map(_STATUSES.decode, (status.container_statuses, status.init_container_statuses)))
    return all(each.untouched for each in containers)


def spec_of(pod: Pod) -> dict[str, Any]:
    """Raw, of a pod that has no node."""
    spec: dict[str, Any] = msgspec.json.decode(pod.unbound.spec)
    return spec


def born(pod: Pod) -> tuple[float, int, str]:
    """Those of one second by their names, of which web-9 comes before web-10."""
    at = pod.metadata
    created = at.creation_timestamp.timestamp() if at.creation_timestamp else 0.0
    return created, len(at.name), at.name


def oldest_first(pods: Iterable[Pod]) -> list[Pod]:
    return sorted(pods, key=born)


def facets(pod: Pod) -> Iterable[str]:
    """The values by which `PodIndex` finds a pod; one that is over has none, but takes its place until it is gone."""
    if pod.finished:
        return
    if pod.node_name:
        yield f"held {pod.node_name}"
    if workload := pod.workload:
        yield f"workload {workload}"
    if not pod.active:
        return
    yield f"key {pod.key}"
    if pod.node_name:
        yield f"node {pod.node_name}"
        yield "bound"
        if pod.burst_spec:
            yield "burst"
        yield f"in {pod.metadata.namespace}"
    elif not pod.held:
        yield "gated" if pod.gated else "unbound"
    if pod.repels and not pod.gated:
        if any(term.topology_key != HOSTNAME for term in pod.repels):
            yield "repels"
        elif pod.node_name or pod.may_come_to_super_nodes:
            yield f"repels on {pod.node_name}"
    if pod.may_come_to_super_nodes:
        yield "sent"
    if pod.placed == LOCAL:
        yield "local"


Having = Callable[[], Sequence["Pod"]]
HavingName = Callable[[str], Sequence["Pod"]]


class PodIndex:
    """The questions that decisions ask about other pods; *having* finds those with one of their `facets`.

    All are about pods that are active, but for `holding` and `of_workload`: they include those that terminate.
    `gated` and `unbound` have none that others hold back.
    """

    def __init__(self, having: HavingName) -> None:
        self.gated: Having = partial(having, "gated")
        self.unbound: Having = partial(having, "unbound")  # have no node, and are not gated by us
        self.bound: Having = partial(having, "bound")
        self.burst: Having = partial(
            having, "burst"
        )  # on a super node for want of room; while pods return only
        self.repelling: Having = partial(having, "repels")  # by required anti-affinity, beyond their node
        self.sent: Having = partial(having, "sent")  # have no node yet, and may come to super nodes
        self.of_key: HavingName = lambda key: having(f"key {key}")
        self.of_workload: HavingName = lambda workload: having(f"workload {workload}")
        self.on_node: HavingName = lambda name: having(f"node {name}")
        self.holding: HavingName = lambda name: having(f"held {name}")  # take its place until they are gone
        self.repelling_on: HavingName = lambda name: having(f"repels on {name}")  # nowhere else
        self.in_namespace: HavingName = lambda name: having(f"in {name}")  # and have a node

    @staticmethod
    def of(pods: Iterable[Pod]) -> PodIndex:
        """Of these alone."""
        by_facet: dict[str, list[Pod]] = {}
        for pod in pods:
            for facet in facets(pod):
                by_facet.setdefault(facet, []).append(pod)
        return PodIndex(lambda facet: by_facet.get(facet, ()))


def _key(metadata: ObjectMeta) -> str:
    owner = metadata.controller
    if owner is None:
        return metadata.uid
    revision = next(filter(None, map(metadata.labels.get, REVISIONS)), "")
    # With the namespace: any pod can name any uid.
    return sys.intern(f"{metadata.namespace}/{owner.uid}/{revision}")


def _unbound(raw: RawPod, spec: RawSpec) -> Unbound:
    conditions = [(each.type, each.status, each.reason) for each in raw.status.conditions]
    return Unbound(
        spec=bytes(raw.spec),
        gated=any(gate.name == GATE for gate in spec.scheduling_gates),
        held=any(gate.name != GATE for gate in spec.scheduling_gates),
        tolerates=tolerates_super_nodes(spec.tolerations),
        stuck=("PodScheduled", "False", "Unschedulable") in conditions,
        nominated=raw.status.nominated_node_name,
    )


def keep_only(keys: Callable[[], Collection[str]], *known: dict[str, Any]) -> None:
    """Forget all others; *keys* are read after those that are *known*, which other threads may add to."""
    before = [set(each) for each in known]
    kept = keys()
    for each, those in zip(known, before, strict=True):
        for key in those.difference(kept):
            each.pop(key, None)


class Observed:
    """What is in some state, each key timed from when this leader first saw it so: others' stamps may be minutes off.

    *clock* is monotonic. Safe to share between threads.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.since: dict[str, float] = {}

    def age(self, key: str) -> float:
        """The seconds for which it has been seen; one that is seen first begins at 0."""
        now = self._clock()
        return now - self.since.setdefault(key, now)

    def ages(self, keys: Iterable[str]) -> Mapping[str, float]:
        return {key: self.age(key) for key in keys}

    def only(self, keys: Collection[str]) -> Mapping[str, float]:
        """As `ages`; all others begin at 0 when they are seen again."""
        keep_only(lambda: keys, self.since)
        return self.ages(keys)

    def forget(self, key: str) -> None:
        """It begins at 0 again."""
        self.since.pop(key, None)


_RAW_POD = msgspec.json.Decoder(RawPod)
_RAW_SPEC = msgspec.json.Decoder(RawSpec)
_SPEC = msgspec.json.Decoder(PodSpec)
_STATUSES = msgspec.json.Decoder(tuple[ContainerStatus, ...])
