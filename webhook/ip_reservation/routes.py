"""The webhooks of ip_reservation."""

from __future__ import annotations

from collections.abc import Sequence

from calico.ledger import Ledger
from calico.reservations import Reservations
from runtime import utc_now
from settings import IPReservationSettings
from webhook.admission import Webhook
from webhook.ip_reservation.reads import Cluster, SharedReads, UnreadPods
from webhook.ip_reservation.same_address_webhook import SameAddressWebhook
from webhook.ip_reservation.webhook import IPReservationWebhook
from webhook.replica import Replica


def webhooks(replica: Replica) -> Sequence[Webhook]:
    def settings() -> IPReservationSettings:
        return replica.settings().ip_reservation

    api_version = settings().calico_api_version
    reservations = Reservations(replica.client, api_version)
    unread = UnreadPods()

    def believes(addresses: int) -> bool:
        """Only API servers can send reviews, or it is one of a few."""
        return bool(replica.settings().webhook.client_ca) or unread.admits(addresses)

    ledger, cluster = Ledger(reservations, replica.name), Cluster(replica.client)
    return [
        IPReservationWebhook(cluster, ledger, settings, utc_now, believes=believes),
        SameAddressWebhook(cluster, SharedReads(replica.client, reservations, api_version), settings),
    ]
