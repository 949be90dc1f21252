"""`drawbridge explain ingressdaemonset`: whether it is accepted, which nodes it matches, what evictions wait for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec

from api.ingress_daemonset import INGRESS_DAEMONSETS, NODE_LABEL
from api.ingress_daemonset.node_matching import FollowedNode, matches, where_of
from api.ingress_daemonset.status import EndedRollout, RolloutStatus, WavesStatus, status_of
from api.ingress_daemonset.types import IngressDaemonSet
from cli.explain.kinds import (
    EventRow,
    Kind,
    budgets_of,
    event_table,
    events,
    events_about,
    objects_about,
    objects_in,
    snapshot_of,
)
from cli.explain.prediction import (
    Question,
    Snapshot,
    creation_of,
    eviction_of,
    predict,
    question,
    question_table,
)
from cli.ingress_daemonset.rollouts import history_table, progress_sentence, waves_of, waves_sentence
from cli.ingress_daemonset.webhooks import readable_or_failure
from cli.inventory import Inventory
from cli.output import Document, Part, Report, Table, title
from kube.resources import NODES, PODS, Selection
from kube.types import Pod
from webhook.ingress_daemonset.evictions import owner_of

Raw = dict[str, Any]


class OnNode(Document, frozen=True):
    """*eviction* is what the client would get that evicts a pod from there now."""

    node: str
    matches: bool
    pods: tuple[str, ...]
    eviction: str


class IngressDaemonSetExplanation(Report, frozen=True):
    ingress_daemonset: str
    questions: tuple[Question, ...]
    nodes: tuple[OnNode, ...]
    conditions: dict[str, str]
    course: RolloutStatus | None
    history: tuple[EndedRollout, ...]
    now: datetime
    events: tuple[EventRow, ...]
    waves: WavesStatus | None = None

    def parts(self, now: datetime) -> Iterator[Part]:
        yield title(f"IngressDaemonSet {self.ingress_daemonset}")
        yield question_table(self.questions)
        nodes = [
            (each.node, "yes" if each.matches else "no", str(len(each.pods)), each.eviction)
            for each in self.nodes
        ]
        yield Table(("NODE", "MATCHES", "PODS", "EVICTION OF A POD"), nodes, empty="It matches no node.")
        if self.conditions:
            yield Table(("CONDITION", "STATUS"), sorted(self.conditions.items()))
        if self.course:
            yield f"Its rollout: {progress_sentence(self.course, now)}"
        if self.waves:
            yield waves_sentence(self.waves)
        if self.history:
            yield history_table(self.history, now)
        yield f"How far its rollout is: drawbridge rollout get {self.ingress_daemonset.partition('/')[2]}"
        yield event_table(self.events, now)


def explain(inventory: Inventory, namespace: str, name: str) -> IngressDaemonSetExplanation:
    raw = inventory.get(INGRESS_DAEMONSETS, name, namespace, Raw)
    resource = readable_or_failure(raw)
    pods = [
        each
        for each in inventory.list(PODS, Raw, Selection(namespace, label_selector=NODE_LABEL))
        if owner_of(msgspec.convert(each, Pod), [resource])
    ]
    nodes = inventory.list(NODES, FollowedNode)
    around = replace(
        objects_in(inventory, [namespace]),
        pods=objects_about(inventory, pods).pods,
        budgets=budgets_of(inventory, namespace),
    )
    found = events_about(inventory, "IngressDaemonSet", namespace, name)
    snapshot, status = snapshot_of(inventory, around), status_of(resource.status)
    return IngressDaemonSetExplanation(
        ingress_daemonset=f"{namespace}/{name}",
        questions=(question("create", predict(creation_of(INGRESS_DAEMONSETS, raw), snapshot)),),
        nodes=tuple(_on_nodes(resource, nodes, pods, snapshot)),
        conditions={
            each.type: ": ".join(filter(None, (each.status, each.message))) for each in status.conditions
        },
        course=status.rollout,
        history=status.history,
        now=snapshot.now,
        events=tuple(events(found)),
        waves=waves_of(status),
    )


def _on_nodes(
    resource: IngressDaemonSet, nodes: Sequence[FollowedNode], pods: Sequence[Raw], snapshot: Snapshot
) -> Iterator[OnNode]:
    """Those that it matches, and those that have its pods."""
    where = where_of(resource)
    for node in nodes:
        there = [each for each in pods if each["spec"].get("nodeName") == node.name]
        if (is_match := matches(where, node, runs=bool(there))) or there:
            names = tuple(each["metadata"]["name"] for each in there)
            yield OnNode(node.name, is_match, names, _eviction(there, snapshot) if there else "")


def _eviction(pods: Sequence[Raw], snapshot: Snapshot) -> str:
    predicted = [predict(eviction_of(each), snapshot) for each in pods]
    return next((message for each in predicted for message in each.denials), "allowed")


INGRESS_DAEMONSET = Kind(
    "Whether today's rules accept it, which nodes it matches, and what evictions wait for.", explain
)
