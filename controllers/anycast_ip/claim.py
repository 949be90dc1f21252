"""Address claims: one is written before an address is ordered, and deleted after the address and its tags are gone."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec.structs import replace

from api.anycast_ip import wanted
from cloud.types import BIND, BIND_ENI, BINDING, UNBINDING, Address, Order, Tag, Terms
from kube.types import Completed, ConfigMap, Moment, Node
from settings import AnycastIPSettings
from settings.anycast_ip import Pool

MANAGED_BY, MANAGER = "app.kubernetes.io/managed-by", "drawbridge"
KIND = "drawbridge.io/claim"
LABELS = {MANAGED_BY: MANAGER, KIND: "anycast-ip"}
SELECTED = ",".join(f"{name}={value}" for name, value in LABELS.items())
FIELD = "claim"

CLUSTER_UUID = "aia-official-cluster-uuid"
CLUSTER_ID = "aia-official-cluster-id"
NODE_NAME = "aia-node-name"
NODE_INSTANCE = "aia-node-ins-id"
"""The tags of the original, AIA-IP-Controller: its addresses are known by them, and it knows ours."""

INSTANCE_LABEL = "cloud.tencent.com/node-instance-id"
POOL = "drawbridge:pool"
"""In place of the node and the instance of an address that was ordered for none: no node can have that name."""
POOLED = "pooled"
"""What claims of the pool are found by."""
ORPHAN, LENT = "orphan-", "lent-"
"""The uid of a claim to an orphan, or to an address that its user has lent to the pool, begins so."""

NAMESPACE = "kube-system"
"""Of the ConfigMap with the uuid, which has the name of its tag."""
_INSTANCE = re.compile(r"ins-[0-9a-z]+")
HOLDING = (BINDING, BIND, BIND_ENI, UNBINDING)
Text = Annotated[str, msgspec.Meta(min_length=1)]


class Claim(msgspec.Struct, metaclass=Completed, frozen=True, kw_only=True):
    """Of one Node object, by *uid*, on one *instance*.

    *token* is the ClientToken and *name* the name of the address that was ordered at *asked*. An address that is
    not *ours* was found on the instance, and is never released. *labels* are those for which the node needs one,
    none if it never did; *releasing*: the address may be missing from lists. A cluster restored from a backup has
    another *cluster*.
    Since *pooled*, the address waits for the next node, or was ordered to do so. *terms* are what is ordered: an order
    that is repeated is the same. An address that is *lent* was adopted by its tags, is used like ours, and never
    released; *ours* is false. Since *refused*, each order was refused because of a quota; it stays while the node is
    open without an address. *ip* is that of an address that is idle, for people: the node that used it last, if any, no
    longer shows it.
    """

    uid: Text
    node: Text
    instance: Text
    token: Text
    name: str
    asked: Moment
    address: str = ""
    ours: bool = True
    tags: tuple[Tag, ...] = ()
    labels: dict[str, str] = {}
    releasing: bool = False
    cluster: str = ""
    pooled: Moment | None = None
    terms: Terms = Terms()
    lent: bool = False
    ip: str = ""
    refused: Moment | None = None

    @property
    def is_managed(self) -> bool:
        """Whether it is bound to nodes, and unbound."""
        return self.ours or self.lent


def instance_of(node: Node) -> str:
    """The CVM instance behind *node*, or nothing: super nodes and some native ones have none to bind to."""
    said = node.metadata.labels.get(INSTANCE_LABEL, ""), node.spec.provider_id.rpartition("/")[2]
    return next((each for each in said if _INSTANCE.fullmatch(each)), "")


def bound_to(address: Address) -> str:
    """The instance that *address* is on, or on its way there or away, else its interface.

    One that is free may still name its last instance.
    """
    return (address.instance_id or address.network_interface_id) if address.status in HOLDING else ""


def claim_for(node: Node, settings: AnycastIPSettings, now: datetime) -> Claim:
    """One whose address is still to be ordered."""
    terms, labels = terms_for(node, settings), settings.node_labels if wanted(node, settings) else {}
    claim = _ordered(node.metadata.uid, node.metadata.name, instance_of(node), terms, settings, now)
    return replace(claim, labels=labels)


def spare_for(uid: str, settings: AnycastIPSettings, now: datetime) -> Claim:
    """One whose address is still to be ordered, for the pool; *uid* is that of no node."""
    return replace(_ordered(uid, POOL, POOL, terms_for(None, settings), settings, now), pooled=now)


def _ordered(
    uid: str, node: str, instance: str, terms: Terms, settings: AnycastIPSettings, now: datetime
) -> Claim:
    return Claim(
        uid=uid,
        node=node,
        instance=instance,
        token=_token(uid, now),
        name=f"{settings.cluster_id}-aia-{uid[:12]}",
        asked=now,
        tags=_tags(node, instance),
        terms=terms,
    )


def _tags(node: str, instance: str) -> tuple[Tag, ...]:
    return (NODE_NAME, node), (NODE_INSTANCE, instance)


def lent_claim(address: Address, now: datetime) -> Claim:
    """For the pool; another claim to the same address would have the same uid."""
    claim = _found(f"{LENT}{address.id}", POOL, POOL, address, now)
    return replace(claim, ours=False, pooled=now, terms=address.terms, lent=True, ip=address.ip)


def orphan_claim(address: Address, now: datetime) -> Claim:
    """With it, *address* is released like any other whose node is gone."""
    node, instance = address.tags[NODE_NAME], address.tags[NODE_INSTANCE]
    claim = _found(f"{ORPHAN}{address.id}", node, instance, address, now)
    return replace(claim, tags=_tags(node, instance))


def _found(uid: str, node: str, instance: str, address: Address, now: datetime) -> Claim:
    return Claim(
        uid=uid,
        node=node,
        instance=instance,
        token=f"drawbridge-{uid}"[:64],
        name=address.name,
        asked=now,
        address=address.id,
    )


def with_address(claim: Claim, address: Address, cluster_uuid: str) -> Claim:
    """*claim* on an address that was found."""
    ours = address.tags.get(CLUSTER_UUID) == cluster_uuid
    tags = tuple((key, address.tags[key]) for key in (NODE_NAME, NODE_INSTANCE) if key in address.tags)
    return replace(claim, address=address.id, ours=ours, tags=tags)


def renewed(claim: Claim, now: datetime, terms: Terms) -> Claim:
    """*claim* on another address, still to be ordered, with the tags of the former order, to be deleted some day."""
    tags = _tags(claim.node, claim.instance)  # last, because they are what the order names
    return replace(
        claim,
        token=_token(claim.uid, now),
        asked=now,
        address="",
        ours=True,
        releasing=False,
        tags=(*(tag for tag in claim.tags if tag not in tags), *tags),
        terms=terms,
        lent=False,
        ip="",
        refused=None,
    )


def inherited(claim: Claim, node: Node) -> Claim:
    """*claim* for a new Node object of the same instance; a pending order stays the same order."""
    return replace(claim, uid=node.metadata.uid, node=node.metadata.name, pooled=None, refused=None)


def taken(offer: Claim, claim: Claim) -> Claim:
    """*claim* with the address of *offer*, which keeps the tags that it has at the cloud."""
    tags = tuple(dict.fromkeys((*offer.tags, *claim.tags)))
    return replace(
        claim,
        address=offer.address,
        ours=offer.ours,
        releasing=False,
        tags=tags,
        lent=offer.lent,
        ip=offer.ip,
    )


def _token(uid: str, now: datetime) -> str:
    """Another one for each order: a token that comes again would bring the address that was released since."""
    return f"drawbridge-{uid[:36]}-{int(now.timestamp() * 1000)}"


def order_for(claim: Claim, settings: AnycastIPSettings, cluster_uuid: str) -> Order:
    return Order(
        token=claim.token,
        type=settings.address_type,
        name=claim.name,
        tags={
            **settings.tags,
            CLUSTER_UUID: cluster_uuid,
            CLUSTER_ID: settings.cluster_id,
            **dict(claim.tags),
        },
        terms=claim.terms,
        zone=settings.anycast_zone,
    )


def name_of(uid: str) -> str:
    return f"anycast-ip-{uid.lower()}"


def data(claim: Claim) -> dict[str, str]:
    """Of the ConfigMap that holds *claim*."""
    return {FIELD: msgspec.json.encode(claim).decode()}


def read(found: ConfigMap) -> Claim:
    """ValueError, naming the object, when another client has written to it."""
    try:
        claim = msgspec.json.decode(found.data.get(FIELD, ""), type=Claim)
        if name_of(claim.uid) == found.metadata.name:
            return claim
        why = f"uid {claim.uid!r} is that of {name_of(claim.uid)}"
    except (msgspec.MsgspecError, RecursionError) as error:
        why = str(error)
    name = f"{found.metadata.namespace}/{found.metadata.name}"
    raise ValueError(f"ConfigMap {name}, data.{FIELD}: {why}; delete it when its address is gone")


def terms_for(node: Node | None, settings: AnycastIPSettings) -> Terms:
    """Those of the first entry that selects *node*, else those of all, as for a spare."""
    labels = node.metadata.labels if node else {}
    for each in settings.addresses:
        if each.node_selector.items() <= labels.items():
            # A package belongs to a way to pay: with another way, that of all nodes is no default.
            is_paid_alike = each.internet_charge_type in ("", settings.internet_charge_type)
            return Terms(
                each.bandwidth or settings.bandwidth or 0,
                each.internet_charge_type or settings.internet_charge_type,
                each.bandwidth_package_id or (settings.bandwidth_package_id if is_paid_alike else ""),
            )
    return Terms(settings.bandwidth or 0, settings.internet_charge_type, settings.bandwidth_package_id)


def is_paid_as(found: Terms, wanted: Terms) -> bool:
    """Whether an address with the terms *found* will do. The cloud changes how it is paid twice at most."""
    charge, package = wanted.charge_type, wanted.bandwidth_package
    return charge in ("", found.charge_type) and package in ("", found.bandwidth_package)


def is_current(address: Address, claim: Claim, settings: AnycastIPSettings) -> bool:
    """Whether it is what would be ordered in its place in the pool; what a node had may serve one on other terms."""
    is_spare = claim.node == POOL and not claim.lent and bool(settings.addresses)
    is_paid = not is_spare or is_paid_as(address.terms, terms_for(None, settings))
    return address.type == settings.address_type and is_paid


def wanted_bandwidth(node: Node, settings: AnycastIPSettings) -> int:
    """What the address of *node* should have, in Mbps; 0 when it stays as it was ordered."""
    if not settings.addresses:
        return 0
    return terms_for(node, settings).bandwidth


def is_usable(address: Address, settings: AnycastIPSettings) -> bool:
    """Whether it is of the kind that would be ordered, and serves."""
    return address.type == settings.address_type and not address.blocked and not address.arrears


def is_offered(address: Address, settings: Pool) -> bool:
    """Whether its tags lend it to the pool."""
    return bool(settings.adopt) and settings.adopt.items() <= address.tags.items()
