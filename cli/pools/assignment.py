"""Which pod Calico has assigned an IP to: the one block of its pool that has it says so, where, and since when."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address, ip_network

import msgspec

from calico.address_ranges import overlap, range_of
from cli.output import Document
from kube.types import Value

SIZES = {4: 26, 6: 122}
"""Calico's default lengths of the blocks of a pool."""


class Attribute(Value, frozen=True):
    handle_id: str | None = msgspec.field(default=None, name="handle_id")
    secondary: dict[str, str] | None = None


class BlockSpec(Value, frozen=True):
    cidr: str = ""
    allocations: tuple[int | None, ...] = ()
    attributes: tuple[Attribute, ...] = ()


class AssignedBlock(Value, frozen=True):
    spec: BlockSpec = BlockSpec()


class Assignment(Document, frozen=True):
    """What Calico noted when it assigned the IP; empty where it notes nothing."""

    pool: str
    pod: str
    node: str
    since: str
    handle: str


@dataclass(frozen=True)
class Assigned:
    """*found* is None for an IP that is not assigned, *pool* empty for one of no pool.

    *unknown* says why neither is known.
    """

    ip: str
    pool: str = ""
    found: Assignment | None = None
    unknown: str = ""


def block_name(ip: str, size: int) -> str:
    """Of the block that has *ip*, in a pool with blocks of this length; 0 is the default."""
    network = ip_network(f"{ip}/{size or SIZES[ip_address(ip).version]}", strict=False)
    return str(network).replace(".", "-").replace(":", "-").replace("/", "-")


def assignment_of(block: AssignedBlock, ip: str, pool: str) -> Assignment | None:
    found = overlap(range_of(block.spec.cidr), range_of(ip))
    place = found[1] - range_of(block.spec.cidr)[1] if found else len(block.spec.allocations)
    attribute = block.spec.allocations[place] if place < len(block.spec.allocations) else None
    if attribute is None:
        return None
    noted = block.spec.attributes[attribute] if attribute < len(block.spec.attributes) else Attribute()
    about = noted.secondary or {}
    pod = "/".join(filter(None, (about.get("namespace"), about.get("pod"))))
    return Assignment(pool, pod, about.get("node", ""), about.get("timestamp", ""), noted.handle_id or "")
