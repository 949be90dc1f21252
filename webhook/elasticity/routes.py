"""The webhooks of elasticity."""

from __future__ import annotations

from collections.abc import Sequence

from webhook.admission import Webhook
from webhook.elasticity.daemon_sets import DaemonSetWebhook
from webhook.elasticity.leader import LeaseReader
from webhook.elasticity.webhook import PlacementWebhook
from webhook.replica import Replica


def webhooks(replica: Replica) -> Sequence[Webhook]:
    leader = LeaseReader(replica.client, lambda: replica.settings().leader_election)
    return [
        PlacementWebhook(lambda: replica.settings().elasticity, leader.absence),
        DaemonSetWebhook(lambda: replica.settings().elasticity),
    ]
