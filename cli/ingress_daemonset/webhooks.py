"""The webhooks of IngressDaemonSets, as `explain` and `simulate` ask them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from api.ingress_daemonset.template import readable
from api.ingress_daemonset.types import IngressDaemonSet
from cli.errors import Failure
from cli.explain.kinds import deadline
from cli.explain.prediction import Make, RecordingLedger, Snapshot
from cli.inventory import Inventory
from settings import IngressDaemonSetSettings
from webhook.admission import Webhook
from webhook.ingress_daemonset.cluster_lookup import ClusterLookup, PodTemplates
from webhook.ingress_daemonset.evictions import EvictionWebhook
from webhook.ingress_daemonset.webhook import DefaultingWebhook, ValidatingWebhook


def predicted(inventory: Inventory) -> Make:
    """Its webhooks, which read ports and templates only when an IngressDaemonSet is judged."""
    lookup, templates = ClusterLookup(inventory.client), PodTemplates(inventory.client)

    def webhooks(snapshot: Snapshot, _: RecordingLedger) -> Sequence[Webhook]:
        def settings() -> IngressDaemonSetSettings:
            return snapshot.settings.ingress_daemonset

        return (
            EvictionWebhook(settings, snapshot, lambda: snapshot.now),
            DefaultingWebhook(settings),
            ValidatingWebhook(
                settings,
                lambda new, _: lookup.port_users(new, deadline()),
                lambda template, _: templates.problems(template, deadline()),
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
