"""What decisions rest on and actions change: address claims, nodes, the inventory of addresses, settings and clocks.

Claims, and the uuid by which a cluster's addresses are known, are ConfigMaps. Claims are read once when this process
begins to lead, and again where another process wrote one. The uuid is that of the original, so that either finds
the other's addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import structlog
from msgspec.structs import replace

from api.anycast_ip import CONDITION, LABEL, Quota, is_ours
from cloud.errors import CloudError
from cloud.types import Address
from controllers.anycast_ip.claim import (
    CLUSTER_UUID,
    LABELS,
    NAMESPACE,
    NODE_INSTANCE,
    NODE_NAME,
    POOLED,
    SELECTED,
    Claim,
    data,
    instance_of,
    name_of,
    read,
)
from controllers.controller import Clock
from kube.client import Client
from kube.errors import AlreadyExists, Conflict
from kube.event_recorder import Regarding
from kube.informer import Informer
from kube.resources import CONFIG_MAPS, NODES
from kube.store import Store
from kube.transport import STRATEGIC_PATCH, Typed
from kube.types import Condition, ConfigMap, Node, NodeStatus, ObjectMeta, Taint
from runtime import threading, uuid4
from settings import AnycastIPSettings

if TYPE_CHECKING:
    # The command reads claims with this, and has no SDK.
    from cloud.client import Cloud

SPENT = 3600.0
"""Seconds for which an address that was given up is not taken for a free one, though a list may still have it."""


class Inventory:
    """The *addresses* with the cluster's tag, by their ids, as of the last resync. Safe to share between threads.

    *read_at* is None until they were read for the first time; *error* is why the last attempt failed. *released* are
    addresses whose release the cloud has accepted from this process.
    """

    def __init__(self, cloud: Cloud, cluster_uuid: str, clock: Callable[[], float]) -> None:
        self.cloud, self.cluster_uuid, self._clock = cloud, cluster_uuid, clock
        self.addresses: Mapping[str, Address] = {}
        self._by_owner: dict[tuple[str, str], list[Address]] = {}
        self._spent: dict[str, float] = {}
        self._noted: dict[str, Address] = {}
        self._noted_before: dict[str, Address] = {}
        self._lock = threading.Lock()
        self.read_at: float | None = None
        self.error: CloudError | None = None
        self.is_wanted = False
        self.quotas: Sequence[Quota] = ()
        self.released = set[str]()

    def refresh(self) -> None:
        """As far as the cloud's index of tags knows. CloudError."""
        self.is_wanted = False
        try:
            found, now = self.cloud.addresses_tagged(CLUSTER_UUID, [self.cluster_uuid]), self._clock()
        except CloudError as error:
            self.error = error
            raise
        by_owner: dict[tuple[str, str], list[Address]] = {}
        for each in found:
            owner = each.tags.get(NODE_NAME, ""), each.tags.get(NODE_INSTANCE, "")
            by_owner.setdefault(owner, []).append(each)
        with self._lock:
            self.addresses, self._by_owner = {each.id: each for each in found}, by_owner
            self._noted_before, self._noted = self._noted, {}
            # What has not been listed for long cannot be mistaken for a free address.
            seen = {each: now if each in self.addresses else at for each, at in self._spent.items()}
            self._spent = {each: at for each, at in seen.items() if now - at < SPENT}
        self.read_at, self.error = now, None

    def want_newer(self, than: float) -> bool:
        """Whether there is a list newer *than* that; else one is read soon."""
        is_newer = self.read_at is not None and self.read_at >= than
        self.is_wanted = self.is_wanted or not is_newer
        return is_newer

    def note(self, address: Address) -> None:
        """It was read, and may be missing from the list."""
        with self._lock:
            self._noted[address.id] = address

    def last_read(self, address_id: str) -> Address | None:
        """As it was read last, since the resync before the last one: what is lent is in no list."""
        with self._lock:
            noted = self._noted.get(address_id) or self.addresses.get(address_id)
            return noted or self._noted_before.get(address_id)

    def ips(self) -> dict[str, str]:
        """By the ids of addresses, as far as they were read since the last resync or in it."""
        with self._lock:
            return {each.id: each.ip for each in (*self.addresses.values(), *self._noted.values())}

    def unspent(self, owner: tuple[str, str]) -> Sequence[Address]:
        """Those with the tags of a node by its name and instance, but for those that were given up."""
        with self._lock:
            return [each for each in self._by_owner.get(owner, ()) if each.id not in self._spent]

    def is_spent(self, address: Address) -> bool:
        with self._lock:
            return address.id in self._spent

    def spend(self, address_id: str) -> None:
        if address_id:
            with self._lock:
                self._spent[address_id] = self._clock()


LONG_AGO = datetime.min.replace(tzinfo=UTC)
ANOTHER_CLUSTER = (
    f"it belongs to another cluster, or to this one before {CLUSTER_UUID} was created again: delete it here when its"
    " address is gone, or is in use over there"
)

ARRIVAL = 60.0
"""Seconds after which a write has arrived or never will: kube-apiserver's default of `--request-timeout`."""

log = structlog.stdlib.get_logger(__name__)


class ClaimStore:
    """Safe to share between threads. All claims are read at the start. KubeError.

    Those of another *cluster* come from its backup, and their addresses are in use there.

    *unsent* are tokens of orders that have not been sent; after a start there is none, so that each order is in doubt:
    it may have brought an address that no claim names yet. *refused* are tokens that the cloud takes no more, and
    *exhausted* those whose nodes have waited long enough for a quota, as the last answer has shown. All of them go with
    the last claim that has the token.
    """

    def __init__(self, client: Client, namespace: str, clock: Callable[[], float], cluster: str) -> None:
        self._store, self._clock, self._cluster = Store(client, namespace, ConfigMap), clock, cluster
        self._claims: dict[str, Claim] = {}
        self._index: dict[Hashable, set[str]] = {}
        self._lock = threading.Lock()
        self.has_unmanaged, self._unanswered = False, dict[str, float]()
        self.unsent, self.refused, self.exhausted = set[str](), set[str](), set[str]()
        stored = self._store.list(SELECTED)
        self._listed = {each.metadata.name for each in stored}
        for claim in filter(None, map(self._managed, stored)):
            self._note(claim.uid, claim)

    @property
    def claims(self) -> Mapping[str, Claim]:
        """By the uid of their nodes, as they are now."""
        with self._lock:
            return dict(self._claims)

    def get(self, uid: str) -> Claim | None:
        return self._claims.get(uid)

    def having(self, value: Hashable) -> Collection[Claim]:
        """Claims with this instance, address, token or tag, or those that are POOLED."""
        with self._lock:
            return [self._claims[uid] for uid in self._index.get(value, ())]

    def regarding(self, uid: str) -> Regarding:
        """The claim's ConfigMap, for Events about an address whose node is gone."""
        stored = self._store.known.get(name_of(uid), ObjectMeta())
        return Regarding("v1", "ConfigMap", name_of(uid), self._store.namespace, stored.uid)

    def look_for_late(self) -> Collection[str]:
        """The uids of claims that came since, by late writes of the leader before, for `settle` to read. KubeError."""
        stored = self._store.peek(SELECTED)
        before, self._listed = self._listed, {each.metadata.name for each in stored}
        came = (self._managed(each) for each in stored if each.metadata.name not in before)
        late = [claim.uid for claim in came if claim and claim.uid not in self._claims]
        self._unanswered |= dict.fromkeys(late, self._clock())
        return late

    def put(self, claim: Claim) -> None:
        """Write *claim* over the former one of its node, if there was one; AlreadyExists or Conflict as in `drop`."""
        claim = replace(claim, cluster=self._cluster)
        with self._other_leader(claim.uid):
            self._store.write(name_of(claim.uid), LABELS, data=data(claim))
        self._note(claim.uid, claim)

    def put_order(self, claim: Claim) -> None:
        """Write *claim*, whose address is still to be ordered."""
        self.put(claim)
        self.unsent.add(claim.token)

    def drop(self, uid: str) -> None:
        """Conflict when it is not as we wrote it: what another leader has made of it is then what we have."""
        with self._other_leader(uid):
            self._store.delete(name_of(uid))
        self._note(uid, None)

    @contextmanager
    def _other_leader(self, uid: str) -> Iterator[None]:
        """Go on with its claim: an order that replaced it would leave the address that it names without a claim."""
        try:
            yield
        except Exception as error:
            self._unanswered[uid] = self._clock()
            if isinstance(error, AlreadyExists | Conflict):
                self.settle(uid)
            raise

    def settle(self, uid: str) -> None:
        """Read what a write without an answer, or another leader, has made of the claim. KubeError."""
        if (at := self._unanswered.get(uid)) is not None:
            stored = self._store.read(name_of(uid))
            self._note(uid, self._managed(stored) if stored else None)
            is_settled = stored or self._clock() >= at + ARRIVAL
            # Another thread may have settled it, or have left a write without an answer since.
            if is_settled and self._unanswered.get(uid) == at:
                self._unanswered.pop(uid, None)

    def unsettled(self, uid: str) -> float | None:
        """Seconds after which to settle a claim again that is not there, but may still arrive."""
        return ARRIVAL if uid in self._unanswered else None

    def _managed(self, stored: ConfigMap) -> Claim | None:
        try:
            claim = read(stored)
        except ValueError as error:
            log.error("address claim skipped", name=stored.metadata.name, error=str(error))
            return None
        if claim.cluster == self._cluster:
            return claim
        self.has_unmanaged = True
        log.error("address claim skipped", name=stored.metadata.name, error=ANOTHER_CLUSTER)
        return None

    def _note(self, uid: str, claim: Claim | None) -> None:
        with self._lock:
            before, now = (_values(each) if each else set() for each in (self._claims.get(uid), claim))
            for value in before - now:
                self._index[value].discard(uid)
                if not self._index[value]:
                    del self._index[value]
                    for tokens in (self.unsent, self.refused, self.exhausted):
                        tokens.discard(str(value))
            for value in now:
                self._index.setdefault(value, set()).add(uid)
            if claim:
                self._claims[uid] = claim
            else:
                self._claims.pop(uid, None)


def _values(claim: Claim) -> set[Hashable]:
    pooled = POOLED if claim.pooled else ""
    values: set[Hashable] = {claim.instance, claim.address, claim.token, pooled, *claim.tags}
    return values - {""}


def cluster_identity(client: Client) -> tuple[str, str]:
    """The uuid, created when it is missing, and what a cluster restored elsewhere from a backup does not share with it.

    That is the uid of the same object. ValueError when a user has emptied it.
    """
    found = client.find(CONFIG_MAPS, CLUSTER_UUID, NAMESPACE, type=ConfigMap)
    if found is None:
        made = {"metadata": {"name": CLUSTER_UUID}, "data": {CLUSTER_UUID: str(uuid4())}}
        new = {"apiVersion": "v1", "kind": "ConfigMap", **made}
        found = client.create(CONFIG_MAPS, new, NAMESPACE, type=ConfigMap)
    if uuid := found.data.get(CLUSTER_UUID, "").strip():  # one from a file ends with a line break
        return uuid, found.metadata.uid
    raise ValueError(
        f"ConfigMap {NAMESPACE}/{CLUSTER_UUID} has no value {CLUSTER_UUID}: the cluster's addresses are tagged with"
        " it; write it there again, or delete the ConfigMap when no address of the cluster is left"
    )


class ReportedNode(Node, frozen=True):
    """A node with its condition of this feature, and no other."""

    @property
    def condition(self) -> Condition | None:
        return next((each for each in self.status.conditions if each.type == CONDITION), None)


DECODER = msgspec.json.Decoder(ReportedNode)


def decode(raw: msgspec.Raw) -> ReportedNode:
    """Without the status of others, which would be most of what is kept of a node."""
    node = DECODER.decode(raw)
    ours = (node.condition,) if node.condition else ()
    return replace(node, status=NodeStatus(ours))


class Nodes:
    """Nodes of the informer, and writes to them.

    *wanted* are uids of nodes that were seen with the labels, and have not been stripped since.
    """

    def __init__(self, client: Client, informer: Informer[ReportedNode]) -> None:
        self._client, self._informer, self.list = client, informer, informer.list
        self.on_instance = partial(informer.by_index, "instance")
        self.wanted = set[str]()
        informer.add_index("uid", lambda node: (node.metadata.uid,))
        informer.add_index("instance", lambda node: (instance_of(node),))

    def get(self, uid: str) -> ReportedNode | None:
        return next(iter(self._informer.by_index("uid", uid)), None)

    def read(self, name: str) -> Node | None:
        """From the API server."""
        return self._client.find(NODES, name, type=Node)

    def read_all(self) -> Sequence[Node]:
        return self._client.list(NODES, type=Node).items

    def write(
        self, node: Node, annotations: Mapping[str, str | None], *ours: Taint, label: str | None = None
    ) -> None:
        """Give *node* these annotations, our *label*, and of our taint *ours*. Conflict when it was changed since."""
        metadata: dict[str, Any] = {**node.metadata.guard, "annotations": annotations}
        if label != node.metadata.labels.get(LABEL):
            metadata["labels"] = {LABEL: label}
        patch: dict[str, Any] = {"metadata": metadata}
        taints = (*(taint for taint in node.spec.taints if not is_ours(taint)), *ours)
        if taints != node.spec.taints:
            patch["spec"] = {"taints": msgspec.to_builtins(taints) or None}
        self._informer.wrote(self._client.patch(NODES, node.metadata.name, patch, type=msgspec.Raw))

    def write_condition(self, node: Node, condition: Mapping[str, Any]) -> None:
        """Conflict when another node has the name by now."""
        body = {"metadata": {"uid": node.metadata.uid}, "status": {"conditions": [condition]}}
        # A list of conditions is merged by their types: what others report meanwhile is no conflict.
        resource, name = NODES.sub("status"), node.metadata.name
        self._informer.wrote(
            self._client.patch(resource, name, Typed(STRATEGIC_PATCH, body), type=msgspec.Raw)
        )


@dataclass(frozen=True)
class Sources:
    """*settings* brings those of now; *enqueue* has a node reconciled, by its uid."""

    nodes: Nodes
    claims: ClaimStore
    inventory: Inventory
    settings: Callable[[], AnycastIPSettings]
    clocks: Clock
    enqueue: Callable[[str], None]

    def enqueue_all(self) -> None:
        """The oldest node first, then the claims whose nodes are gone."""
        nodes = sorted(self.nodes.list(), key=lambda node: node.metadata.creation_timestamp or LONG_AGO)
        for uid in dict.fromkeys([*(node.metadata.uid for node in nodes), *self.claims.claims]):
            self.enqueue(uid)
