"""Explain an IngressDaemonSet: whether today's rules accept it, which nodes it matches, and what evictions wait for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from api.ingress_daemonset import INGRESS_DAEMONSETS
from api.ingress_daemonset.node_matching import FollowedNode, matches, where_of
from api.ingress_daemonset.status import status_of
from api.ingress_daemonset.types import IngressDaemonSet
from cli.explain.answers import Event, EventRow, Question, event_table, events, question, question_table
from cli.explain.prediction import Snapshot, creation_of, eviction_of, predict
from cli.output import Document, Part, Table, title
from cli.rollouts import (
    Ended,
    RolloutProgress,
    Waves,
    ended_rollouts,
    history_table,
    progress_of,
    progress_sentence,
    waves_of,
    waves_sentence,
)

Raw = Mapping[str, Any]


@dataclass(frozen=True)
class IngressDaemonSetFacts:
    """*pods* are those of its nodes, raw, which *snapshot* knows, too."""

    raw: Raw
    resource: IngressDaemonSet
    nodes: Sequence[FollowedNode]
    pods: Sequence[Raw]
    snapshot: Snapshot
    events: Sequence[Event]


class OnNode(Document, frozen=True):
    """*eviction* is what the client would get that evicts a pod from there now."""

    node: str
    matches: bool
    pods: tuple[str, ...]
    eviction: str


class IngressDaemonSetExplanation(Document, frozen=True):
    ingress_daemonset: str
    questions: tuple[Question, ...]
    nodes: tuple[OnNode, ...]
    conditions: dict[str, str]
    course: RolloutProgress | None
    history: tuple[Ended, ...]
    now: datetime
    events: tuple[EventRow, ...]
    waves: Waves | None = None


def explain(facts: IngressDaemonSetFacts) -> IngressDaemonSetExplanation:
    metadata = facts.resource.metadata
    request = creation_of(INGRESS_DAEMONSETS, facts.raw)
    status = status_of(facts.resource.status)
    return IngressDaemonSetExplanation(
        ingress_daemonset=f"{metadata.namespace}/{metadata.name}",
        questions=(question("create", predict(request, facts.snapshot)),),
        nodes=tuple(_nodes(facts)),
        conditions={
            each.type: ": ".join(filter(None, (each.status, each.message))) for each in status.conditions
        },
        course=progress_of(status),
        history=ended_rollouts(status),
        now=facts.snapshot.now,
        events=tuple(events(facts.events)),
        waves=waves_of(status.waves),
    )


def parts(explained: IngressDaemonSetExplanation) -> Iterator[Part]:
    yield title(f"IngressDaemonSet {explained.ingress_daemonset}")
    yield question_table(explained.questions)
    nodes = [
        (each.node, "yes" if each.matches else "no", str(len(each.pods)), each.eviction)
        for each in explained.nodes
    ]
    yield Table(("NODE", "MATCHES", "PODS", "EVICTION OF A POD"), nodes, empty="It matches no node.")
    if explained.conditions:
        yield Table(("CONDITION", "STATUS"), sorted(explained.conditions.items()))
    if explained.course:
        yield f"Its rollout: {progress_sentence(explained.course, explained.now)}"
    if explained.waves:
        yield waves_sentence(explained.waves)
    if explained.history:
        yield history_table(explained.history, explained.now)
    yield f"How far its rollout is: drawbridge rollout get {explained.ingress_daemonset.partition('/')[2]}"
    yield event_table(explained.events, explained.now)


def _nodes(facts: IngressDaemonSetFacts) -> Iterator[OnNode]:
    """Those that it matches, and those that have its pods."""
    where = where_of(facts.resource)
    for node in facts.nodes:
        pods = [each for each in facts.pods if each["spec"].get("nodeName") == node.name]
        if matches(where, node, runs=bool(pods)) or pods:
            names = tuple(each["metadata"]["name"] for each in pods)
            is_match = matches(where, node, runs=bool(pods))
            yield OnNode(node.name, is_match, names, _eviction(pods, facts.snapshot) if pods else "")


def _eviction(pods: Sequence[Raw], snapshot: Snapshot) -> str:
    predicted = [predict(eviction_of(each), snapshot) for each in pods]
    return next((message for each in predicted for message in each.denials), "allowed")
