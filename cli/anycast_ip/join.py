"""`drawbridge simulate join`: addresses to order for more nodes, the time and the quotas for them, and their pods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import click
import msgspec
from msgspec.structs import replace

from api.anycast_ip import (
    DAILY,
    LABEL,
    PATH,
    TAINT,
    TOTAL,
    is_open_without,
    is_ours,
    is_proven_bound,
    is_tainted,
    wanted,
)
from api.ingress_daemonset.template import FollowedNode, Template, Where, tolerations, where_of
from cli.anycast_ip.addresses import address_claims
from cli.anycast_ip.health import left_of, quotas_read
from cli.anycast_ip.node import opens_when, taints_in_words, terms_in_words
from cli.errors import Failure
from cli.explain.kinds import ingress_daemonsets_of, snapshot_of
from cli.explain.prediction import Snapshot, creation_of, predict
from cli.inventory import Inventory
from cli.output import Document, Part, Report, Table, count_of, duration, title, warning
from cli.session import Command, Session, pass_session
from cli.simulate import Change, Effect
from cloud.apis import ALLOCATE
from controllers.anycast_ip.claim import INSTANCE_LABEL
from controllers.anycast_ip.pool import in_line
from controllers.anycast_ip.sources import LONG_AGO
from kube.resources import DAEMON_SETS, NODES
from kube.types import Node, ObjectMeta, Value
from settings import AnycastIPSettings

TAG_VALUES = 2
"""Each address has two tags with their own values: the name of its node and the id of its instance."""
NAME = "simulated-node"
OWN_LABELS = ("kubernetes.io/hostname", INSTANCE_LABEL, LABEL)
"""Labels whose values belong to one node."""


class Quota(Document, frozen=True):
    """*needed* of the cloud's quota, by nodes that wait already, too; the others are as the leader last read them."""

    quota: str
    needed: int
    limit: int | None = None
    left: int | None = None


class Orders(Document, frozen=True):
    """*waiting* nodes, which have no address yet, are before the new ones.

    *seconds* is from the first order to the last, for both. *from_pool* of the new ones get an idle address; *needed*
    is how many are ordered. Each address is announced for *announced_for* seconds before it is bound.
    """

    address_type: str
    needed: int
    from_pool: int
    waiting: int
    in_cluster: int
    per_second: float
    seconds: float
    quotas: tuple[Quota, ...]
    announced_for: float = 0.0


def orders_for(inventory: Inventory, count: int, nodes: Iterable[FollowedNode]) -> Orders:
    """So that *count* new nodes get their addresses, after those of *nodes* that wait."""
    settings, claims = inventory.settings.anycast_ip, address_claims(inventory)
    readable = [claim for _, claim in claims if claim]
    idle = in_line(claim for claim in readable if claim.pooled)
    served = {claim.uid for claim in readable if claim.address}
    waiting = sum(
        wanted(each, settings) and (is_tainted(each) or is_open_without(each))
        for each in nodes
        if each.metadata.uid not in served
    )
    per_second = ALLOCATE.rate * inventory.settings.cloud.rate_share / 100
    from_pool = min(count, max(0, len(idle) - waiting))
    needed, ordered = count - from_pool, max(0, waiting + count - len(idle))
    known = {each.quota: (each.limit, each.left) for each in left_of(quotas_read(inventory))}
    quotas = [Quota(name, ordered, *known.get(name, ())) for name in (TOTAL, DAILY)]
    tags = Quota("tag values", TAG_VALUES * needed)
    return Orders(
        address_type=settings.address_type,
        needed=needed,
        from_pool=from_pool,
        waiting=waiting,
        in_cluster=len(claims),
        per_second=per_second,
        seconds=ordered / per_second,
        quotas=(*quotas, tags),
        announced_for=settings.allow_list.wait,
    )


def order_parts(orders: Orders) -> Iterator[Part]:
    if orders.from_pool:
        yield f"From the pool, without an order: {count_of(orders.from_pool, 'address', 'addresses')}."
    first = f" after {count_of(orders.waiting, 'node')} waiting already" if orders.waiting else ""
    yield (
        f"Type {orders.address_type}; the cluster has {orders.in_cluster} now. All are ordered in"
        f" {duration(orders.seconds)}{first}, at {orders.per_second:g} a second, if the quotas suffice."
    )
    if orders.announced_for:
        yield f"Each is bound once it has been in the allow-list for {duration(orders.announced_for)}."
    rows = [(each.quota, str(each.needed), _known(each.limit), _known(each.left)) for each in orders.quotas]
    yield Table(("QUOTA", "NEEDED", "LIMIT", "LEFT"), rows)
    short = [each.quota for each in orders.quotas if each.left is not None and each.needed > each.left]
    if short:
        yield warning(f"More than is left: {', '.join(short)}.")
    is_known = any(each.left is not None for each in orders.quotas)
    read = "what the leader last read: drawbridge addresses list says when"
    yield f"What is left is {read if is_known else 'unknown until the leader has read it'}."


def _known(number: int | None) -> str:
    return "unknown" if number is None else str(number)


class DaemonSetSpec(Value, frozen=True):
    template: Template = Template()


class DaemonSet(Value, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: DaemonSetSpec = DaemonSetSpec()


class Starting(Document, frozen=True):
    """Pods of a workload that start on the new nodes; *when*: at once, or when the nodes open."""

    kind: str
    workload: str
    per_node: int
    pods: int
    when: str


class Join(Report, frozen=True):
    """*admission* is what Drawbridge's webhook does to each; *orders* are None when they need no address.

    *address_terms* are those of each address, where nodes differ in them; *opens_when* is the check before the opening.
    """

    nodes: int
    like: str
    labels: dict[str, str]
    taints: tuple[str, ...]
    admission: str
    why_no_address: str
    orders: Orders | None
    address_terms: str
    opens_when: str
    starting: tuple[Starting, ...]

    def parts(self, now: datetime) -> Iterator[Part]:
        like = f" like {self.like}" if self.like else ""
        orders, needs = self.orders, "no address is ordered"
        if orders:
            needs = f"{count_of(orders.needed, 'address', 'addresses')} ordered"
        yield title(f"{count_of(self.nodes, 'node')} more{like}: {needs}")
        yield f"Admission: {self.admission}. Taints then: {', '.join(self.taints) or 'none'}."
        if orders is None:
            yield f"No address: {self.why_no_address}."
        else:
            yield from order_parts(orders)
        if self.address_terms:
            yield f"Each address: {self.address_terms}."
        if self.opens_when:
            yield f"A node opens {self.opens_when}, which a pod on it finds out within seconds once the image is there."
        rows = [(each.workload, each.kind, str(each.pods), each.when) for each in self.starting]
        yield Table(
            ("STARTS THERE", "KIND", "PODS", "WHEN"), rows, empty="No pods start there by themselves."
        )


def join(inventory: Inventory, count: int, like: str) -> Join:
    """KubeError; Failure when there is no node to be *like*."""
    nodes = inventory.list(NODES, FollowedNode)
    ingress_daemonsets = ingress_daemonsets_of(inventory, None)
    snapshot = snapshot_of(inventory)
    settings = snapshot.settings.anycast_ip
    node, is_like = _new_node(nodes, like, settings)
    needed = settings.enabled and wanted(node, settings)
    # The leader closes what admission missed.
    closed = replace(node, spec=replace(node.spec, taints=(*node.spec.taints, TAINT))) if needed else node
    workloads: list[tuple[str, ObjectMeta, Where, int]] = [
        ("IngressDaemonSet", each.metadata, where_of(each), each.spec.pods_per_node)
        for each in ingress_daemonsets
    ]
    workloads += [
        ("DaemonSet", each.metadata, _where(each), 1) for each in inventory.list(DAEMON_SETS, DaemonSet)
    ]
    return Join(
        nodes=count,
        like=is_like,
        labels=node.metadata.labels,
        taints=taints_in_words(closed),
        admission=_admission(node, snapshot),
        why_no_address="" if needed else _why_not(like or node.name, settings),
        orders=orders_for(inventory, count, nodes) if needed else None,
        address_terms=terms_in_words(node, settings),
        opens_when=opens_when(settings) if needed else "",
        starting=tuple(
            Starting(kind, f"{metadata.namespace}/{metadata.name}", per_node, per_node * count, when)
            for kind, metadata, where, per_node in workloads
            if (when := _when(where, closed, node))
        ),
    )


def _new_node(
    nodes: Iterable[FollowedNode], like: str, settings: AnycastIPSettings
) -> tuple[FollowedNode, str]:
    """As a client would create it, and the name of the node that it is like: the newest of those with the labels."""
    similar = [each for each in nodes if (each.name == like if like else wanted(each, settings))]
    if like and not similar:
        way_out = "name one that new nodes resemble, or leave --like out"
        raise Failure(f"there is no node {like}", way_out)
    if not similar:
        return FollowedNode(ObjectMeta(NAME, labels=settings.node_labels)), ""
    newest = max(similar, key=lambda each: (each.metadata.creation_timestamp or LONG_AGO, each.name))
    labels = {key: each for key, each in newest.metadata.labels.items() if key not in OWN_LABELS}
    taints = tuple(each for each in newest.spec.taints if not is_ours(each))
    spec = replace(newest.spec, taints=taints, provider_id="", unschedulable=False)
    return FollowedNode(ObjectMeta(NAME, labels=labels), spec), newest.name


def _admission(node: FollowedNode, snapshot: Snapshot) -> str:
    raw: Mapping[str, Any] = msgspec.to_builtins(node)
    answer = predict(creation_of(NODES, raw), snapshot).answer(PATH)
    return answer.effect if answer else "the webhook of anycastIP is not installed"


def _why_not(node: str, settings: AnycastIPSettings) -> str:
    if not settings.enabled:
        return "anycastIP is off"
    labels = ", ".join(f"{key}={value}" for key, value in settings.node_labels.items())
    return f"{node} is a super node, or has not all of the labels {labels}"


def _where(daemon_set: DaemonSet) -> Where:
    pod = daemon_set.spec.template.spec
    return Where(pod.node_selector, pod.affinity.node_affinity.required, tolerations(pod))


def _when(where: Where, closed: FollowedNode, opened: FollowedNode) -> str:
    """Nothing when the pods never start there."""
    if where.matches(closed, runs=False):
        return "at once"
    return "when the node opens" if where.matches(opened, runs=False) else ""


@click.command("join", cls=Command)
@click.argument("count", metavar="N", type=click.IntRange(min=1))
@click.option("--like", metavar="NODE", default="", help="Copy the labels and taints of this node.")
@pass_session
def join_command(session: Session, count: int, like: str) -> None:
    """Predict which addresses N more nodes need, how long they wait, and which pods start there.

    Without --like, they are like the newest node that needs an anycast IP.
    """
    session.show(join(Inventory(session.cluster), count, like))


def effects(inventory: Inventory, change: Change) -> Iterator[Effect]:
    """On nodes, of a change of values."""
    now, then = change.now.anycast_ip, change.then.anycast_ip
    for node in inventory.nodes():
        before, after = (each.enabled and wanted(node, each) for each in (now, then))
        if before != after:
            yield Effect("anycastIP", "node", node.metadata.name, after, _of_node(node, after, then))


def _of_node(node: Node, after: bool, then: AnycastIPSettings) -> str:
    if after:
        closed = "keeps its address" if is_proven_bound(node) else "is tainted, and an address is ordered"
        return f"needs an anycast IP: {closed}"
    if not then.enabled:
        return "is left as it is: its taint stays, and its address"
    released = then.release_on_label_removal
    return "needs no address; it is released" if released else "needs no address; it keeps the one it has"
