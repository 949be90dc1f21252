"""`drawbridge explain`: the kinds of objects that it explains, and what is read for each. Nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from ipaddress import ip_address
from typing import Any

import click
import msgspec

from api.ingress_daemonset import INGRESS_DAEMONSETS, NODE_LABEL
from api.ingress_daemonset.node_matching import FollowedNode
from api.ingress_daemonset.template import readable
from api.ingress_daemonset.types import IngressDaemonSet
from api.ip_history import NAME as HISTORY
from api.ip_history import StoredHistory
from api.same_address import CalicoIPAM
from calico.ipam_config import ipam_configuration
from calico.pools import BLOCKS, AssignedBlock, IPPool, ip_pools, located
from calico.reservations import NotServed
from calico.segment import IPReservation, Record, canonical
from cli.errors import Failure, unreadable
from cli.explain import ingress_daemonset, ip, node, pod
from cli.explain.answers import Event
from cli.explain.foresight import BUDGETS, Budget, Lookups, Objects, Snapshot
from cli.explain.ip import OFF, AddressInCalico, Assignment, Past, assignment_of, block_name, past_of
from cli.inventory import SECONDS, Inventory
from cli.output import Part
from cli.session import Commands, Session, pass_session
from controllers.ip_reservation.release_planner import Life, life_of
from kube.errors import Forbidden, KubeError, NotFound
from kube.resources import CONFIG_MAPS, EVENTS, NAMESPACES, NODES, PODS, Selection
from kube.types import Pod
from runtime import time
from webhook.elasticity.leader import LeaseReader
from webhook.ingress_daemonset.cluster_lookup import ClusterLookup, PodTemplates
from webhook.ingress_daemonset.evictions import owner_of

Raw = dict[str, Any]


@click.group(cls=Commands)
def explain() -> None:
    """Why an object is treated as it is, and what would happen to it now. Nothing is written."""


@explain.command("pod")
@click.argument("name")
@pass_session
def explain_pod(session: Session, name: str) -> None:
    """Which webhooks concern a pod, what its deletion, eviction or creation would do, and why."""
    _show(session, "pod", name)


@explain.command("ip")
@click.argument("address")
@pass_session
def explain_ip(session: Session, address: str) -> None:
    """Who has an IP, and had it before, whether it is reserved, why, and until when."""
    _show(session, "ip", address)


@explain.command("node")
@click.argument("name")
@pass_session
def explain_node(session: Session, name: str) -> None:
    """Whether a node needs an anycast IP and is open, and what admission does to a change of it."""
    _show(session, "node", name)


@explain.command("ingressdaemonset")
@click.argument("name")
@pass_session
def explain_ingress_daemonset(session: Session, name: str) -> None:
    """Whether today's rules accept it, which nodes it matches, and what evictions wait for."""
    _show(session, "ingressdaemonset", name)


def _show(session: Session, kind: str, name: str) -> None:
    explained = KINDS[kind]
    facts = explained.read(Inventory(session.cluster), session.namespace, name)
    session.output.show(explained.explain(facts), explained.parts)


def facts_of_pod(inventory: Inventory, namespace: str, name: str) -> pod.PodFacts:
    """Failure when there is no such pod, no reservation for it and no Event about it."""
    segments = segments_of(inventory)
    records = [each for each in _records(segments) if (each.namespace, each.pod) == (namespace, name)]
    events = _events(inventory, namespace, f"involvedObject.kind=Pod,involvedObject.name={name}")
    found = _pod(inventory, namespace, name)
    if found is None and not records and not events:
        raise Failure(
            f"there is no pod {namespace}/{name}, no reservation for it and no Event about it",
            "check its name and its namespace (-n); of its IP, see drawbridge explain ip IP",
        )
    objects = replace(
        objects_about(inventory, [found] if found else []), budgets=_budgets(inventory, namespace)
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


def facts_of_node(inventory: Inventory, _namespace: str, name: str) -> node.NodeFacts:
    found = inventory.get(NODES, name, None, Raw)
    events = _events(inventory, None, f"involvedObject.kind=Node,involvedObject.name={name}")
    return node.NodeFacts(found, snapshot_of(inventory, Objects()), events)


def facts_of_ingress_daemonset(
    inventory: Inventory, namespace: str, name: str
) -> ingress_daemonset.IngressDaemonSetFacts:
    raw = inventory.get(INGRESS_DAEMONSETS, name, namespace, Raw)
    try:
        resource = readable(raw)
    except msgspec.ValidationError as error:
        raise Failure(
            f"IngressDaemonSet {namespace}/{name} cannot be read, and the controllers ignore it: {error}",
            "correct that field; it is older than the schema of the CRD",
        ) from error
    pods = [
        each
        for each in inventory.list(PODS, Raw, Selection(namespace, label_selector=NODE_LABEL))
        if owner_of(msgspec.json.decode(msgspec.json.encode(each), type=Pod), [resource])
    ]
    nodes = inventory.list(NODES, FollowedNode)
    around = replace(
        objects_in(inventory, [namespace]),
        pods=objects_about(inventory, pods).pods,
        budgets=_budgets(inventory, namespace),
    )
    events = _events(inventory, namespace, f"involvedObject.kind=IngressDaemonSet,involvedObject.name={name}")
    return ingress_daemonset.IngressDaemonSetFacts(
        raw, resource, nodes, pods, snapshot_of(inventory, around), events
    )


@dataclass(frozen=True)
class Kind:
    """*read* the facts of an object by its namespace and name; KubeError, Failure. The rest are functions of them."""

    read: Callable[[Inventory, str, str], Any]
    explain: Callable[[Any], Any]
    parts: Callable[[Any], Iterable[Part]]
    namespaced: bool = True


KINDS = {
    "pod": Kind(facts_of_pod, pod.explain, pod.parts),
    "ip": Kind(facts_of_ip, ip.explain, ip.parts, namespaced=False),
    "node": Kind(facts_of_node, node.explain, node.parts, namespaced=False),
    "ingressdaemonset": Kind(facts_of_ingress_daemonset, ingress_daemonset.explain, ingress_daemonset.parts),
}


def snapshot_of(inventory: Inventory, objects: Objects) -> Snapshot:
    """What the webhooks decide by, about *objects*."""
    settings = inventory.settings
    lease = LeaseReader(inventory.client, lambda: settings.leader_election, now=inventory.now)
    absence = lease.absence(_deadline())
    webhooks = inventory.configurations.webhooks
    return Snapshot(settings, webhooks, objects, inventory.now(), absence, _lookups(inventory))


def snapshot_with_segments(inventory: Inventory, objects: Objects) -> Snapshot:
    """And what decides about promises to new pods."""
    segments = segments_of(inventory)
    return replace(snapshot_of(inventory, objects), segments=segments, calico=_of_calico(inventory))


def objects_about(inventory: Inventory, pods: Iterable[Raw]) -> Objects:
    """*pods*, and what the webhooks read about them."""
    by_key = {f"{each['metadata']['namespace']}/{each['metadata']['name']}": each for each in pods}
    return replace(objects_in(inventory, {key.partition("/")[0] for key in by_key}), pods=by_key)


def objects_in(inventory: Inventory, names: Iterable[str]) -> Objects:
    """Of these namespaces, without pods."""
    namespaces = {name: inventory.get(NAMESPACES, name, None, Raw) for name in sorted(names)}
    found = [each for name in namespaces for each in ingress_daemonsets_of(inventory, name)]
    return Objects(namespaces=namespaces, ingress_daemonsets=found)


def ingress_daemonsets_of(inventory: Inventory, namespace: str | None) -> Sequence[IngressDaemonSet]:
    """None where its CRD is not installed."""
    try:
        return list(ClusterLookup(inventory.client).ingress_daemonsets(namespace, deadline=_deadline()))
    except NotFound:
        return ()


def segments_of(inventory: Inventory) -> Sequence[IPReservation]:
    """None where Calico is not installed; Failure where the settings cannot be read."""
    _ = inventory.settings
    try:
        return inventory.segments()
    except (NotServed, NotFound):
        return ()


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
        block = inventory.get(resource, block_name(address, pool.spec.block_size), None, AssignedBlock)
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


def _budgets(inventory: Inventory, namespace: str) -> Sequence[Budget] | None:
    """None where they may not be read."""
    try:
        return inventory.list(BUDGETS, Budget, Selection(namespace))
    except Forbidden:
        return None


def _events(inventory: Inventory, namespace: str | None, field_selector: str) -> Sequence[Event]:
    return inventory.list(EVENTS, Event, Selection(namespace, field_selector=field_selector))


def _events_about_address(
    inventory: Inventory, segments: Sequence[IPReservation], address: str
) -> Sequence[Event]:
    """On segments, and on pods that it came to: they name their addresses."""
    if not segments:
        return ()
    found = [
        *_events(inventory, None, "involvedObject.kind=IPReservation"),
        *_events(inventory, None, "reason=AddressSwapped"),
    ]
    return [event for event in found if address in event.message.replace(",", " ").split()]


def _lookups(inventory: Inventory) -> Lookups:
    """Read only when an IngressDaemonSet is judged."""
    lookup, templates = ClusterLookup(inventory.client), PodTemplates(inventory.client)
    return Lookups(
        lambda new, _: lookup.port_users(new, _deadline()),
        lambda template, _: templates.problems(template, _deadline()),
    )


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


def _deadline() -> float:
    return time.monotonic() + SECONDS
