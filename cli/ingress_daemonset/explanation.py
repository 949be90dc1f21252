"""`drawbridge explain ingressdaemonset`: whether it is accepted, which nodes it matches, what evictions wait for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec

from api.ingress_daemonset import INGRESS_DAEMONSETS, NODE_LABEL
from api.ingress_daemonset.status import Status
from api.ingress_daemonset.template import FollowedNode, readable, where_of
from api.ingress_daemonset.types import IngressDaemonSet
from cli.errors import Failure
from cli.explain.kinds import (
    Event,
    Kind,
    budgets_of,
    deadline,
    event_table,
    events_about,
    latest,
    snapshot_of,
)
from cli.explain.prediction import (
    Make,
    Prediction,
    RecordingLedger,
    Snapshot,
    creation_of,
    eviction_of,
    predict,
    question_table,
)
from cli.ingress_daemonset.rollouts import history_table, progress_sentence, waves_sentence
from cli.inventory import Inventory
from cli.output import Document, Part, Report, Table, title
from kube.resources import NODES, PODS, Selection
from kube.types import Pod, converted
from settings import IngressDaemonSetSettings
from webhook.admission import Webhook
from webhook.ingress_daemonset.cluster_lookup import ClusterLookup
from webhook.ingress_daemonset.evictions import EvictionWebhook, owner_of
from webhook.ingress_daemonset.webhook import DefaultingWebhook, ValidatingWebhook

Raw = dict[str, Any]


class OnNode(Document, frozen=True):
    """*eviction* is what the client would get that evicts a pod from there now."""

    node: str
    matches: bool
    pods: tuple[str, ...]
    eviction: str


class IngressDaemonSetExplanation(Report, frozen=True):
    ingress_daemonset: str
    questions: tuple[Prediction, ...]
    nodes: tuple[OnNode, ...]
    status: Status
    now: datetime
    events: tuple[Event, ...]

    def parts(self, now: datetime) -> Iterator[Part]:
        yield title(f"IngressDaemonSet {self.ingress_daemonset}")
        yield question_table(self.questions)
        nodes = [
            (each.node, "yes" if each.matches else "no", str(len(each.pods)), each.eviction)
            for each in self.nodes
        ]
        yield Table(("NODE", "MATCHES", "PODS", "EVICTION OF A POD"), nodes, empty="It matches no node.")
        if found := sorted(self.status.conditions, key=lambda each: each.type):
            rows = [(each.type, ": ".join(filter(None, (each.status, each.message)))) for each in found]
            yield Table(("CONDITION", "STATUS"), rows)
        if self.status.rollout:
            yield f"Its rollout: {progress_sentence(self.status.rollout, now)}"
        if self.status.waves:
            yield waves_sentence(self.status.waves)
        if self.status.history:
            yield history_table(self.status.history, now)
        namespace, name = self.ingress_daemonset.split("/")
        yield f"How far its rollout is: drawbridge rollout get {name} -n {namespace}"
        yield event_table(self.events, now)


def explain(inventory: Inventory, namespace: str, name: str) -> IngressDaemonSetExplanation:
    raw = inventory.get(INGRESS_DAEMONSETS, name, namespace, Raw)
    resource = readable_or_failure(raw)
    labelled = inventory.list(PODS, Raw, Selection(namespace, label_selector=NODE_LABEL))
    pods = [each for each in labelled if owner_of(converted(each, Pod), [resource])]
    nodes = inventory.list(NODES, FollowedNode)
    found = events_about(inventory, "IngressDaemonSet", namespace, name)
    snapshot = snapshot_of(inventory, pods, [namespace])
    snapshot = replace(snapshot, budgets=budgets_of(inventory, namespace))
    return IngressDaemonSetExplanation(
        ingress_daemonset=f"{namespace}/{name}",
        questions=(predict(creation_of(INGRESS_DAEMONSETS, raw), snapshot, "create"),),
        nodes=tuple(_on_nodes(resource, nodes, pods, snapshot)),
        status=resource.stored,
        now=snapshot.now,
        events=latest(found),
    )


def _on_nodes(
    resource: IngressDaemonSet, nodes: Sequence[FollowedNode], pods: Sequence[Raw], snapshot: Snapshot
) -> Iterator[OnNode]:
    """Those that it matches, and those that have its pods."""
    where = where_of(resource)
    for node in nodes:
        there = [each for each in pods if each["spec"].get("nodeName") == node.name]
        if (is_match := where.matches(node, runs=bool(there))) or there:
            names = tuple(each["metadata"]["name"] for each in there)
            predicted = (predict(eviction_of(each), snapshot) for each in there)
            denials = (message for each in predicted for message in each.denials)
            yield OnNode(node.name, is_match, names, next(denials, "allowed") if there else "")


def predicted(inventory: Inventory) -> Make:
    """Its webhooks, which read ports and templates only when an IngressDaemonSet is judged."""
    lookup = ClusterLookup(inventory.client)

    def webhooks(snapshot: Snapshot, _: RecordingLedger) -> Sequence[Webhook]:
        def settings() -> IngressDaemonSetSettings:
            return snapshot.settings.ingress_daemonset

        return (
            EvictionWebhook(settings, snapshot, lambda: snapshot.now),
            DefaultingWebhook(settings),
            ValidatingWebhook(
                settings,
                lambda new, _: lookup.port_users(new, deadline()),
                lambda template, _: lookup.template_problems(template, deadline()),
            ),
        )

    return webhooks


def readable_or_failure(raw: dict[str, Any]) -> IngressDaemonSet:
    try:
        return readable(raw)
    except msgspec.ValidationError as error:
        place = f"{raw['metadata']['namespace']}/{raw['metadata']['name']}"
        raise Failure(
            f"IngressDaemonSet {place} cannot be read, and the controllers ignore it: {error}",
            "correct that field; it is older than the schema of the CRD",
        ) from None


INGRESS_DAEMONSET = Kind(
    "Explain which nodes it matches, whether it would be accepted now, and what evictions wait for.", explain
)
