"""The webhooks of IP reservation, and what they read, as `explain` and `simulate` ask them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from api.same_address import CalicoIPAM
from calico.segment import IPReservation, Record
from cli.explain.kinds import snapshot_of
from cli.explain.prediction import Make, Objects, RecordingLedger, Snapshot
from cli.inventory import SECONDS, Inventory
from cli.ip_reservation.reservations import segments_if_any
from controllers.ip_reservation.release_planner import Life, life_of
from kube.errors import KubeError, NotFound
from kube.resources import PODS
from kube.types import Pod
from webhook.admission import Webhook
from webhook.ip_reservation.reads import calico_ipam
from webhook.ip_reservation.same_address_webhook import SameAddressWebhook
from webhook.ip_reservation.webhook import IPReservationWebhook

Raw = dict[str, Any]


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
    segments = segments_if_any(inventory)
    return replace(snapshot_of(inventory, objects), segments=segments, calico=_of_calico(inventory))


def _of_calico(inventory: Inventory) -> CalicoIPAM:
    """Its defaults where it cannot be read, and where nothing depends on it."""
    settings = inventory.settings.ip_reservation
    if not settings.same_address.enabled:
        return CalicoIPAM()
    client, version = inventory.client, settings.calico_api_version
    try:
        return calico_ipam(client, version, SECONDS)
    except KubeError:
        return CalicoIPAM()


def records_of(segments: Iterable[IPReservation]) -> Sequence[Record]:
    return [record for segment in segments if segment.ours for record in segment.records]


def pod_of(inventory: Inventory, namespace: str, name: str) -> Raw | None:
    try:
        return inventory.get(PODS, name, namespace, Raw)
    except NotFound:
        return None


def lives_of(inventory: Inventory, records: Iterable[Record]) -> Mapping[str, Life]:
    """Of the pods of *records*, by uid."""
    return {record.uid: _life(inventory, record) for record in records if record.uid}


def _life(inventory: Inventory, record: Record) -> Life:
    raw = pod_of(inventory, record.namespace, record.pod)
    found = msgspec.convert(raw, Pod) if raw else None
    return life_of(found) if found and found.metadata.uid == record.uid else Life.GONE
