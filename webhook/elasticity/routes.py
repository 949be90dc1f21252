"""The webhooks of elasticity."""

from __future__ import annotations

from collections.abc import Sequence

from webhook.admission import Webhook
from webhook.elasticity.daemon_sets import DaemonSetWebhook
from webhook.elasticity.leader import LeaseReader
from webhook.elasticity.webhook import PlacementWebhook
from webhook.features import Server


def webhooks(server: Server) -> Sequence[Webhook]:
    leader = LeaseReader(server.client, lambda: server.settings().leader_election)
    return [
        PlacementWebhook(lambda: server.settings().elasticity, leader.absence),
        DaemonSetWebhook(lambda: server.settings().elasticity),
    ]
