"""The Node condition AnycastIPReady: whether a node's anycast IP is bound, for readers that know conditions.

It is True while the node is open, and False with the reason while something is in the way, or its address is being
announced. Any other node that joins and is served has none until it is open: so a join costs one write, and to a
reader an absent condition is not True.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog

from api.anycast_ip import ADDRESS, ADDRESS_ID, CONDITION, is_open, wanted
from controllers.anycast_ip.snapshot import Note
from controllers.anycast_ip.sources import ReportedNode, Sources
from controllers.workqueue import PENDING, WorkQueue
from kube.errors import Backoff, KubeError, NotFound
from kube.types import rfc3339
from settings import AnycastIPSettings

TRUE, FALSE = "True", "False"
MESSAGE_SIZE = 1024


PAUSES = Backoff(base=0.5, cap=300.0)
REWORDED = 60.0
"""Seconds from one write to the next that changes only why a node waits: clouds refuse in changing words."""
log = structlog.stdlib.get_logger(__name__)


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


class ConditionReconciler:
    """`reconcile` is for the workers of *queue*; *trouble* has what was last in the way of a node, by its uid."""

    def __init__(self, sources: Sources, trouble: Callable[[str], Note | None]) -> None:
        self._nodes, self._settings, self._clocks = sources.nodes, sources.settings, sources.clocks
        self._trouble = trouble
        self._written: dict[str, float] = {}
        self.queue = WorkQueue("anycast_ip_conditions", pauses=PAUSES, clock=self._clocks.monotonic)

    def reconcile(self, uid: str) -> float | None:
        node = self._nodes.get(uid)
        if node is None:
            self._written.pop(uid, None)
            return None
        ready, held = desired(node, self._trouble(uid), self._settings()), held_by(node)
        if ready == held:
            return None
        if left := self._left(uid, ready, held):
            return left
        try:
            self._nodes.write_condition(node, patch(node, ready, self._clocks.now()))
        except NotFound:
            return None
        except KubeError as error:
            log.warning("node condition not written", node=node.metadata.name, uid=uid, error=str(error))
            self.queue.retry(uid)
            return PENDING
        self._written[uid] = self._clocks.monotonic()
        return None

    def _left(self, uid: str, ready: Ready | None, held: Ready | None) -> float:
        """Seconds until it may be written."""
        if ready is None or held is None or ready.status != held.status or uid not in self._written:
            return 0.0
        return max(0.0, self._written[uid] + REWORDED - self._clocks.monotonic())
