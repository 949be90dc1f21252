"""What IngressDaemonSets add to `explain` and `simulate`: how their webhooks answer, and themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from api.ingress_daemonset import INGRESS_DAEMONSETS, NODE_LABEL
from api.ingress_daemonset.node_matching import FollowedNode
from api.ingress_daemonset.template import readable
from cli.commands.explain import Kind, budgets_of, deadline, events_of, objects_about, objects_in, snapshot_of
from cli.errors import Failure
from cli.explain import ingress_daemonset
from cli.explain.prediction import Make, ReadFromSnapshot, RecordingLedger, Snapshot
from cli.inventory import Inventory
from kube.resources import NODES, PODS, Selection
from kube.types import Pod
from settings import IngressDaemonSetSettings
from webhook.admission import Webhook
from webhook.ingress_daemonset.cluster_lookup import ClusterLookup, PodTemplates
from webhook.ingress_daemonset.evictions import EvictionWebhook, owner_of
from webhook.ingress_daemonset.webhook import DefaultingWebhook, ValidatingWebhook

Raw = dict[str, Any]


def predicted(inventory: Inventory) -> Make:
    """Its webhooks, which read ports and templates only when an IngressDaemonSet is judged."""
    lookup, templates = ClusterLookup(inventory.client), PodTemplates(inventory.client)

    def webhooks(snapshot: Snapshot, _: RecordingLedger) -> Sequence[Webhook]:
        def settings() -> IngressDaemonSetSettings:
            return snapshot.settings.ingress_daemonset

        return (
            EvictionWebhook(settings, ReadFromSnapshot(snapshot.objects), lambda: snapshot.now),
            DefaultingWebhook(settings),
            ValidatingWebhook(
                settings,
                lambda new, _: lookup.port_users(new, deadline()),
                lambda template, _: templates.problems(template, deadline()),
            ),
        )

    return webhooks


def facts_of_ingress_daemonset(
    inventory: Inventory, namespace: str, name: str
) -> ingress_daemonset.IngressDaemonSetFacts:
    raw = inventory.get(INGRESS_DAEMONSETS, name, namespace, Raw)
    try:
        resource = readable(raw)
    except msgspec.ValidationError as error:
        raise Failure(
            f"IngressDaemonSet {namespace}/{name} cannot be read, and the controllers ignore it: {error}",
            "correct that field; it is older than the schema of the CRD",
        ) from error
    pods = [
        each
        for each in inventory.list(PODS, Raw, Selection(namespace, label_selector=NODE_LABEL))
        if owner_of(msgspec.json.decode(msgspec.json.encode(each), type=Pod), [resource])
    ]
    nodes = inventory.list(NODES, FollowedNode)
    around = replace(
        objects_in(inventory, [namespace]),
        pods=objects_about(inventory, pods).pods,
        budgets=budgets_of(inventory, namespace),
    )
    events = events_of(
        inventory, namespace, f"involvedObject.kind=IngressDaemonSet,involvedObject.name={name}"
    )
    return ingress_daemonset.IngressDaemonSetFacts(
        raw, resource, nodes, pods, snapshot_of(inventory, around), events
    )


INGRESS_DAEMONSET = Kind(
    "Whether today's rules accept it, which nodes it matches, and what evictions wait for.",
    facts_of_ingress_daemonset,
    ingress_daemonset.explain,
    ingress_daemonset.parts,
)
