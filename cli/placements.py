"""Which pod is placed where, and why; and which may return: functions of values."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from enum import StrEnum

from api.elasticity import BURST, PLACEMENT, REASON, SUPER, never_returns
from cli.errors import Failure
from cli.objects import Pod
from cli.output import Cell, Document, Part, Table, age, warning


class Place(StrEnum):
    GATED = "gated"
    PENDING = "pending"
    LOCAL = "local"
    SUPER_NODE = "super node"


class Placement(Document, frozen=True):
    """*burst*: it may run on super nodes because local nodes were full. *stays* is why it never returns by itself."""

    namespace: str
    pod: str
    workload: str
    place: Place
    node: str
    burst: bool
    reason: str
    created_at: datetime | None
    uid: str
    stays: str = ""


class Placements(Document, frozen=True):
    placements: tuple[Placement, ...]


def listed(pods: Sequence[Pod], super_nodes: Collection[str]) -> tuple[Placement, ...]:
    """Those that elasticity has to do with: gated, placed, or on a super node. Gated ones come first."""
    found = [_placement(each, super_nodes) for each in pods if _concerns(each, super_nodes)]
    order = [*Place]
    return tuple(sorted(found, key=lambda each: (order.index(each.place), each.namespace, each.pod)))


def to_return(pods: Sequence[Pod], super_nodes: Collection[str], names: Collection[str]) -> list[Placement]:
    """The pods to evict: *names*, or all that may return. Failure for one whose replacement would not be local."""
    found = {each.metadata.name: each for each in pods if each.spec.node_name in super_nodes}
    if missing := sorted({*names} - found.keys()):
        raise Failure(f"{missing[0]} is not a pod on a super node", "drawbridge elasticity list shows those")
    for name in names:
        if why := _why_not(found[name]):
            raise Failure(
                f"{name} would not return: {why}", "raise LOCAL_REPLICAS of its workload, then restart that"
            )
    chosen = [each for name, each in found.items() if name in names or (not names and not _why_not(each))]
    return [_placement(each, super_nodes) for each in chosen]


def parts_of(found: Placements, now: datetime) -> Iterator[Part]:
    columns = ("NAMESPACE", "POD", "PLACE", "NODE", "AGE", "WORKLOAD", "REASON", "STAYS BECAUSE")
    rows = [_row(each, now) for each in found.placements]
    yield Table(columns, rows, empty="no pod has a placement", wide=1)


def _row(each: Placement, now: datetime) -> list[Cell]:
    place: Cell = warning(each.place) if each.place in (Place.GATED, Place.PENDING) else str(each.place)
    born = age(each.created_at, now)
    return [each.namespace, each.pod, place, each.node, born, each.workload, each.reason, each.stays]


def _why_not(pod: Pod) -> str:
    """Only a pod that local nodes had no room for has a replacement that may be local."""
    if pod.metadata.controller is None:
        return "no controller replaces it"
    if pod.metadata.annotations.get(PLACEMENT) == SUPER and BURST not in pod.metadata.annotations:
        return (
            "its workload has its LOCAL_REPLICAS already, so its replacement is placed on a super node, too"
        )
    return ""


def _concerns(pod: Pod, super_nodes: Collection[str]) -> bool:
    if not pod.spec.node_name and REASON in pod.metadata.annotations:
        return True
    return PLACEMENT in pod.metadata.annotations or pod.is_gated or pod.spec.node_name in super_nodes


def _placement(pod: Pod, super_nodes: Collection[str]) -> Placement:
    metadata, owner = pod.metadata, pod.metadata.controller
    return Placement(
        metadata.namespace,
        metadata.name,
        f"{owner.kind}/{owner.name}" if owner else "",
        _place(pod, super_nodes),
        pod.spec.node_name,
        BURST in metadata.annotations,
        metadata.annotations.get(REASON, ""),
        metadata.creation_timestamp,
        metadata.uid,
        (never_returns(metadata) or "") if pod.spec.node_name in super_nodes else "",
    )


def _place(pod: Pod, super_nodes: Collection[str]) -> Place:
    if pod.is_gated:
        return Place.GATED
    if not pod.spec.node_name:
        return Place.PENDING
    return Place.SUPER_NODE if pod.spec.node_name in super_nodes else Place.LOCAL
