"""The Node condition AnycastIPReady: whether a node's anycast IP is bound, for readers that know conditions.

It is True while the node is open, and False with the reason while something is in the way, or its address is being
announced. Any other node that joins and is served has none until it is open: so a join costs one write, and to a
reader an absent condition is not True.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec
import structlog
from msgspec.structs import replace

from api.anycast_ip import ADDRESS, ADDRESS_ID, CONDITION, is_open, wanted
from controllers.anycast_ip.snapshot import Note
from controllers.anycast_ip.sources import NodeCondition, ReportedNode, Sources
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


def desired(
    node: ReportedNode, trouble: Note | None, settings: AnycastIPSettings, now: datetime
) -> NodeCondition | None:
    """What *node* should say, None for no condition; *trouble* is what was last in the way, if anything."""
    held = node.condition
    if not wanted(node, settings):
        return None
    if is_open(node):
        annotations = node.metadata.annotations
        text = f"{annotations.get(ADDRESS, '')} ({annotations.get(ADDRESS_ID, '')}) is bound to the node"
        said = NodeCondition(CONDITION, TRUE, "AnycastIpBound", text)
    elif trouble:
        said = NodeCondition(CONDITION, FALSE, trouble.reason, trouble.message[:MESSAGE_SIZE])
    elif held and held.status != FALSE:
        text = "The node is closed until its anycast IP is bound"
        said = NodeCondition(CONDITION, FALSE, "AnycastIpPending", text)
    else:
        return held
    since = held.last_transition_time if held and held.status == said.status else None
    return replace(said, last_transition_time=since or now.replace(microsecond=0))


def patch(condition: NodeCondition | None, now: datetime) -> dict[str, Any]:
    """The entry of a strategic merge patch."""
    if condition is None:
        return {"type": CONDITION, "$patch": "delete"}
    return {**msgspec.to_builtins(condition), "lastHeartbeatTime": rfc3339(now)}


class ConditionReconciler:
    """`reconcile` is for the workers of *queue*; *trouble* has what was last in the way of a node, by its uid."""

    def __init__(self, sources: Sources, trouble: Callable[[str], Note | None]) -> None:
        self._nodes, self._settings, self._clocks = sources.nodes, sources.settings, sources.clocks
        self._trouble = trouble
        self._written: dict[str, float] = {}
        self.queue = WorkQueue("anycast_ip_conditions", pauses=PAUSES, clock=self._clocks.monotonic)

    def reconcile(self, uid: str) -> float | None:
        node, now = self._nodes.get(uid), self._clocks.now()
        if node is None:
            self._written.pop(uid, None)
            return None
        held, said = node.condition, desired(node, self._trouble(uid), self._settings(), now)
        if said == held:
            return None
        if held and said and held.status == said.status and uid in self._written:
            left = self._written[uid] + REWORDED - self._clocks.monotonic()
            if left > 0:
                return left
        try:
            self._nodes.write_condition(node, patch(said, now))
        except NotFound:
            return None
        except KubeError as error:
            log.warning("node condition not written", node=node.metadata.name, uid=uid, error=str(error))
            self.queue.retry(uid)
            return PENDING
        self._written[uid] = self._clocks.monotonic()
        return None
