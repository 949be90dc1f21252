"""The webhooks of elasticity, as `explain` and `simulate` ask them."""

from __future__ import annotations

from collections.abc import Sequence

from cli.explain.kinds import deadline
from cli.explain.prediction import Make, RecordingLedger, Snapshot
from cli.inventory import Inventory
from settings import ElasticitySettings
from webhook.admission import Webhook
from webhook.elasticity.daemon_sets import DaemonSetWebhook
from webhook.elasticity.leader import LeaseReader
from webhook.elasticity.webhook import PlacementWebhook


def predicted(inventory: Inventory) -> Make:
    """Its webhooks, which ask for how long the controllers have had no leader."""
    election = inventory.settings.leader_election
    absence = LeaseReader(inventory.client, lambda: election, now=inventory.now).absence(deadline())

    def webhooks(snapshot: Snapshot, _: RecordingLedger) -> Sequence[Webhook]:
        def settings() -> ElasticitySettings:
            return snapshot.settings.elasticity

        return PlacementWebhook(settings, lambda _: absence), DaemonSetWebhook(settings)

    return webhooks
