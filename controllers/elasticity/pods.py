"""What is kept of a pod: all that its placement needs while it has no node, and little afterwards."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from typing import Any

import msgspec

from api.elasticity import (
    ANY,
    BURST,
    COST,
    GATE,
    LOCAL_REPLICAS,
    OUR_COST,
    PLACEMENT,
    SUPER,
    SWITCH,
    tolerates_super_nodes,
)
from controllers.elasticity.pod_spec import HostPort, PodAffinityTerm, Ports, host_ports, repelled_by
from kube.compact import compact
from kube.types import Condition, ObjectMeta, Toleration, Value

REVISIONS = ("pod-template-hash", "controller-revision-hash")
"""Labels by which Deployments, and StatefulSets and others, name their revisions."""
ROLLED = (*REVISIONS, "rollouts-pod-template-hash")
"""These, and that of Argo Rollouts: each of its ReplicaSets is one revision, as with Deployments."""
KEPT = frozenset((LOCAL_REPLICAS, SWITCH, PLACEMENT, COST, OUR_COST, BURST))
"""The annotations that still matter when a pod is bound."""


class Gate(Value, frozen=True):
    name: str = ""


class RawSpec(Value, frozen=True):
    """The parts of a spec that are read of each pod."""

    node_name: str = ""
    scheduling_gates: tuple[Gate, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    affinity: msgspec.Raw = msgspec.Raw(b"{}")
    containers: tuple[Ports, ...] = ()
    init_containers: tuple[Ports, ...] = ()


class Status(Value, frozen=True):
    phase: str = ""
    nominated_node_name: str = ""
    conditions: tuple[Condition, ...] = ()


class RawPod(Value, frozen=True):
    """A pod as it arrives; its spec is read in part."""

    metadata: ObjectMeta = ObjectMeta()
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: Status = Status()


class Unbound(Value, frozen=True):
    """*spec* is the whole of it, as JSON; *stuck_since* is when the scheduler found no room for the pod.

    *gated* by us, *held* by gates of others.
    """

    spec: bytes = b"{}"
    gated: bool = False
    held: bool = False
    tolerates: bool = False
    stuck_since: datetime | None = None
    nominated: bool = False


class Pod(Value, frozen=True):
    """*unbound* is None for a pod that has a node, and for one that no longer needs one."""

    metadata: ObjectMeta = ObjectMeta()
    node_name: str = ""
    finished: bool = False
    unbound: Unbound | None = None
    repels: tuple[PodAffinityTerm, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    key: str = ""
    """What the total "at most N" is of: its owner and revision, or the pod itself."""
    ready: bool = False

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
        return owner.uid if name == owner.name else f"{self.metadata.namespace}/{owner.kind}/{name}"

    @property
    def active(self) -> bool:
        return not self.finished and self.metadata.deletion_timestamp is None

    @property
    def gated(self) -> bool:
        """Whether it waits for its placement."""
        return self.active and self.unbound is not None and self.unbound.gated

    @property
    def tolerates(self) -> bool:
        """Whether it tolerates super nodes, while it has no node."""
        return self.unbound is not None and self.unbound.tolerates

    @property
    def placed(self) -> str:
        return self.metadata.annotations.get(PLACEMENT, "")

    @property
    def stuck_since(self) -> datetime | None:
        """None, too, while others are being evicted to make room for it."""
        waits = self.unbound if self.active else None
        return None if waits is None or waits.gated or waits.nominated else waits.stuck_since

    @property
    def may_come_to_super_nodes(self) -> bool:
        """Whether it has no node yet, and we have allowed it to get a super node."""
        if not self.active or self.unbound is None or self.unbound.gated:
            return False
        return self.placed in (SUPER, ANY) or BURST in self.metadata.annotations


def decode(encoded: msgspec.Raw) -> Pod:
    """MsgspecError when it cannot be read."""
    raw = _RAW_POD.decode(encoded)
    spec = _RAW_SPEC.decode(raw.spec)
    finished = raw.status.phase in ("Succeeded", "Failed")
    repels = repelled_by(bytes(spec.affinity))
    ports = host_ports(spec.containers, spec.init_containers)
    key = _key(raw.metadata)
    ready = any((each.type, each.status) == ("Ready", "True") for each in raw.status.conditions)
    if spec.node_name or finished:
        bound = compact(raw.metadata, KEPT)
        return Pod(
            bound,
            sys.intern(spec.node_name),
            finished,
            None,
            repels,
            ports,
            key,
            ready=ready and not finished,
        )
    return Pod(raw.metadata, "", False, _unbound(raw, spec), repels, ports, key)


def spec_of(pod: Pod) -> dict[str, Any]:
    """Raw, of a pod that has no node."""
    spec: dict[str, Any] = msgspec.json.decode(pod.unbound.spec if pod.unbound else b"{}")
    return spec


def oldest_first(pods: Iterable[Pod]) -> list[Pod]:
    """Those of one second by their names, of which web-9 comes before web-10."""
    return sorted(pods, key=_age)


def facets(pod: Pod) -> Iterable[str]:
    """The index values of a pod; one that is over has none, but takes its place until it is gone."""
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
        yield f"in {pod.metadata.namespace}"
    else:
        yield "gated" if pod.gated else "unbound"
    if pod.repels and not pod.gated:
        yield "repels"
    if pod.may_come_to_super_nodes:
        yield "sent"
    if pod.placed:
        yield f"placed {pod.placed}"


def _key(metadata: ObjectMeta) -> str:
    owner = metadata.controller
    if owner is None:
        return metadata.uid
    revision = next(filter(None, map(metadata.labels.get, REVISIONS)), "")
    return sys.intern(f"{owner.uid}/{revision}")


def _unbound(raw: RawPod, spec: RawSpec) -> Unbound:
    return Unbound(
        spec=bytes(raw.spec),
        gated=any(gate.name == GATE for gate in spec.scheduling_gates),
        held=any(gate.name != GATE for gate in spec.scheduling_gates),
        tolerates=tolerates_super_nodes(spec.tolerations),
        stuck_since=next((_since(raw, each) for each in raw.status.conditions if _says_stuck(each)), None),
        nominated=bool(raw.status.nominated_node_name),
    )


def _says_stuck(condition: Condition) -> bool:
    return (condition.type, condition.status, condition.reason) == ("PodScheduled", "False", "Unschedulable")


def _since(raw: RawPod, condition: Condition) -> datetime | None:
    return condition.last_transition_time or raw.metadata.creation_timestamp


def _age(pod: Pod) -> tuple[float, int, str]:
    created = pod.metadata.creation_timestamp
    return created.timestamp() if created else 0.0, len(pod.metadata.name), pod.metadata.name


def keep_only(known: dict[str, Any], uids: Callable[[], Collection[str]]) -> None:
    """Forget all other pods; *uids* are read after those that are *known*, which other threads may add to."""
    for uid in set(known).difference(uids()):
        known.pop(uid, None)


_RAW_POD = msgspec.json.Decoder(RawPod)
_RAW_SPEC = msgspec.json.Decoder(RawSpec)
