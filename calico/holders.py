"""Who has the addresses of a block: what Calico notes with each assignment."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

import msgspec

from calico.address_ranges import Range, range_of
from kube.types import ObjectMeta, Value, complete


class Attribute(Value, frozen=True):
    """*released_at* is set while the address cools down: released, but not free yet (Calico 3.33)."""

    handle_id: str | None = msgspec.field(default=None, name="handle_id")
    secondary: dict[str, str] | None = None
    released_at: str | None = None


class BlockSpec(Value, frozen=True):
    """*allocations* has an entry for each address, from the first on: the number of its attribute, or null."""

    cidr: str = ""
    allocations: tuple[int | None, ...] = ()
    attributes: tuple[Attribute, ...] = ()

    def attribute_of(self, place: int) -> Attribute | None:
        """Of the address at *place* in the block; None for one that is not assigned."""
        index = self.allocations[place] if place < len(self.allocations) else None
        if index is None:
            return None
        return self.attributes[index] if index < len(self.attributes) else Attribute()


class AssignedBlock(Value, frozen=True):
    """As the API server serves it; :class:`HeldBlock` is what is kept of it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: BlockSpec = BlockSpec()


complete(AssignedBlock)


@dataclass(frozen=True, slots=True)
class Holder:
    """What Calico noted when it assigned an address; for what is no pod, *handle* instead of *namespace* and *pod*."""

    namespace: str
    pod: str
    node: str
    since: str
    handle: str


@dataclass(frozen=True, slots=True)
class HeldBlock:
    """A range, and the *holders* of its addresses by their place in it."""

    metadata: ObjectMeta
    range: Range
    holders: Mapping[int, Holder]

    def ip(self, place: int) -> str:
        version, first, _ = self.range
        return str((IPv4Address if version == 4 else IPv6Address)(first + place))


def held_block(block: AssignedBlock) -> HeldBlock:
    """ValueError when its CIDR is none."""
    at = block.metadata
    kept = ObjectMeta(name=at.name, uid=at.uid, resource_version=at.resource_version)
    return HeldBlock(kept, range_of(block.spec.cidr), dict(_holders(block.spec)))


def decode_held(encoded: msgspec.Raw) -> HeldBlock:
    """MsgspecError when it cannot be read."""
    try:
        return held_block(_BLOCK.decode(encoded))
    except ValueError as error:
        raise msgspec.ValidationError(str(error)) from error


def _holders(spec: BlockSpec) -> Iterator[tuple[int, Holder]]:
    found = [_holder(each) for each in spec.attributes]
    for place, index in enumerate(spec.allocations):
        if index is not None and index < len(found) and (holder := found[index]):
            yield place, holder


def _holder(noted: Attribute) -> Holder | None:
    """None for an address that is released: Calico takes its handle, or says when it was released."""
    if not noted.handle_id or noted.released_at:
        return None
    about = noted.secondary or {}
    # Many addresses share a namespace and a node: each is kept once.
    namespace, node = (sys.intern(about.get(name, "")) for name in ("namespace", "node"))
    pod = about.get("pod", "")
    return Holder(namespace, pod, node, about.get("timestamp", ""), "" if pod else noted.handle_id)


_BLOCK = msgspec.json.Decoder(AssignedBlock)
