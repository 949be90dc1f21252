"""The webhooks of anycast_ip."""

from __future__ import annotations

from collections.abc import Sequence

from features import Replica
from webhook.admission import Webhook
from webhook.anycast_ip.webhook import AnycastIPWebhook


def webhooks(replica: Replica) -> Sequence[Webhook]:
    return [AnycastIPWebhook(lambda: replica.settings().anycast_ip)]
