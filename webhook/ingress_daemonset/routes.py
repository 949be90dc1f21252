"""The webhooks of ingress_daemonset."""

from __future__ import annotations

from collections.abc import Sequence

from runtime import utc_now
from settings import IngressDaemonSetSettings
from webhook.admission import Webhook
from webhook.ingress_daemonset.cluster_lookup import ClusterLookup, PodTemplates
from webhook.ingress_daemonset.evictions import EvictionWebhook
from webhook.ingress_daemonset.webhook import DefaultingWebhook, ValidatingWebhook
from webhook.replica import Replica


def webhooks(replica: Replica) -> Sequence[Webhook]:
    def settings() -> IngressDaemonSetSettings:
        return replica.settings().ingress_daemonset

    cluster = ClusterLookup(replica.client)
    return [
        DefaultingWebhook(settings),
        ValidatingWebhook(settings, cluster.port_users, PodTemplates(replica.client).problems),
        EvictionWebhook(settings, cluster, utc_now),
    ]
