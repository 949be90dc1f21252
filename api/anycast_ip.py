"""The names of anycast_ip, and its predicates on nodes.

Invariant: no pod is scheduled on a selected node before its address is proven bound to that very Node object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TypeVar

import msgspec

from kube.types import ConfigMap, Moment, Node, Taint, Value, is_super
from settings import OWN_LABEL, AnycastIPSettings

NAME = "anycast_ip"
PATH = "/mutate/nodes/anycast-ip"
POD_ADDRESS_PATH, POD_ADDRESS_WAIT_PATH = "/mutate/bindings/anycast-ip", "/mutate/bindings/anycast-ip-wait"

TAINT = Taint(key="tke.cloud.tencent.com/no-aia-ip", value="true", effect="NoSchedule")
ADDRESS_ID = "tke.cloud.tencent.com/anycast-ip-id"
ADDRESS = "tke.cloud.tencent.com/anycast-ip-address"
BOUND = "drawbridge.io/anycast-ip-bound"
"""The controller's proof that it saw the address bound: ``<uid of the node>/<id of the address>``, or that the node is
open without one: ``<uid of the node>/none``."""
LABEL, HAS_ONE, NONE = OWN_LABEL, "bound", "none"
"""The label of open nodes, to select by. It decides nothing: each kubelet can write its node's."""
HISTORY = "drawbridge.io/anycast-ip-history"
"""When the node was last opened and closed, the latest first: Events are gone after an hour. It decides nothing, and is
written together with the taint, so that it costs no write."""
NODE_ADDRESS, COPY, WAIT = "drawbridge.io/node-anycast-ip", "copy", "wait"
"""The annotation of a pod with the address of its node when it was bound, and the label of namespaces whose pods get
it: also if there is none, or only if there is one."""
CONDITION = "AnycastIPReady"
"""The type of the Node condition that says whether the address is bound."""


def wanted(node: Node, settings: AnycastIPSettings) -> bool:
    """Whether *node* needs an address: it has all configured labels and is no super node, which has no instance."""
    return settings.node_labels.items() <= node.metadata.labels.items() and not is_super(node)


def is_tainted(node: Node) -> bool:
    return any(is_ours(taint) for taint in node.spec.taints)


def is_ours(taint: Taint) -> bool:
    """By key and effect, as Kubernetes identifies taints."""
    return (taint.key, taint.effect) == (TAINT.key, TAINT.effect)


def proven(node: Node) -> str:
    """The id of its address, or NONE. A Node object that was created again or restored needs a new proof."""
    uid, _, address = node.metadata.annotations.get(BOUND, "").partition("/")
    return address if uid == node.metadata.uid != "" else ""


def is_proven_bound(node: Node) -> bool:
    return proven(node) not in ("", NONE)


def is_open(node: Node) -> bool:
    """With its address."""
    return is_proven_bound(node) and not is_tainted(node)


def is_open_without(node: Node) -> bool:
    """Whether it shows that it was opened though no address could be had."""
    return proven(node) == NONE and not is_tainted(node)


def proof(node: Node, address_id: str) -> str:
    return f"{node.metadata.uid}/{address_id}"


T = TypeVar("T")


def decoded(decoder: msgspec.json.Decoder[T], text: str, otherwise: T) -> T:
    """*otherwise* where another client has written something else."""
    try:
        return decoder.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return otherwise


TRANSITIONS_KEPT = 5


class Transition(Value, frozen=True):
    """The node was opened or closed; *address* is the id of the one that it had got, or had lost."""

    at: Moment
    to: str
    address: str = ""


OPEN, CLOSED = "open", "closed"
TRANSITIONS = msgspec.json.Decoder(tuple[Transition, ...])


def transitions_of(node: Node) -> tuple[Transition, ...]:
    """The latest first; none where another client has written something else."""
    return decoded(TRANSITIONS, node.metadata.annotations.get(HISTORY, "[]"), ())


def with_transition(node: Node, at: datetime, to: str, address: str) -> dict[str, str]:
    """The annotation, with one more of the last few."""
    latest = Transition(at.replace(microsecond=0), to, address)
    kept = (latest, *transitions_of(node))[:TRANSITIONS_KEPT]
    return {HISTORY: msgspec.json.encode(kept).decode()}


def opened_after(transitions: Sequence[Transition], created: datetime | None) -> float | None:
    """Seconds from when the node was last closed, or from its creation, until it was last opened.

    None when it was never opened, or when that is no longer known.
    """
    for index, each in enumerate(transitions):
        if each.to == OPEN:
            since = closed_since(
                transitions[index + 1 :], created if len(transitions) < TRANSITIONS_KEPT else None
            )
            return max(0.0, (each.at - since).total_seconds()) if since else None
    return None


def closed_since(transitions: Sequence[Transition], created: datetime | None) -> datetime | None:
    """Since when the node had been closed before these *transitions* were followed by another, or until now."""
    if not transitions:
        return created
    return transitions[0].at if transitions[0].to == CLOSED else None


def joins_since(node: Node) -> datetime | None:
    """Since when it has been closed for the first time; None when it was open before."""
    transitions = transitions_of(node)
    was_open = ADDRESS_ID in node.metadata.annotations or any(each.to == OPEN for each in transitions)
    return None if was_open else closed_since(transitions, node.metadata.creation_timestamp)


ALLOW_LIST_LABEL, ALLOW_LIST_VALUE = "drawbridge.io/allow-list", "anycast-ip"
TEXT, JSON = "addresses.txt", "addresses.json"
IN_USE, PROMISED, IDLE = "in use", "promised", "idle"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """*state*: an open node uses it; or it is promised to a node that is not open yet; or it is idle in the pool.

    *since* is when the write began that brought it into the list.
    """

    address: str
    id: str
    node: str = ""
    state: str
    since: Moment


Entries = tuple[Entry, ...]
ENTRIES = msgspec.json.Decoder(Entries)


def data_of(found: Entries) -> dict[str, str]:
    """One address a line, and the same as JSON."""
    lines = dict.fromkeys(each.address for each in found)
    return {
        TEXT: "".join(f"{each}\n" for each in lines),
        JSON: msgspec.json.format(msgspec.json.encode(found)).decode() + "\n",
    }


def entries_in(found: ConfigMap | None) -> Entries:
    """What was written last; none where another client has written something else."""
    return decoded(ENTRIES, found.data.get(JSON, "[]"), ()) if found else ()


QUOTAS = "drawbridge.io/anycast-ip-quotas"
TOTAL, DAILY = "TOTAL_EIP_QUOTA", "DAILY_EIP_APPLY"
"""The quotas that an order uses."""


class Quota(Value, frozen=True):
    """How much of it is in use in the region, and how much there may be."""

    id: str
    current: int
    limit: int


class QuotasRead(Value, frozen=True):
    """What the cloud answered the leader *at* that time."""

    at: Moment
    quotas: tuple[Quota, ...]


DECODER: msgspec.json.Decoder[QuotasRead | None] = msgspec.json.Decoder(QuotasRead | None)


def with_quotas(quotas: Sequence[Quota], at: datetime) -> dict[str, str]:
    """For the leader's Lease, which is renewed all the time, so that it costs no write."""
    found = QuotasRead(at.replace(microsecond=0), tuple(quotas))
    return {QUOTAS: msgspec.json.encode(found).decode()}


def quotas_in(annotations: Mapping[str, str]) -> QuotasRead | None:
    """None before the first read, and where another client has written something else."""
    return decoded(DECODER, annotations.get(QUOTAS, "null"), None)
