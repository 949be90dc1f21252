"""What IP reservation adds to `explain` and `simulate`: how its webhooks answer, pods and IPs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from ipaddress import ip_address
from typing import Any

import msgspec

from api.ip_history import NAME as HISTORY
from api.ip_history import StoredHistory
from api.same_address import CalicoIPAM
from calico.ipam_config import ipam_configuration
from calico.pools import BLOCKS, IPAMBlock, IPPool, ip_pools, located
from calico.segment import IPReservation, Record, canonical
from cli.commands.explain import Kind, budgets_of, events_of, objects_about, segments_of, snapshot_of
from cli.errors import Failure, unreadable
from cli.explain import ip, pod
from cli.explain.answers import Event
from cli.explain.ip import OFF, AddressInCalico, Assignment, Past, assignment_of, block_name, past_of
from cli.explain.prediction import (
    Make,
    Objects,
    ReadFromSnapshot,
    RecordingLedger,
    ReservationsOfSnapshot,
    Snapshot,
)
from cli.inventory import SECONDS, Inventory
from controllers.ip_reservation.release_planner import Life, life_of
from kube.errors import KubeError, NotFound
from kube.resources import CONFIG_MAPS, PODS, Selection
from kube.types import Pod
from webhook.admission import Webhook
from webhook.ip_reservation.same_address_webhook import SameAddressWebhook
from webhook.ip_reservation.webhook import IPReservationWebhook

Raw = dict[str, Any]


def predicted(_: Inventory) -> Make:
    """Its webhooks; what they would reserve is only recorded."""

    def webhooks(snapshot: Snapshot, ledger: RecordingLedger) -> Sequence[Webhook]:
        cluster, reads = ReadFromSnapshot(snapshot.objects), ReservationsOfSnapshot(snapshot)
        settings, now = lambda: snapshot.settings.ip_reservation, lambda: snapshot.now
        return (
            IPReservationWebhook(cluster, ledger, settings, now, believes=lambda _: True),
            SameAddressWebhook(cluster, reads, settings, now),
        )

    return webhooks


def facts_of_pod(inventory: Inventory, namespace: str, name: str) -> pod.PodFacts:
    """Failure when there is no such pod, no reservation for it and no Event about it."""
    segments = segments_of(inventory)
    records = [each for each in _records(segments) if (each.namespace, each.pod) == (namespace, name)]
    events = events_of(inventory, namespace, f"involvedObject.kind=Pod,involvedObject.name={name}")
    found = _pod(inventory, namespace, name)
    if found is None and not records and not events:
        raise Failure(
            f"there is no pod {namespace}/{name}, no reservation for it and no Event about it",
            "check its name and its namespace (-n); of its IP, see drawbridge explain ip IP",
        )
    objects = replace(
        objects_about(inventory, [found] if found else []), budgets=budgets_of(inventory, namespace)
    )
    snapshot = snapshot_with_segments(inventory, objects)
    return pod.PodFacts(f"{namespace}/{name}", found, snapshot, segments, _lives(inventory, records), events)


def facts_of_ip(inventory: Inventory, _namespace: str, address: str) -> ip.IPFacts:
    try:
        known = str(ip_address(address))
    except ValueError:
        raise Failure(f"{address!r} is no IP address", "write for example 10.0.0.5") from None
    segments, cidr = segments_of(inventory), canonical(known)
    records = [each for each in _records(segments) if each.cidr == cidr]
    pods = inventory.list(PODS, Raw, Selection(field_selector=f"status.podIP={known}"))
    snapshot = snapshot_of(inventory, objects_about(inventory, pods))
    events = _events_about_address(inventory, segments, known)
    in_calico = address_in_calico(inventory, known) if cidr else AddressInCalico(known)
    in_calico = replace(in_calico, past=_past(inventory, known, inventory.now()))
    successors = _successors(inventory, records)
    return ip.IPFacts(in_calico, pods, snapshot, segments, _lives(inventory, records), events, successors)


def address_in_calico(inventory: Inventory, address: str) -> AddressInCalico:
    """Reads the pools, one block, and Calico's configuration."""
    try:
        pool = next((each for each in inventory.ip_pools() or () if each.has(address)), None)
        if pool is None:
            return AddressInCalico(address)
        found = _in_block(inventory, pool, address)
        cooldown = inventory.cluster.read({"cooldown": inventory.cooldown})["cooldown"]
        known = 0 if isinstance(cooldown, KubeError) else cooldown
        return AddressInCalico(address, pool.metadata.name, found, cooldown=known)
    except KubeError as error:
        return AddressInCalico(address, unknown=str(unreadable(error)))


def _in_block(inventory: Inventory, pool: IPPool, address: str) -> Assignment | None:
    resource = located(inventory.client, BLOCKS)
    if resource is None:
        return None
    try:
        block = inventory.get(resource, block_name(address, pool.spec.block_size), None, IPAMBlock)
    except NotFound:  # no node has it yet
        return None
    return assignment_of(block, address, pool.metadata.name)


def _past(inventory: Inventory, address: str, now: datetime) -> Past:
    """What cannot be read is unknown."""
    settings = inventory.settings.ip_reservation.pools
    if not settings.keeps_history:
        return Past(unknown=f"it is not kept: {OFF}")
    try:
        # A list by name: those who may list the settings of Drawbridge need no other permission.
        named = Selection(inventory.namespace, field_selector=f"metadata.name={HISTORY}")
        found = inventory.list(CONFIG_MAPS, StoredHistory, named)
        stored = next((each for each in found if each.ours), None)
        if stored is None:
            return Past(unknown="nothing is stored yet")
        return past_of(stored.history, settings, address, now)
    except KubeError as error:
        return Past(unknown=str(unreadable(error)))
    except ValueError as error:
        return Past(unknown=str(error))


def snapshot_with_segments(inventory: Inventory, objects: Objects) -> Snapshot:
    """And what decides about promises to new pods."""
    segments = segments_of(inventory)
    return replace(snapshot_of(inventory, objects), segments=segments, calico=_of_calico(inventory))


def _of_calico(inventory: Inventory) -> CalicoIPAM:
    """Its defaults where it cannot be read, and where nothing depends on it."""
    settings = inventory.settings.ip_reservation
    if not settings.same_address.enabled:
        return CalicoIPAM()
    client, version = inventory.client, settings.calico_api_version
    try:
        configuration = ipam_configuration(client, version, timeout=SECONDS)
        return CalicoIPAM(configuration, ip_pools(client, version, timeout=SECONDS))
    except KubeError:
        return CalicoIPAM()


def _events_about_address(
    inventory: Inventory, segments: Sequence[IPReservation], address: str
) -> Sequence[Event]:
    """On segments, and on pods that it came to: they name their addresses."""
    if not segments:
        return ()
    found = [
        *events_of(inventory, None, "involvedObject.kind=IPReservation"),
        *events_of(inventory, None, "reason=AddressSwapped"),
    ]
    return [event for event in found if address in event.message.replace(",", " ").split()]


def _lives(inventory: Inventory, records: Iterable[Record]) -> Mapping[str, Life]:
    """Of the pods of *records*, by uid."""
    return {record.uid: _life(inventory, record) for record in records if record.uid}


def _life(inventory: Inventory, record: Record) -> Life:
    raw = _pod(inventory, record.namespace, record.pod)
    found = msgspec.convert(raw, Pod) if raw else None
    return life_of(found) if found and found.metadata.uid == record.uid else Life.GONE


def _successors(inventory: Inventory, records: Iterable[Record]) -> Sequence[Pod]:
    """The pods that have taken the places of StatefulSets' pods; without same addresses no record says of any."""
    places = {(record.namespace, record.pod) for record in records if record.owner_uid}
    found = [_pod(inventory, *place) for place in sorted(places)]
    return [msgspec.convert(each, Pod) for each in found if each]


def _pod(inventory: Inventory, namespace: str, name: str) -> Raw | None:
    try:
        return inventory.get(PODS, name, namespace, Raw)
    except NotFound:
        return None


def _records(segments: Iterable[IPReservation]) -> Iterable[Record]:
    return (record for segment in segments if segment.ours for record in segment.records)


POD = Kind(
    "Which webhooks concern a pod, what its deletion, eviction or creation would do, and why.",
    facts_of_pod,
    pod.explain,
    pod.parts,
)
IP = Kind(
    "Who has an IP, and had it before, whether it is reserved, why, and until when.",
    facts_of_ip,
    ip.explain,
    ip.parts,
    namespaced=False,
    argument="ADDRESS",
)
