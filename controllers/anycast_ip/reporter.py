"""Report on nodes and their addresses: Events, once for each change, the Node condition AnycastIPReady, and metrics."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
import structlog
from msgspec.structs import replace
from prometheus_client import Gauge, Histogram

from api.anycast_ip import ADDRESS, ADDRESS_ID, CONDITION, is_open, is_open_without, joins_since, wanted
from cloud.errors import (
    AlreadyBound,
    Blocked,
    CloudError,
    NotPermitted,
    QuotaExceeded,
    Rejected,
    RetryAfter,
    TokenRefused,
)
from controllers.anycast_ip.planner import ANNOUNCED, HELD
from controllers.anycast_ip.snapshot import Action, Note, Snapshot, Step
from controllers.anycast_ip.sources import ReportedNode, Sources
from controllers.workqueue import PENDING, WorkQueue
from kube.errors import Backoff, Conflict, KubeError, NotFound
from kube.event_recorder import EventRecorder, Regarding
from kube.resources import NODES
from kube.types import Condition, rfc3339
from settings import AnycastIPSettings

STATES = ("waiting", "announcing", "working", "open", "exhausted", "leaving", "held")
NODES_BY_STATE = Gauge(
    "drawbridge_anycast_ip_nodes",
    "Nodes by the state of their address; waiting: something is in the way, see their Events;"
    " exhausted: open without an address because of a quota; held: the address"
    " stays bound until an operator confirms its release.",
    ["state"],
)
for _state in STATES:
    NODES_BY_STATE.labels(_state)
OPENED = Histogram(
    "drawbridge_anycast_ip_open_seconds",
    "From the creation of a node, or its first taint, to its opening.",
    buckets=(2, 5, 10, 20, 30, 60, 120, 300, 600, 1800),
)

ORDERING = (Action.TAG, Action.ALLOCATE, Action.FIND, Action.LOOK, Action.CLAIM)
REASONS = dict.fromkeys(ORDERING, "FailedAllocateAnycastIp") | {
    Action.BIND: "FailedAssociateAnycastIp",
    Action.CHECK: "AnycastIpEgressFailed",
    Action.OPEN: "FailedUntaintNode",
    Action.RESIZE: "FailedResizeAnycastIp",
    Action.UNBIND: "FailedReleaseAnycastIp",
    Action.RELEASE: "FailedReleaseAnycastIp",
}
"""Those of orders, binds and openings are the original's."""
EXHAUSTED = "AnycastIpExhausted"
WITHOUT = (
    "A quota of the cloud is used up: the node is open without an anycast IP, and gets one when there is one"
)
LASTING = (AlreadyBound, Blocked, NotPermitted, QuotaExceeded, Rejected, RetryAfter, TokenRefused)
PATIENCE = 3
"""Failures in a row before an Event reports one that may pass."""

log = structlog.stdlib.get_logger(__name__)


class StillThere(Exception):
    """The API server has a node that the informer does not have."""


class Reporter:
    """Safe to share between threads, as long as each node is with one of them."""

    def __init__(self, recorder: EventRecorder, sources: Sources) -> None:
        self._recorder, self._claims, self._inventory = recorder, sources.claims, sources.inventory
        self._now = sources.clocks.now
        self._notes, self._states = dict[str, Note](), dict[str, str]()
        self._announced = set[str]()
        """Uids of nodes that waited for the announcement of their addresses, and are not open yet."""
        for state in STATES:
            NODES_BY_STATE.labels(state).set_function(partial(self._nodes_in, state))

    def _nodes_in(self, state: str) -> int:
        return list(self._states.values()).count(state)

    def planned(self, snapshot: Snapshot, step: Step, settings: AnycastIPSettings) -> None:
        """Count the node by its state, and report the note of *step*."""
        if step.action is Action.ANNOUNCE:
            self._announced.add(snapshot.uid)
        if step.note:
            self.note(snapshot, step.note)
        self._states[snapshot.uid] = state_of(snapshot, step, self.trouble(snapshot.uid), settings)

    def unanswered(self, snapshot: Snapshot, step: Step, settings: AnycastIPSettings) -> None:
        """Count the node by what is known without the answer to *step*; what was held stays so."""
        if self._states.get(snapshot.uid) != "held":
            self._states[snapshot.uid] = state_of(snapshot, step, self.trouble(snapshot.uid), settings)

    def done(self, snapshot: Snapshot, step: Step) -> None:
        uid, node = snapshot.uid, snapshot.node
        if step.action is Action.OPEN and node:
            self._states[uid] = "open"
            since = joins_since(node)
            if since and uid not in self._announced:
                OPENED.observe((self._now() - since).total_seconds())
            self._announced.discard(uid)
            text = "The anycast IP is bound: the node is open for pods"
            self.note(snapshot, Note("AnycastIpBound", text, "Normal"))
        elif step.action is Action.OPEN_WITHOUT:
            self._states[uid] = "exhausted"
            self.note(snapshot, Note(EXHAUSTED, WITHOUT))
        elif step.action is Action.KEEP:
            self.note(snapshot, Note("AnycastIpKept", "Kept in the pool for the next node", "Normal"))
        elif step.action is Action.TAKE and snapshot.pool.offer:
            text = f"{snapshot.pool.offer.address} comes from the pool, without an order"
            self.note(snapshot, Note("AnycastIpTaken", text, "Normal"))
        elif step.action in (Action.STRIP, Action.FREE):
            self._notes.pop(uid, None)
        elif step.action is Action.CLOSE and node and ADDRESS_ID in node.metadata.annotations:
            text = "The address is no longer bound to the node, which is tainted again"
            self.note(snapshot, Note("AnycastIpLost", text))

    def forget(self, uid: str) -> None:
        """The node is gone, and so is its claim."""
        self._notes.pop(uid, None)
        self._announced.discard(uid)
        self._states.pop(uid, None)

    def note(self, snapshot: Snapshot, note: Note) -> None:
        """On the node, or on the claim when the node is gone, unless it was the last one."""
        uid, node, claim = snapshot.uid, snapshot.node, snapshot.claim
        if self._notes.get(uid) == note:
            return
        self._notes[uid] = note
        text = f"{note.message}; request {note.request}" if note.request else note.message
        log.info("event recorded", uid=uid, node=snapshot.name, reason=note.reason, message=text)
        if node:
            self._recorder.event(Regarding.of(node, NODES, "Node"), note.reason, text, type=note.type)
        elif claim:
            text = f"Node {claim.node}, address {claim.address or 'not known'}: {text}"
            self._recorder.event(self._claims.regarding(uid), note.reason, text, type=note.type)

    def trouble(self, uid: str) -> Note | None:
        """What was last in the way of the node, as far as this process knows."""
        note = self._notes.get(uid)
        if note is None or note.reason == EXHAUSTED:
            return None
        return note if note.type == "Warning" or note.reason == ANNOUNCED else None

    def failure(self, snapshot: Snapshot, action: Action, error: Exception, failures: int) -> None:
        """*failures* is how many there were in a row, this one included."""
        cause = error.cause if isinstance(error, RetryAfter) else error
        is_known = snapshot.node and is_open_without(snapshot.node) and isinstance(cause, QuotaExceeded)
        if is_known and self.trouble(snapshot.uid):
            self.note(snapshot, Note(EXHAUSTED, WITHOUT))
        if isinstance(cause, Conflict) or is_known:
            return
        if not isinstance(error, LASTING) and failures < PATIENCE:
            log.info("action failed", action=action, uid=snapshot.uid, node=snapshot.name, error=str(cause))
            return
        of = Action.WATCH if isinstance(cause, StillThere) else action
        used_up = [each for each in self._inventory.quotas if each.current >= each.limit]
        spent = ", ".join(f"{each.id} {each.current}/{each.limit}" for each in used_up)
        more = f"; quotas used up: {spent}" if isinstance(cause, QuotaExceeded) and spent else ""
        self.note(snapshot, refusal(REASONS.get(of, "AnycastIpDelayed"), cause, more))


def refusal(reason: str, error: Exception, more: str = "") -> Note:
    """The same for the same words of the cloud, though each answers another request."""
    if not isinstance(error, CloudError):
        return Note(reason, f"{error}{more}")
    return Note(reason, f"{error.action}: {error.message} ({error.code}){more}", request=error.request_id)


def state_of(snapshot: Snapshot, step: Step, trouble: Note | None, settings: AnycastIPSettings) -> str:
    """Nothing for a node that needs no address; *trouble* is what was last in the way, if anything."""
    node, claim = snapshot.node, snapshot.claim
    if step.note and step.note.reason == HELD:
        return "held"
    if node is None:
        return "leaving" if claim and (claim.releasing or not claim.pooled) else ""
    if not wanted(node, settings):
        return "leaving" if claim and step.action is not Action.NOTHING else ""
    if is_open(node):
        return "open"
    if trouble and trouble.type == "Warning":
        return "waiting"
    if is_open_without(node) and not (claim and claim.address):
        return "exhausted"
    return "announcing" if step.action is Action.ANNOUNCE else "working"


TRUE, FALSE = "True", "False"
MESSAGE_SIZE = 1024
PAUSES = Backoff(base=0.5, cap=300.0)
REWORDED = 60.0
"""Seconds from one write to the next that changes only why a node waits: clouds refuse in changing words."""


def desired(
    node: ReportedNode, trouble: Note | None, settings: AnycastIPSettings, now: datetime
) -> Condition | None:
    """What *node* should say, None for no condition; *trouble* is what was last in the way, if anything."""
    held = node.condition
    if not wanted(node, settings):
        return None
    if is_open(node):
        annotations = node.metadata.annotations
        text = f"{annotations.get(ADDRESS, '')} ({annotations.get(ADDRESS_ID, '')}) is bound to the node"
        said = Condition(CONDITION, TRUE, "AnycastIpBound", text)
    elif trouble:
        said = Condition(CONDITION, FALSE, trouble.reason, trouble.message[:MESSAGE_SIZE])
    elif is_open_without(node):
        said = Condition(CONDITION, FALSE, EXHAUSTED, WITHOUT)
    elif held and (held.status != FALSE or held.reason == EXHAUSTED):
        text = "The node is closed until its anycast IP is bound"
        said = Condition(CONDITION, FALSE, "AnycastIpPending", text)
    else:
        return held
    since = held.last_transition_time if held and held.status == said.status else None
    return replace(said, last_transition_time=since or now.replace(microsecond=0))


def patch(condition: Condition | None, now: datetime) -> dict[str, Any]:
    """The entry of a strategic merge patch."""
    if condition is None:
        return {"type": CONDITION, "$patch": "delete"}
    return {**msgspec.to_builtins(condition), "lastHeartbeatTime": rfc3339(now)}


class ConditionReconciler:
    """Write whether a node's anycast IP is bound, for readers that know conditions.

    It is True while the node is open, and False with the reason while something is in the way, or its address is being
    announced. Any other node that joins and is served has none until it is open: so a join costs one write, and to a
    reader an absent condition is not True.

    `reconcile` is for the workers of *queue*; *trouble* has what was last in the way of a node, by its uid.
    """

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
            self.queue.retry(uid, error)
            return PENDING
        self._written[uid] = self._clocks.monotonic()
        return None
