"""The webhooks of ingress_daemonset."""

from __future__ import annotations

from collections.abc import Sequence

from settings import IngressDaemonSetSettings
from webhook.admission import Webhook
from webhook.features import Server
from webhook.ingress_daemonset.conflict_lookup import Cluster
from webhook.ingress_daemonset.eviction_lookup import EvictionLookup
from webhook.ingress_daemonset.evictions import Evictions
from webhook.ingress_daemonset.openapi import PodTemplates
from webhook.ingress_daemonset.webhook import Defaults, Rules


def webhooks(server: Server) -> Sequence[Webhook]:
    def settings() -> IngressDaemonSetSettings:
        return server.settings().ingress_daemonset

    client = server.client
    return [
        Defaults(settings),
        Rules(settings, Cluster(client), PodTemplates(client)),
        Evictions(settings, EvictionLookup(client)),
    ]
