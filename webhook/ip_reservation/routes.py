"""The webhooks of ip_reservation."""

from __future__ import annotations

from collections.abc import Sequence

from calico.ledger import Ledger
from calico.reservations import Reservations
from settings import IPReservationSettings
from webhook.admission import Webhook
from webhook.features import Server
from webhook.ip_reservation.namespace_cache import Cluster
from webhook.ip_reservation.webhook import IPReservationWebhook


def webhooks(server: Server) -> Sequence[Webhook]:
    def settings() -> IPReservationSettings:
        return server.settings().ip_reservation

    reservations = Reservations(server.client, settings().calico_api_version)
    ledger = Ledger(reservations, server.replica, settings)
    return [IPReservationWebhook(Cluster(server.client), ledger, settings)]
