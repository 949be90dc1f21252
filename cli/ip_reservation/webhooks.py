"""The webhooks of IP reservation, and what they read, as `explain` and `simulate` ask them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from api.same_address import CalicoIPAM
from cli.explain.kinds import snapshot_of
from cli.explain.prediction import Make, Objects, RecordingLedger, Snapshot
from cli.inventory import SECONDS, Inventory
from cli.ip_reservation.reservations import segments_if_any
from kube.errors import KubeError
from webhook.admission import Webhook
from webhook.ip_reservation.reads import calico_ipam
from webhook.ip_reservation.same_address_webhook import SameAddressWebhook
from webhook.ip_reservation.webhook import IPReservationWebhook


def predicted(_: Inventory) -> Make:
    """Its webhooks; what they would reserve is only recorded."""

    def webhooks(snapshot: Snapshot, ledger: RecordingLedger) -> Sequence[Webhook]:
        settings, now = lambda: snapshot.settings.ip_reservation, lambda: snapshot.now
        return (
            IPReservationWebhook(snapshot, ledger, settings, now, believes=lambda _: True),
            SameAddressWebhook(
                snapshot, lambda _: snapshot.segments, lambda _: snapshot.calico, settings, now
            ),
        )

    return webhooks


def snapshot_with_segments(inventory: Inventory, objects: Objects) -> Snapshot:
    """And what decides about promises to new pods."""
    segments, settings = segments_if_any(inventory), inventory.settings.ip_reservation
    # Its defaults where it cannot be read, and where nothing depends on it.
    calico = CalicoIPAM()
    if settings.same_address.enabled:
        with suppress(KubeError):
            calico = calico_ipam(inventory.client, settings.calico_api_version, SECONDS)
    return replace(snapshot_of(inventory, objects), segments=segments, calico=calico)
