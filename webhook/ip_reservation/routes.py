"""The webhooks of ip_reservation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from calico.ledger import Ledger
from calico.reservations import Reservations
from runtime import utc_now
from settings import IPReservationSettings
from webhook.admission import Webhook
from webhook.ip_reservation.reads import Cluster, Shared, UnreadPods, calico_ipam, epoch_of_configuration
from webhook.ip_reservation.same_address_webhook import SameAddressWebhook
from webhook.ip_reservation.webhook import IPReservationWebhook
from webhook.replica import Replica

CONFIG_SECONDS = 30.0
"""For how long Calico's configuration is cached: it hardly ever changes."""
EPOCH_SECONDS = 1.0
"""For how long the epoch is cached: about as long as API servers cache the match condition that has it."""


def webhooks(replica: Replica) -> Sequence[Webhook]:
    def settings() -> IPReservationSettings:
        return replica.settings().ip_reservation

    api_version = settings().calico_api_version
    reservations = Reservations(replica.client, api_version)
    unread = UnreadPods()

    def believes(addresses: int) -> bool:
        """Only API servers can send reviews, or it is one of a few."""
        return bool(replica.settings().webhook.client_ca) or unread.admits(addresses)

    name = replica.settings().certs.configuration_name
    condition = Shared(partial(epoch_of_configuration, replica.client, name), max_age=EPOCH_SECONDS)

    def epoch(deadline: float) -> str | None:
        return condition.value(deadline) if settings().standing.enabled else None

    ledger, cluster = Ledger(reservations, replica.name), Cluster(replica.client)
    segments = Shared(lambda timeout: reservations.list(timeout=timeout))
    of_calico = Shared(partial(calico_ipam, replica.client, api_version), max_age=CONFIG_SECONDS)
    return [
        IPReservationWebhook(cluster, ledger, settings, utc_now, believes, epoch),
        SameAddressWebhook(cluster, segments.value, of_calico.value, settings),
    ]
