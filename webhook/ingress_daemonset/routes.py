"""The webhooks of ingress_daemonset."""

from __future__ import annotations

from collections.abc import Sequence

from runtime import utc_now
from settings import IngressDaemonSetSettings
from webhook.admission import Webhook
from webhook.features import Server
from webhook.ingress_daemonset.cluster_lookup import ClusterLookup
from webhook.ingress_daemonset.evictions import EvictionWebhook
from webhook.ingress_daemonset.openapi import PodTemplates
from webhook.ingress_daemonset.webhook import DefaultingWebhook, ValidatingWebhook


def webhooks(server: Server) -> Sequence[Webhook]:
    def settings() -> IngressDaemonSetSettings:
        return server.settings().ingress_daemonset

    cluster = ClusterLookup(server.client)
    return [
        DefaultingWebhook(settings),
        ValidatingWebhook(settings, cluster.port_users, PodTemplates(server.client).problems),
        EvictionWebhook(settings, cluster, utc_now),
    ]
