"""Which pod Calico has assigned an IP to: the one block of its pool that has it says so, where, and since when."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network

from calico.address_ranges import overlap, range_of
from calico.holders import AssignedBlock
from cli.output import Document
from cli.pools.history import Past

SIZES = {4: 26, 6: 122}
"""Calico's default lengths of the blocks of a pool."""


class Assignment(Document, frozen=True):
    """What Calico noted when it assigned the IP, and when it *released* it for its cooldown; empty where nothing."""

    pool: str
    pod: str
    node: str
    since: str
    handle: str
    released: str


@dataclass(frozen=True)
class Assigned:
    """*found* is None for an IP that is not assigned, *pool* empty for one of no pool.

    *unknown* says why neither is known. *cooldown* is Calico's, in seconds; 0 for none, or one that is not known.
    *past* are those that had it before.
    """

    ip: str
    pool: str = ""
    found: Assignment | None = None
    unknown: str = ""
    cooldown: int = 0
    past: Past = field(default_factory=Past)


def block_name(ip: str, size: int) -> str:
    """Of the block that has *ip*, in a pool with blocks of this length; 0 is the default."""
    network = ip_network(f"{ip}/{size or SIZES[ip_address(ip).version]}", strict=False)
    return str(network).replace(".", "-").replace(":", "-").replace("/", "-")


def assignment_of(block: AssignedBlock, ip: str, pool: str) -> Assignment | None:
    whole = range_of(block.spec.cidr)
    found = overlap(whole, range_of(ip))
    noted = block.spec.attribute_of(found[1] - whole[1]) if found else None
    if noted is None:
        return None
    about = noted.secondary or {}
    pod = "/".join(filter(None, (about.get("namespace"), about.get("pod"))))
    return Assignment(
        pool=pool,
        pod=pod,
        node=about.get("node", ""),
        since=about.get("timestamp", ""),
        handle=noted.handle_id or "",
        released=noted.released_at or "",
    )
