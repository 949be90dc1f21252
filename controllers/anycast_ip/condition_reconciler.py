"""Write the condition of one node at a time, apart from the work on addresses, which it never delays."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from controllers.anycast_ip.condition import Ready, desired, held_by, patch
from controllers.anycast_ip.snapshot import Note
from controllers.anycast_ip.sources import Sources
from controllers.workqueue import PENDING, WorkQueue
from kube.errors import Backoff, KubeError, NotFound

PAUSES = Backoff(base=0.5, cap=300.0)
REWORDED = 60.0
"""Seconds from one write to the next that changes only why a node waits: clouds refuse in changing words."""

log = structlog.stdlib.get_logger(__name__)


class ConditionReconciler:
    """`reconcile` is for the workers of *queue*; *trouble* has what was last in the way of a node, by its uid."""

    def __init__(self, sources: Sources, trouble: Callable[[str], Note | None]) -> None:
        self._nodes, self._settings, self._clocks = sources.nodes, sources.settings, sources.memory.clocks
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
