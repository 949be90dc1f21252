"""The webhooks of anycast_ip."""

from __future__ import annotations

from collections.abc import Sequence

from kube.resources import NODES
from runtime import time
from settings import AnycastIPSettings
from webhook.admission import Webhook
from webhook.anycast_ip.pod_address import AddressedNode, PodAddressWebhook
from webhook.anycast_ip.webhook import AnycastIPWebhook
from webhook.replica import Replica

LEAST = 0.1
"""Seconds for a last attempt."""


def webhooks(replica: Replica) -> Sequence[Webhook]:
    def settings() -> AnycastIPSettings:
        return replica.settings().anycast_ip

    def node(name: str, deadline: float) -> AddressedNode:
        left = max(LEAST, deadline - time.monotonic())
        return replica.client.get(NODES, name, type=AddressedNode, timeout=left)

    pods = [PodAddressWebhook(node, settings, waits) for waits in (False, True)]
    return [AnycastIPWebhook(settings), *pods]
