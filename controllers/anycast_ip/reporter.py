"""What is told of nodes and their addresses: Events on the nodes, once for each change, and metrics."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

import structlog
from prometheus_client import Gauge, Histogram

from cloud.errors import CloudError, QuotaExceeded
from cloud.types import Quota
from controllers.anycast_ip.node_writer import NODES
from controllers.anycast_ip.state import Case, Do, Note, Step
from kube.errors import Conflict
from kube.event_recorder import EventRecorder, Regarding
from kube.types import Node
from settings import AnycastIPSettings
from webhook.anycast_ip import ADDRESS_ID, is_proven_bound, is_tainted, wanted

STATES = ("waiting", "working", "open", "leaving")
NODES_BY_STATE = Gauge(
    "drawbridge_anycast_ip_nodes",
    "Nodes by what their address is at; waiting: something stands in the way, see their Events.",
    ["state"],
)
OPENED = Histogram(
    "drawbridge_anycast_ip_open_seconds",
    "From the creation of a node to its opening.",
    buckets=(2, 5, 10, 20, 30, 60, 120, 300, 600, 1800),
)
QUOTA_LEFT = Gauge(
    "drawbridge_anycast_ip_quota_left", "Addresses that may still be had, by quota.", ["quota"]
)

REASONS = {
    Do.TAG: "FailedAllocateAnycastIp",
    Do.ALLOCATE: "FailedAllocateAnycastIp",
    Do.FIND: "FailedAllocateAnycastIp",
    Do.LOOK: "FailedAllocateAnycastIp",
    Do.CLAIM: "FailedAllocateAnycastIp",
    Do.BIND: "FailedAssociateAnycastIp",
    Do.OPEN: "FailedUntaintNode",
    Do.UNBIND: "FailedReleaseAnycastIp",
    Do.RELEASE: "FailedReleaseAnycastIp",
}
"""The first three reasons are the original's."""
PATIENCE = 3
"""Failures in a row before one that may pass is told."""

log = structlog.stdlib.get_logger(__name__)


class Reporter:
    """*of_claim* is the object that shows what is to be known of a claim whose node is gone, by the node's uid."""

    def __init__(
        self, recorder: EventRecorder, now: Callable[[], datetime], of_claim: Callable[[str], Regarding]
    ) -> None:
        self._recorder, self._now, self._of_claim = recorder, now, of_claim
        self._quotas: Sequence[Quota] = ()

    def note(self, case: Case, note: Note) -> None:
        """On the node, or on the claim when the node is gone, unless it was the last that was told."""
        if case.known.told == note:
            return
        case.known.told = note
        text = f"{note.message}; request {note.request}" if note.request else note.message
        log.info("told", uid=case.uid, node=_name(case), reason=note.reason, message=text)
        if case.node:
            self._recorder.event(Regarding.of(case.node, NODES, "Node"), note.reason, text, type=note.type)
        elif case.claim:
            text = f"Node {case.claim.node}, address {case.claim.address or 'not known'}: {text}"
            self._recorder.event(self._of_claim(case.uid), note.reason, text, type=note.type)

    def waiting(self, case: Case, do: Do, error: Exception) -> None:
        """*case* waits because other nodes were refused: the same words as theirs."""
        self.note(case, refusal(REASONS.get(do, "AnycastIpDelayed"), error, self._quota_text(error)))

    def failure(self, case: Case, do: Do, error: Exception) -> None:
        failures = case.known.failures[do]
        if isinstance(error, Conflict):
            return
        lasting = isinstance(error, CloudError) and error.result() in LASTING
        if not lasting and failures < PATIENCE:
            log.info("to be tried again", step=do, uid=case.uid, node=_name(case), error=str(error))
            return
        self.note(case, refusal(REASONS.get(do, "AnycastIpDelayed"), error, self._quota_text(error)))

    def opened(self, case: Case) -> None:
        node = case.node
        if node is None:
            return
        if ADDRESS_ID not in node.metadata.annotations and node.metadata.creation_timestamp:
            OPENED.observe((self._now() - node.metadata.creation_timestamp).total_seconds())
        self.note(
            case, Note("AnycastIpBound", "The anycast IP is bound: the node is open for work", "Normal")
        )

    def closed(self, case: Case) -> None:
        if case.node and is_proven_bound(case.node):
            self.note(
                case, Note("AnycastIpLost", "The address is not bound to the node any more: tainted again")
            )

    def quotas(self, quotas: Sequence[Quota]) -> None:
        self._quotas = quotas
        for each in quotas:
            QUOTA_LEFT.labels(each.id).set(each.limit - each.current)

    def _quota_text(self, error: Exception) -> str:
        spent = [
            f"{each.id} {each.current}/{each.limit}" for each in self._quotas if each.current >= each.limit
        ]
        return f"; quotas used up: {', '.join(spent)}" if isinstance(error, QuotaExceeded) and spent else ""


def refusal(reason: str, error: Exception, more: str = "") -> Note:
    """The same for the same words of the cloud, though each answers another request."""
    if not isinstance(error, CloudError):
        return Note(reason, f"{error}{more}")
    return Note(reason, f"{error.action}: {error.message} ({error.code}){more}", request=error.request_id)


LASTING = {"quota_exceeded", "not_permitted", "not_configured", "rejected", "already_bound", "blocked"}


def count(planned: Iterable[tuple[Case, Step]], settings: AnycastIPSettings) -> None:
    tally = Tally(state_of(case, step, settings) for case, step in planned)
    for state in STATES:
        NODES_BY_STATE.labels(state).set(tally[state])


def state_of(case: Case, step: Step, settings: AnycastIPSettings) -> str:
    """Nothing for a node that is no concern of ours."""
    if case.node is None:
        return "leaving" if case.claim else ""
    if not wanted(case.node, settings):
        return "leaving" if case.claim and step.do is not Do.NOTHING else ""
    if is_open(case.node):
        return "open"
    return "waiting" if step.note else "working"


def is_open(node: Node) -> bool:
    return is_proven_bound(node) and not is_tainted(node)


def _name(case: Case) -> str:
    return case.node.metadata.name if case.node else (case.claim.node if case.claim else "")
