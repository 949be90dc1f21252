"""What an allow-list says of each address: its state, and since when it has been listed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec.structs import replace

from api.anycast_ip import ADDRESS_ID
from controllers.anycast_ip.bound import is_open
from controllers.anycast_ip.claim import ORPHAN, Claim
from kube.types import ConfigMap, Node

LABEL, LABEL_VALUE = "drawbridge.io/allow-list", "anycast-ip"
TEXT, JSON = "addresses.txt", "addresses.json"
IN_USE, PROMISED, IDLE = "in use", "promised", "idle"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """*state*: an open node uses it; or it is promised to a node that is not open yet; or it is idle in the pool.

    *since* is when the write began that brought it into the list. Versions before this field wrote none.
    """

    address: str
    id: str
    node: str = ""
    state: str
    since: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


Entries = tuple[Entry, ...]
DECODER = msgspec.json.Decoder(Entries)


def entries(
    claims: Iterable[Claim], nodes: Mapping[str, Node], ips: Mapping[str, str], before: Entries = ()
) -> Entries:
    """One for each address, sorted; *nodes* by uid, *ips* by the ids of addresses, *before* what was listed last.

    What is being released is no longer among them, nor is what has no IP that is known yet.
    """
    known = list(claims)
    by_id = {each.id: each for each in _in_use_without_claim(before, known, nodes)}
    by_id |= {
        each.address: _entry(each, nodes.get(each.uid), ips[each.address])
        for each in known
        if ips.get(each.address) and _stays(each)
    }
    return tuple(sorted(by_id.values(), key=lambda each: (each.address, each.id)))


def _stays(claim: Claim) -> bool:
    return not claim.releasing and not claim.uid.startswith(ORPHAN)


def _entry(claim: Claim, node: Node | None, ip: str) -> Entry:
    state = IN_USE if node and is_open(node) else IDLE if claim.pooled else PROMISED
    return Entry(address=ip, id=claim.address, node="" if claim.pooled else claim.node, state=state)


def _in_use_without_claim(
    before: Entries, claims: Sequence[Claim], nodes: Mapping[str, Node]
) -> Iterator[Entry]:
    """Those of open nodes whose claims were deleted or cannot be read: the nodes are about to get new claims.

    Only what was listed before: a kubelet can write any address to its own node.
    """
    claimed = {each.uid for each in claims} | {each.address for each in claims}
    shown = {
        (each.metadata.name, each.metadata.annotations.get(ADDRESS_ID, ""))
        for uid, each in nodes.items()
        if uid not in claimed and is_open(each)
    }
    return (each for each in before if (each.node, each.id) in shown and each.id not in claimed)


def dated(found: Entries, before: Entries, now: datetime) -> Entries:
    """*found*, each since it was listed first: as *before* says, or since *now*."""
    known = {(each.id, each.address): each.since for each in before}
    at = now.replace(microsecond=0)
    return tuple(replace(each, since=min(known.get((each.id, each.address)) or at, at)) for each in found)


def recorded(found: Entries) -> dict[str, datetime | None]:
    """Since when each address was listed, by its id."""
    return {each.id: each.since for each in found}


def data_of(found: Entries) -> dict[str, str]:
    """One address a line, and the same as JSON."""
    lines = dict.fromkeys(each.address for each in found)
    return {
        TEXT: "".join(f"{each}\n" for each in lines),
        JSON: msgspec.json.format(msgspec.json.encode(found)).decode() + "\n",
    }


def entries_in(found: ConfigMap | None) -> Entries:
    """What was written last; none where another client has written something else."""
    try:
        return DECODER.decode(found.data.get(JSON, "[]")) if found else ()
    except (msgspec.MsgspecError, ValueError):
        return ()
