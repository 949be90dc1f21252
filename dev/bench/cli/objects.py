"""The objects of a large cluster as the API server takes them: every node has an anycast IP, some pods are elastic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from api.anycast_ip import ADDRESS, ADDRESS_ID, BOUND
from api.elasticity import GATE, LOCAL, PLACEMENT, REASON, SUPER, TAINT_KEY
from calico.segment import Record
from controllers.anycast_ip.claim import LABELS, Claim, data, name_of
from dev.bench.replicas import objects
from dev.bench.replicas.objects import OWNERS_OF_A_NAMESPACE, PODS_OF_AN_OWNER, Object
from kube.types import INSTANCE_TYPE, SUPER_NODE
from settings.anycast_ip import NEED_LABEL

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
BY_SERVER = ("uid", "resourceVersion", "creationTimestamp", "managedFields")
ELASTIC, GATED = 10, 400
"""Every so-manieth owner is elastic; every so-manieth pod waits at its gate, and is of such an owner."""


@dataclass(frozen=True)
class Size:
    """*super_nodes* are among the *nodes*; *reserved* are IPs."""

    nodes: int = 1_000
    super_nodes: int = 10
    pods: int = 20_000
    reserved: int = 2_000

    @property
    def namespaces(self) -> int:
        return -(-self.pods // (PODS_OF_AN_OWNER * OWNERS_OF_A_NAMESPACE))


QUICK = Size(20, 2, 400, 50)


def namespaces(size: Size) -> Iterator[Object]:
    for number in range(size.namespaces):
        found = objects.namespace(number)
        yield {"metadata": {"name": found["metadata"]["name"], "labels": found["metadata"]["labels"]}}


def account() -> Object:
    """Pods need one, which the controller manager would create."""
    return {"metadata": {"name": "default"}}


def nodes(size: Size) -> Iterator[Object]:
    """As their kubelets register them; the last ones are super nodes."""
    for number in range(size.nodes):
        node = as_sent(objects.node(number))
        if number >= size.nodes - size.super_nodes:
            node["metadata"]["labels"][INSTANCE_TYPE] = SUPER_NODE
            node["spec"]["taints"] = [{"key": TAINT_KEY, "value": "", "effect": "NoSchedule"}]
        else:
            node["metadata"]["labels"][NEED_LABEL] = "true"
        yield node


def is_super(node: Object) -> bool:
    return bool(node["metadata"]["labels"].get(INSTANCE_TYPE) == SUPER_NODE)


def opened(node: Object) -> Object:
    """The change that opens *node*, as it was created: its address is proven bound, and no taint is left."""
    uid, number = node["metadata"]["uid"], _number(node)
    annotations = {
        ADDRESS_ID: f"eip-{number:08x}",
        ADDRESS: f"43.{number >> 8}.{number & 255}.7",
        BOUND: f"{uid}/eip-{number:08x}",
    }
    return {"metadata": {"annotations": annotations}, "spec": {"taints": None}}


def claim(node: Object) -> Object:
    """The ConfigMap with the address claim of *node*."""
    uid, number = node["metadata"]["uid"], _number(node)
    name, instance = node["metadata"]["name"], f"ins-{number:08d}"
    held = Claim(
        uid=uid,
        node=name,
        instance=instance,
        token=f"drawbridge-{uid}-1",
        name=f"cls-bench-aia-{uid[:12]}",
        asked=AT,
        address=f"eip-{number:08x}",
        labels={NEED_LABEL: "true"},
    )
    return {"metadata": {"name": name_of(uid), "labels": LABELS}, "data": data(held)}


def pod(number: int, size: Size) -> Object:
    """As it is created."""
    made = as_sent(objects.pod(number))
    spec, local = made["spec"], size.nodes - size.super_nodes
    spec["serviceAccountName"] = "default"
    spec["nodeName"] = node_name(number % local)
    if goes(number, size):
        spec["nodeName"] = node_name(local + number % size.super_nodes)
        spec["tolerations"].append({"key": TAINT_KEY, "operator": "Exists"})
    if waits(number):
        del spec["nodeName"]
        spec["schedulingGates"] = [{"name": GATE}]
    return made


def started(number: int, size: Size) -> Object:
    """The change that lets the pod run: a new one is pending, and admission believes no placement that it has."""
    placed = {PLACEMENT: SUPER if goes(number, size) else LOCAL, REASON: "5 of its workload are local"}
    annotations = placed if is_elastic(number) else {}
    return {"metadata": {"annotations": annotations}, "status": objects.pod(number)["status"]}


def is_elastic(number: int) -> bool:
    return number // PODS_OF_AN_OWNER % ELASTIC == 0


def goes(number: int, size: Size) -> bool:
    """Whether it is on a super node, as half of the elastic ones are."""
    return is_elastic(number) and number % 2 == 1 and size.super_nodes > 0


def waits(number: int) -> bool:
    return number % GATED == 0


def node_name(number: int) -> str:
    return f"node-{number}.example.internal"


def as_sent(made: Object) -> Object:
    """Without what the API server fills in."""
    metadata = {name: value for name, value in made["metadata"].items() if name not in BY_SERVER}
    return {**made, "metadata": metadata}


def records(size: Size) -> list[Record]:
    """Of pods that are gone."""
    return [
        Record(
            cidr=f"172.20.{number >> 8}.{number & 255}/32",
            at=AT,
            namespace=f"team-{number % size.namespaces}",
            pod=f"service-{number}-0",
            uid=objects.uid("gone", number),
            node=node_name(number % size.nodes),
            owner=f"StatefulSet/service-{number}",
            reason="deleted",
            ended=AT + timedelta(seconds=30),
        )
        for number in range(size.reserved)
    ]


def _number(node: Object) -> int:
    return int(node["metadata"]["name"].removeprefix("node-").partition(".")[0])
