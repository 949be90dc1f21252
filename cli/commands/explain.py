"""`drawbridge explain`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from ipaddress import ip_address
from typing import Any

import click
import msgspec

from api.ingress_daemonset import INGRESS_DAEMONSETS, NODE_LABEL
from api.ingress_daemonset.node_matching import FollowedNode
from api.ingress_daemonset.template import readable
from api.ingress_daemonset.types import IngressDaemonSet
from api.same_address import CalicoIPAM
from calico.ipam_config import ipam_configuration
from calico.pools import ip_pools
from calico.reservations import NotServed, Reservations
from calico.segment import IPReservation, Record, canonical
from cli.cluster import Cluster
from cli.errors import Failure
from cli.explain import ingress_daemonset, ip, node, pod
from cli.explain.answers import Event
from cli.explain.foresight import BUDGETS, Budget, Lookups, Objects, Snapshot
from cli.explain.ingress_daemonset import IngressDaemonSetFacts
from cli.explain.ip import IPFacts
from cli.explain.matching import CONFIGURATIONS, RegisteredWebhook, WebhookConfiguration
from cli.explain.node import NodeFacts
from cli.explain.pod import PodFacts
from cli.inventory import assigned, installed, past
from cli.output import Part
from cli.pools import AddressInCalico, Past
from cli.session import Commands, Session, pass_session
from controllers.ip_reservation.release_planner import Life, life_of
from kube.errors import Forbidden, KubeError, NotFound
from kube.resources import EVENTS, NAMESPACES, NODES, PODS
from kube.types import Pod
from runtime import time
from settings import Settings
from webhook.elasticity.leader import LeaseReader
from webhook.ingress_daemonset.cluster_lookup import ClusterLookup, PodTemplates
from webhook.ingress_daemonset.evictions import owner_of


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
    facts = explained.read(Reader(session.cluster), session.namespace, name)
    session.output.show(explained.explain(facts), explained.parts)


@dataclass(frozen=True)
class Kind:
    """*read* the facts of an object by its namespace and name; KubeError, Failure. The rest are functions of them."""

    read: Callable[[Reader, str, str], Any]
    explain: Callable[[Any], Any]
    parts: Callable[[Any], Iterable[Part]]
    namespaced: bool = True


def _ip(reader: Reader, _namespace: str, address: str) -> ip.IPFacts:
    try:
        canonical = str(ip_address(address))
    except ValueError:
        raise Failure(f"{address!r} is no IP address", "write for example 10.0.0.5") from None
    return reader.ip(canonical)


Raw = dict[str, Any]
SECONDS = 30.0


@dataclass(frozen=True)
class Installation:
    """The *webhooks* of the cluster, and Drawbridge's *settings* in force and its *namespace*."""

    webhooks: Sequence[RegisteredWebhook]
    settings: Settings
    namespace: str = ""


class Reader:
    """All methods raise KubeError, or Failure where Drawbridge is not installed."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.client = cluster, cluster.client

    @cached_property
    def installation(self) -> Installation:
        ours = installed(self.cluster)
        settings = ours.settings
        if settings is None:
            raise Failure(
                "the settings of Drawbridge cannot be read, and they decide",
                "see drawbridge status for the cause",
            )
        found = [
            webhook
            for resource in CONFIGURATIONS.values()
            for each in self.client.list(resource, type=WebhookConfiguration).items
            for webhook in each.webhooks
        ]
        return Installation(found, settings, ours.namespace)

    def snapshot(self, objects: Objects) -> Snapshot:
        settings = self.installation.settings
        absence = LeaseReader(self.client, lambda: settings.leader_election, now=self.cluster.now).absence(
            _deadline()
        )
        now, lookups = self.cluster.now(), self._lookups()
        return Snapshot(settings, self.installation.webhooks, objects, now, absence, lookups)

    def snapshot_with(self, segments: Sequence[IPReservation], objects: Objects) -> Snapshot:
        """And with what decides about promises to new pods."""
        return replace(self.snapshot(objects), segments=segments, calico=self.of_calico())

    def pod(self, namespace: str, name: str) -> PodFacts:
        """Failure when there is no such pod, no reservation for it and no Event about it."""
        segments = self.segments()
        records = [each for each in _records(segments) if (each.namespace, each.pod) == (namespace, name)]
        events = self.events(namespace, f"involvedObject.kind=Pod,involvedObject.name={name}")
        pod = self._pod(namespace, name)
        if pod is None and not records and not events:
            raise Failure(
                f"there is no pod {namespace}/{name}, no reservation for it and no Event about it",
                "check its name and its namespace (-n); of its IP, see drawbridge explain ip IP",
            )
        objects = replace(self.objects([pod] if pod else []), budgets=self.budgets(namespace))
        snapshot = self.snapshot_with(segments, objects)
        return PodFacts(f"{namespace}/{name}", pod, snapshot, segments, self.lives(records), events)

    def ip(self, ip: str) -> IPFacts:
        segments, cidr = self.segments(), canonical(ip)
        records = [each for each in _records(segments) if each.cidr == cidr]
        pods = self.client.list(PODS, field_selector=f"status.podIP={ip}").items
        snapshot = self.snapshot(self.objects(pods))
        events = self._events_about(segments, ip)
        of_calico = replace(assigned(self.cluster, ip) if cidr else AddressInCalico(ip), past=self._past(ip))
        successors = self._successors(records)
        return IPFacts(of_calico, pods, snapshot, segments, self.lives(records), events, successors)

    def node(self, name: str) -> NodeFacts:
        node = self.client.get(NODES, name)
        events = self.events(None, f"involvedObject.kind=Node,involvedObject.name={name}")
        return NodeFacts(node, self.snapshot(Objects()), events)

    def ingress_daemonset(self, namespace: str, name: str) -> IngressDaemonSetFacts:
        raw = self.client.get(INGRESS_DAEMONSETS, name, namespace)
        try:
            resource = readable(raw)
        except msgspec.ValidationError as error:
            raise Failure(
                f"IngressDaemonSet {namespace}/{name} cannot be read, and the controllers ignore it: {error}",
                "correct that field; it is older than the schema of the CRD",
            ) from error
        pods = [
            each
            for each in self.client.list(PODS, namespace, label_selector=NODE_LABEL).items
            if owner_of(msgspec.json.decode(msgspec.json.encode(each), type=Pod), [resource])
        ]
        nodes = self.client.list(NODES, type=FollowedNode).items
        around = self.objects_in([namespace])
        around = replace(around, pods=self.objects(pods).pods, budgets=self.budgets(namespace))
        about = f"involvedObject.kind=IngressDaemonSet,involvedObject.name={name}"
        events = self.events(namespace, about)
        return IngressDaemonSetFacts(raw, resource, nodes, pods, self.snapshot(around), events)

    def objects(self, pods: Iterable[Raw]) -> Objects:
        """*pods*, and what the webhooks read about them."""
        by_key = {f"{each['metadata']['namespace']}/{each['metadata']['name']}": each for each in pods}
        around = self.objects_in({each.partition("/")[0] for each in by_key})
        return replace(around, pods=by_key)

    def objects_in(self, names: Iterable[str]) -> Objects:
        """Of these namespaces, without pods."""
        namespaces = {name: self.client.get(NAMESPACES, name) for name in sorted(names)}
        found = [each for name in namespaces for each in self.ingress_daemonsets(name)]
        return Objects(namespaces=namespaces, ingress_daemonsets=found)

    def budgets(self, namespace: str) -> Sequence[Budget] | None:
        """None where they may not be read."""
        try:
            return self.client.list(BUDGETS, namespace, type=Budget).items
        except Forbidden:
            return None

    def segments(self) -> Sequence[IPReservation]:
        """None where Calico is not installed."""
        try:
            version = self.installation.settings.ip_reservation.calico_api_version
            return Reservations(self.client, version).list()
        except (NotServed, NotFound):
            return ()

    def of_calico(self) -> CalicoIPAM:
        """Its defaults where it cannot be read, and where nothing depends on it."""
        settings = self.installation.settings.ip_reservation
        if not settings.same_address.enabled:
            return CalicoIPAM()
        version = settings.calico_api_version
        try:
            configuration = ipam_configuration(self.client, version, timeout=SECONDS)
            return CalicoIPAM(configuration, ip_pools(self.client, version, timeout=SECONDS))
        except KubeError:
            return CalicoIPAM()

    def ingress_daemonsets(self, namespace: str | None) -> Sequence[IngressDaemonSet]:
        """None where its CRD is not installed."""
        try:
            return list(ClusterLookup(self.client).ingress_daemonsets(namespace, deadline=_deadline()))
        except NotFound:
            return ()

    def lives(self, records: Iterable[Record]) -> Mapping[str, Life]:
        """Of the pods of *records*, by uid."""
        return {each.uid: self._life(each) for each in records if each.uid}

    def events(self, namespace: str | None, field_selector: str) -> Sequence[Event]:
        return self.client.list(EVENTS, namespace, type=Event, field_selector=field_selector).items

    def _events_about(self, segments: Sequence[IPReservation], ip: str) -> Sequence[Event]:
        """On segments, and on pods that it came to: they name their addresses."""
        if not segments:
            return ()
        found = [
            *self.events(None, "involvedObject.kind=IPReservation"),
            *self.events(None, "reason=AddressSwapped"),
        ]
        return [each for each in found if ip in each.message.replace(",", " ").split()]

    def _past(self, ip: str) -> Past:
        ours = self.installation
        return past(self.cluster, ours.namespace, ours.settings.ip_reservation.pools, ip, self.cluster.now())

    def _lookups(self) -> Lookups:
        """Read only when an IngressDaemonSet is judged."""
        lookup, templates = ClusterLookup(self.client), PodTemplates(self.client)
        return Lookups(
            lambda new, _: lookup.port_users(new, _deadline()),
            lambda template, _: templates.problems(template, _deadline()),
        )

    def _life(self, record: Record) -> Life:
        try:
            pod = self.client.get(PODS, record.pod, record.namespace, type=Pod)
        except NotFound:
            return Life.GONE
        return life_of(pod) if pod.metadata.uid == record.uid else Life.GONE

    def _successors(self, records: Iterable[Record]) -> Sequence[Pod]:
        """The pods that have taken the places of StatefulSets' pods; without same addresses no record says of any."""
        places = {(each.namespace, each.pod) for each in records if each.owner_uid}
        found = [self._pod(*each) for each in sorted(places)]
        return [msgspec.convert(each, Pod) for each in found if each]

    def _pod(self, namespace: str, name: str) -> Raw | None:
        try:
            return self.client.get(PODS, name, namespace)
        except NotFound:
            return None


def _records(segments: Iterable[IPReservation]) -> Iterable[Record]:
    return (record for segment in segments if segment.ours for record in segment.records)


def _deadline() -> float:
    return time.monotonic() + SECONDS


KINDS = {
    "pod": Kind(Reader.pod, pod.explain, pod.parts),
    "ip": Kind(_ip, ip.explain, ip.parts, namespaced=False),
    "node": Kind(
        lambda reader, _namespace, name: reader.node(name), node.explain, node.parts, namespaced=False
    ),
    "ingressdaemonset": Kind(Reader.ingress_daemonset, ingress_daemonset.explain, ingress_daemonset.parts),
}
