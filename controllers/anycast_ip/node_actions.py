"""Actions on nodes, as those on claims: check the egress of one, open it, close it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import structlog

from api.anycast_ip import ADDRESS, ADDRESS_ID, BOUND, HISTORY, TAINT, is_tainted
from controllers.anycast_ip.bound import bound_annotations
from controllers.anycast_ip.snapshot import Checked, Do, Snapshot, Step, node_in
from controllers.anycast_ip.sources import Sources
from controllers.anycast_ip.terms import wanted_bandwidth
from controllers.anycast_ip.transitions import CLOSED, OPEN, with_transition
from kube.types import Node

UNMARKED: Mapping[str, str | None] = {ADDRESS_ID: None, ADDRESS: None, BOUND: None}

Action = Callable[[Snapshot, Step], Awaitable[float | None]]

log = structlog.stdlib.get_logger(__name__)


class NodeActions:
    def __init__(self, sources: Sources) -> None:
        self._nodes, self._claims = sources.nodes, sources.claims
        self._memory, self._settings = sources.memory, sources.settings
        self.by_name: Mapping[Do, Action] = {
            Do.CHECK: self._check,
            Do.OPEN: self._open,
            Do.CLOSE: self._close,
            Do.STRIP: self._strip,
            Do.FREE: self._free,
        }

    async def _check(self, snapshot: Snapshot, step: Step) -> float | None:
        """Let a pod find out; when it has ended, the node is reconciled again."""
        settings, checks = self._settings().egress_check, self._memory.egress
        if step.address is None:
            return None
        check = checks.begun(snapshot.uid, Checked(step.address.id, step.address.ip, settings.url))
        if not check.token:
            return checks.left(check)
        if check.created is None:
            self._nodes.probes.create(check.token, node_in(snapshot), step.address, settings)
            checks.created(snapshot.uid, check)
        return settings.timeout

    async def _open(self, snapshot: Snapshot, step: Step) -> float | None:
        if step.address is None:
            return None
        node = node_in(snapshot)
        # What it shows may be renewed while it is open.
        history = self._history(node, OPEN, step.address.id) if is_tainted(node) else {}
        self._nodes.write(node, {**bound_annotations(node, step.address), **history})
        self._memory.waits.end(snapshot.uid)
        is_right = wanted_bandwidth(node, self._settings()) in (0, step.address.bandwidth)
        return None if is_right else 0.0

    async def _close(self, snapshot: Snapshot, _: Step) -> float:
        node = node_in(snapshot)
        lost = node.metadata.annotations.get(ADDRESS_ID, "")
        history = {} if is_tainted(node) else self._history(node, CLOSED, lost)
        self._nodes.write(node, {**UNMARKED, **history}, TAINT)
        log.warning("open node without its address tainted", node=snapshot.name, uid=snapshot.uid)
        return 0.0

    def _history(self, node: Node, to: str, address: str) -> Mapping[str, str]:
        return with_transition(node, self._memory.clocks.now(), to, address)

    async def _strip(self, snapshot: Snapshot, _: Step) -> float:
        self._nodes.write(node_in(snapshot), {**UNMARKED, HISTORY: None})
        self._memory.wanted.discard(snapshot.uid)
        return 0.0

    async def _free(self, snapshot: Snapshot, _: Step) -> float:
        self._nodes.write(node_in(snapshot), {})
        return 0.0
