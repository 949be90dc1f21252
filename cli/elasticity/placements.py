"""`drawbridge elasticity list|return`: which pod is placed where, and why; and which may return."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from functools import partial

import click

from api.elasticity import BURST, PLACEMENT, REASON, SUPER, must_stay, never_returns
from cli.errors import WRONG, Failure
from cli.inventory import Inventory
from cli.output import Cell, Document, Part, Report, Table, age, warning
from cli.pods import Pod
from cli.session import Commands, Session, pass_session, selector_option, watch_option
from kube.errors import ApiError, Conflict, NotFound, ServerError, TooManyRequests
from kube.resources import Selection

PENDING = Selection(field_selector="status.phase=Pending")


class Place(StrEnum):
    GATED = "gated"
    PENDING = "pending"
    STARTING = "starting"
    """Pending on a super node."""
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


class Placements(Report, frozen=True):
    placements: tuple[Placement, ...]

    def parts(self, now: datetime) -> Iterator[Part]:
        columns = ("NAMESPACE", "POD", "PLACE", "NODE", "AGE", "WORKLOAD", "REASON", "STAYS BECAUSE")
        rows = [_row(each, now) for each in self.placements]
        yield Table(columns, rows, empty="no pod has a placement", wide=1)


def listed(pods: Sequence[Pod], super_nodes: Collection[str]) -> tuple[Placement, ...]:
    """Those that elasticity has to do with: gated, placed, or on a super node. Gated ones come first."""
    found = [_placement(each, super_nodes) for each in pods if _concerns(each, super_nodes)]
    order = [*Place]
    return tuple(sorted(found, key=lambda each: (order.index(each.place), each.namespace, each.pod)))


def to_return(pods: Sequence[Pod], super_nodes: Collection[str], names: Collection[str]) -> list[Placement]:
    """The pods to evict: *names*, or all that local nodes had no room for, but for those that go or must stay.

    Failure for one of *names* that is terminating, or whose replacement would not be local.
    """
    found = {each.metadata.name: each for each in pods if each.spec.node_name in super_nodes}
    if missing := sorted({*names} - found.keys()):
        raise Failure(f"{missing[0]} is not a pod on a super node", "drawbridge elasticity list shows those")
    for name in names:
        if found[name].terminating:
            raise Failure(
                f"{name} is terminating already", "drawbridge elasticity list shows its replacement"
            )
        if why := _why_not(found[name]):
            raise Failure(
                f"{name} would not return: {why}", "raise LOCAL_REPLICAS of its workload, then restart that"
            )
    bursts = [
        pod
        for pod in found.values()
        if BURST in pod.metadata.annotations and not pod.terminating and not must_stay(pod.metadata)
    ]
    chosen = [found[name] for name in dict.fromkeys(names)] or bursts
    return [_placement(each, super_nodes) for each in chosen]


def _row(each: Placement, now: datetime) -> list[Cell]:
    place: Cell = warning(each.place) if each.place in (Place.GATED, Place.PENDING) else str(each.place)
    born = age(each.created_at, now)
    return [each.namespace, each.pod, place, each.node, born, each.workload, each.reason, each.stays]


def _why_not(pod: Pod) -> str:
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
    if pod.spec.node_name not in super_nodes:
        return Place.LOCAL
    return Place.STARTING if pod.status.phase == "Pending" else Place.SUPER_NODE


@click.group(cls=Commands)
def elasticity() -> None:
    """List where pods run and why, and return them to local nodes."""


@elasticity.command("list")
@selector_option("pods")
@watch_option
@pass_session
def list_placements(session: Session, selector: str, watch: bool) -> None:
    """List placed and waiting pods, with the reason."""
    where = Selection(session.scope, label_selector=selector)

    def read() -> Placements:
        return Placements(listed(*pods_and_super_nodes(Inventory(session.cluster), where)))

    session.follow(read, watch)


@elasticity.command("return")
@click.argument("pods", metavar="[POD...]", nargs=-1)
@selector_option("pods")
@pass_session
def return_pods(session: Session, pods: tuple[str, ...], selector: str) -> None:
    """Evict pods from super nodes.

    Their replacements run on local nodes if there is room. Without names: all pods of the namespace that are there
    because local nodes were full, except those of Jobs and those whose annotations keep them. Respects
    PodDisruptionBudgets.
    """
    if session.options.all_namespaces:
        raise click.UsageError("pods return in one namespace at a time: name it with -n")
    where = Selection(session.namespace, label_selector=selector)
    found, super_nodes = pods_and_super_nodes(Inventory(session.cluster), where)
    chosen = to_return(found, super_nodes, pods)
    if not chosen:
        session.output.say(f"no pod of namespace {session.namespace} is to return; nothing was changed")
        return
    names = (f"  {each.pod} on {each.node}" for each in chosen)
    session.confirm(f"Pods of namespace {session.namespace} to evict:", *names, "Evict?")
    evicted = [_evict(session, each) for each in chosen]
    if not all(evicted):
        raise SystemExit(WRONG)


def _evict(session: Session, chosen: Placement) -> bool:
    try:
        session.cluster.client.evict(chosen.pod, chosen.namespace, preconditions={"uid": chosen.uid})
    except (NotFound, Conflict):
        session.output.say(f"{chosen.pod}: has gone in the meantime")
        return True
    except ApiError as error:
        # A webhook or a policy of others denies this pod; RBAC would refuse each.
        if not isinstance(error, TooManyRequests | ServerError) and " denied " not in error.message:
            raise
        session.output.say(f"{chosen.pod}: not evicted: {error.message}")
        return False
    session.output.say(f"{chosen.pod}: evicted from {chosen.node}")
    return True


def pods_and_super_nodes(inventory: Inventory, where: Selection) -> tuple[Sequence[Pod], set[str]]:
    """All pods that are not over, and all super nodes. KubeError."""
    pods, super_nodes = inventory.cluster.together(partial(inventory.all_pods, where), inventory.super_nodes)
    return [pod for pod in pods if not pod.finished], {*super_nodes}
