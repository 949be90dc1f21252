"""The webhooks of elasticity in `explain` and `simulate`, and how long the Lease says that there has been no leader."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from cli.explain.prediction import Make, RecordingLedger, Snapshot
from cli.installation import Lease
from cli.inventory import Inventory
from kube.errors import KubeError
from kube.resources import LEASES
from settings import ElasticitySettings, LeaderElection
from webhook.admission import Webhook
from webhook.elasticity.daemon_sets import DaemonSetWebhook
from webhook.elasticity.webhook import PlacementWebhook


def predicted(inventory: Inventory) -> Make:
    """Its webhooks, which read the Lease only when a pod is to be gated."""

    def webhooks(snapshot: Snapshot, _: RecordingLedger) -> Sequence[Webhook]:
        def settings() -> ElasticitySettings:
            return snapshot.settings.elasticity

        def absence(_: float) -> float:
            return absence_of_leader(inventory, snapshot.settings.leader_election)

        return PlacementWebhook(settings, absence), DaemonSetWebhook(settings)

    return webhooks


def absence_of_leader(inventory: Inventory, election: LeaderElection) -> float:
    """As webhooks that run for long count it: seconds since its Lease expired; 0 where that is not known.

    They see the Lease change, or not; one read has to go by its time, and by a clock that may be off.
    """
    if not election.leader_elect:
        return 0.0
    try:
        lease = inventory.get(LEASES, election.resource_name, election.resource_namespace, Lease)
    except KubeError:
        return 0.0
    now, renewed = inventory.now(), lease.renewed
    lasts = timedelta(seconds=lease.spec.lease_duration_seconds or 0)
    if renewed is None:
        return 0.0
    if abs(now - renewed) > lasts:
        now = inventory.cluster.server_time() or now
    return max(0.0, (now - renewed - lasts).total_seconds())
