"""The Node condition AnycastIPReady: whether a node's anycast IP is bound, for readers that know conditions.

It is True while the node is open, and False with the reason while something is in the way, or its address is being
announced. Any other node that joins and is served has none until it is open: so a join costs one write, and to a
reader an absent condition is not True.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from api.anycast_ip import ADDRESS, ADDRESS_ID, CONDITION, wanted
from controllers.anycast_ip.bound import is_open
from controllers.anycast_ip.snapshot import Note
from kube.types import Node, Value, complete, rfc3339
from settings import AnycastIPSettings

TRUE, FALSE = "True", "False"
MESSAGE_SIZE = 1024


class NodeCondition(Value, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_heartbeat_time: datetime | None = None
    last_transition_time: datetime | None = None


class NodeStatus(Value, frozen=True):
    conditions: tuple[NodeCondition, ...] = ()


class ReportedNode(Node, frozen=True):
    """A node with its condition of this feature, and no other."""

    status: NodeStatus = NodeStatus()

    @property
    def condition(self) -> NodeCondition | None:
        return next((each for each in self.status.conditions if each.type == CONDITION), None)


complete(NodeCondition, NodeStatus, ReportedNode)
DECODER = msgspec.json.Decoder(ReportedNode)


def decode(raw: msgspec.Raw) -> ReportedNode:
    """Without the conditions of others, which would be most of what is kept of a node."""
    node = DECODER.decode(raw)
    ours = (node.condition,) if node.condition else ()
    return replace(node, status=NodeStatus(ours))


@dataclass(frozen=True)
class Ready:
    """What the condition should say."""

    status: str
    reason: str
    message: str


def desired(node: ReportedNode, trouble: Note | None, settings: AnycastIPSettings) -> Ready | None:
    """What *node* should say, None for no condition; *trouble* is what was last in the way, if anything."""
    if not wanted(node, settings):
        return None
    if is_open(node):
        annotations = node.metadata.annotations
        ip, address = annotations.get(ADDRESS, ""), annotations.get(ADDRESS_ID, "")
        return Ready(TRUE, "AnycastIpBound", f"{ip} ({address}) is bound to the node")
    if trouble:
        return Ready(FALSE, trouble.reason, trouble.message[:MESSAGE_SIZE])
    held = held_by(node)
    if held and held.status != FALSE:
        return Ready(FALSE, "AnycastIpPending", "The node is closed until its anycast IP is bound")
    return held


def held_by(node: ReportedNode) -> Ready | None:
    held = node.condition
    return Ready(held.status, held.reason, held.message) if held else None


def patch(node: ReportedNode, ready: Ready | None, now: datetime) -> dict[str, Any]:
    """The entry of a strategic merge patch; the time of the transition changes with the status alone."""
    if ready is None:
        return {"type": CONDITION, "$patch": "delete"}
    held, at = node.condition, rfc3339(now)
    is_same = held is not None and held.status == ready.status and held.last_transition_time is not None
    since = rfc3339(held.last_transition_time) if is_same and held and held.last_transition_time else at
    return {
        "type": CONDITION,
        "status": ready.status,
        "reason": ready.reason,
        "message": ready.message,
        "lastHeartbeatTime": at,
        "lastTransitionTime": since,
    }
