"""The webhooks of ip_reservation."""

from __future__ import annotations

from collections.abc import Sequence

from calico.ledger import Ledger
from calico.reservations import Reservations
from runtime import utc_now
from settings import IPReservationSettings
from webhook.admission import Webhook
from webhook.features import Server
from webhook.ip_reservation.namespace_cache import Cluster
from webhook.ip_reservation.same_address_webhook import SameAddressWebhook
from webhook.ip_reservation.shared_reads import SharedReads
from webhook.ip_reservation.webhook import IPReservationWebhook


def webhooks(server: Server) -> Sequence[Webhook]:
    def settings() -> IPReservationSettings:
        return server.settings().ip_reservation

    api_version = settings().calico_api_version
    reservations = Reservations(server.client, api_version)
    ledger, cluster = Ledger(reservations, server.replica), Cluster(server.client)
    return [
        IPReservationWebhook(
            cluster,
            ledger,
            settings,
            utc_now,
            knows_clients=lambda: bool(server.settings().webhook.client_ca),
        ),
        SameAddressWebhook(cluster, SharedReads(server.client, reservations, api_version), settings),
    ]
