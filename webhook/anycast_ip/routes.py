"""The webhooks of anycast_ip."""

from __future__ import annotations

from collections.abc import Sequence

from webhook.admission import Webhook
from webhook.anycast_ip.webhook import AnycastIPWebhook
from webhook.features import Server


def webhooks(server: Server) -> Sequence[Webhook]:
    return [AnycastIPWebhook(lambda: server.settings().anycast_ip)]
