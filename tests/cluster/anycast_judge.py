"""An independent judge: no node was open before its address was bound, and cluster and cloud agree in the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from cloud.types import Tag
from controllers.anycast_ip.claim import NODE_INSTANCE, NODE_NAME, SELECTED, Claim, read
from controllers.anycast_ip.claim_store import CONFIG_MAPS
from kube.client import Client
from kube.errors import NotFound
from kube.types import ConfigMap, Node
from lab.cloud.values import HOLDING, WAN_IP, Address
from lab.errors import LabError
from lab.history import Observation
from lab.nodes import NODES
from lab.session import Lab
from lab.watching import Observations, observed_by_now, watching
from settings.anycast_ip import NEED_LABEL
from webhook.anycast_ip import ADDRESS_ID, TAINT

NAMESPACE = "drawbridge"


@dataclass(frozen=True)
class World:
    """What is there at one time: *claims* by the uids of their nodes, *tags* those that are a node's own."""

    nodes: Sequence[Node]
    claims: Mapping[str, Claim]
    addresses: Sequence[Address]
    tags: frozenset[Tag]


def complaints(world: World) -> list[str]:
    """What is not as promised when nothing is under way any more."""
    return [*_of_nodes(world), *_of_addresses(world), *_of_remains(world)]


def _of_nodes(world: World) -> Iterator[str]:
    for node in world.nodes:
        name, there = node.metadata.name, [each.id for each in _on(node, world.addresses)]
        if not is_open(node):
            yield f"{name} is not open, {there} are on its instance"
        elif there != [address_of(node)]:
            yield f"{name} shows {address_of(node)}, but {there} are on its instance"


def _of_addresses(world: World) -> Iterator[str]:
    shown = {address_of(node) for node in world.nodes}
    for each in world.addresses:
        if each.id not in shown:
            yield f"{each.id} ({each.status}, for {each.tags.get(NODE_NAME)}) is of no living node"


def _of_remains(world: World) -> Iterator[str]:
    """What a node has taken over with its instance keeps the tags of the node before."""
    living = {node.metadata.uid for node in world.nodes}
    yield from (f"a claim of {uid} is left, which is gone" for uid in sorted(world.claims.keys() - living))
    used = {tag for each in world.addresses for tag in each.tags.items()}
    known = {tag for uid, claim in world.claims.items() if uid in living for tag in claim.tags}
    yield from (f"tag {key}={value} is left" for key, value in sorted(world.tags - used - known))


def _on(node: Node, addresses: Sequence[Address]) -> list[Address]:
    return [each for each in addresses if each.instance_id == instance_of(node) and each.status in HOLDING]


def is_open(node: Node) -> bool:
    return all(taint.key != TAINT.key for taint in node.spec.taints)


def address_of(node: Node) -> str:
    return node.metadata.annotations.get(ADDRESS_ID, "")


def instance_of(node: Node) -> str:
    return node.spec.provider_id.rpartition("/")[2]


class Judge:
    """Follows all nodes that need an address; each look takes in what has been observed by then."""

    def __init__(self, lab: Lab, client: Client, observations: Observations) -> None:
        self._lab, self._client, self._observations = lab, client, observations
        self._nodes: dict[str, Node] = {}
        self.too_early: list[str] = []
        """The nodes that were open at any time while no address was bound to them."""
        self.left_open: set[str] = set()
        """Those of them that were let through without a taint, and have not had one since."""

    @property
    def nodes(self) -> list[Node]:
        """The living ones, as they are by now."""
        self._listen()
        return list(self._nodes.values())

    def await_open(self, names: Sequence[str], seconds: float = 60.0) -> None:
        def all_open() -> bool:
            opened = {node.metadata.name for node in self.nodes if is_open(node)}
            return opened.issuperset(names)

        self._lab.wait(all_open, seconds, f"{len(names)} nodes to open, {names[0]} among them")

    def await_end(self, seconds: float = 90.0) -> None:
        """Until there is nothing to complain of any more; LabError says what there was."""
        try:
            self._lab.wait(lambda: not complaints(self.world()), seconds, "cluster and cloud to agree")
        except LabError as error:
            raise LabError("\n".join([str(error), *complaints(self.world())])) from error

    def world(self) -> World:
        """The cloud is looked at last: what the cluster knows of it is true by then."""
        nodes = self.nodes
        claims = self._client.list(CONFIG_MAPS, NAMESPACE, type=ConfigMap, label_selector=SELECTED).items
        state = self._lab.cloud.state()
        return World(
            nodes=nodes,
            claims={claim.uid: claim for claim in map(read, claims)},
            addresses=_elastic(state["addresses"]),
            tags=frozenset(
                (each["key"], each["value"])
                for each in state["tags"]
                if each["key"] in (NODE_NAME, NODE_INSTANCE)
            ),
        )

    def _listen(self) -> None:
        opened = [
            each
            for observation in observed_by_now(self._observations)
            for each in self._relevant(observation)
        ]
        if opened:
            self._check(opened)

    def _relevant(self, observation: Observation) -> Iterator[Node]:
        """Take note of it; the node, when it is open with another address than before."""
        node = observation.object
        if not isinstance(node, Node) or node.metadata.labels.get(NEED_LABEL) != "true":
            return
        before = self._nodes.pop(node.metadata.uid, None)
        if observation.gone:
            return
        self._nodes[node.metadata.uid] = node
        if not is_open(node):
            self.left_open.discard(node.metadata.name)
        elif before is None or not is_open(before) or address_of(before) != address_of(node):
            yield from self._opened(node)

    def _opened(self, node: Node) -> Iterator[Node]:
        if address_of(node):
            yield node
        else:
            self.too_early.append(f"{node.metadata.name} was open without an address")
            self.left_open.add(node.metadata.name)

    def _check(self, opened: Sequence[Node]) -> None:
        addresses = _elastic(self._lab.cloud.state()["addresses"])
        for node in opened:
            bound = [each.id for each in _on(node, addresses) if each.status == "BIND"]
            if address_of(node) not in bound and self._still_there(node):
                self.too_early.append(f"{node.metadata.name} was open, but {address_of(node)} was not bound")

    def _still_there(self, node: Node) -> bool:
        """One that is gone by now may have lost its address since."""
        try:
            return self._client.get(NODES, node.metadata.name, type=Node).metadata.uid == node.metadata.uid
        except NotFound:
            return False


def _elastic(rows: Sequence[object]) -> list[Address]:
    return [each for each in msgspec.convert(rows, list[Address]) if each.type != WAN_IP]


@contextmanager
def judging(lab: Lab, client: Client | None = None) -> Iterator[Judge]:
    """Watch from now until the end of the block, by way of *client* if it is not the lab's own."""
    client = client or lab.client
    with watching(client, {NODES: Node}) as observations:
        yield Judge(lab, client, observations)
