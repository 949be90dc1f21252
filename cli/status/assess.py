"""From what was read to the status: a function of values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from api.anycast_ip import is_tainted, wanted
from calico.segment import IPReservation as Segment
from certs.ca_bundle import certificates_in, decoded
from certs.issue import not_after
from cli.installed.types import COMPONENT, VERSION, Configuration, Installed, Lease
from cli.reservations.records import address_of, by_address, kept_by, release_at, unmanaged_entries
from cli.status.facts import Facts, PodCounts, Rolled
from cli.status.problems import problems_of
from cli.status.types import (
    AnycastIP,
    Elasticity,
    IPReservation,
    Leader,
    Program,
    Release,
    Rollout,
    Settings,
    Status,
    WebhookConfiguration,
)
from kube.types import Node, key_of
from settings import AnycastIPSettings, IPReservationSettings

NEXT = 5
"""Releases that are shown."""


def status_of(facts: Facts, now: datetime) -> Status:
    status = _assessed(facts, now)
    return replace(status, problems=tuple(problems_of(facts, status, now)))


def _assessed(facts: Facts, now: datetime) -> Status:
    ours, settings = facts.installed, facts.installed.in_force
    return Status(
        ours.namespace,
        ours.version,
        (),
        tuple(_programs(ours)),
        _leader(facts, now),
        tuple(_configuration(kind, each) for kind, each in ours.configurations()),
        expiry(facts.certificate) if isinstance(facts.certificate, bytes) else None,
        _settings(ours),
        _reserved(facts.segments, settings.ip_reservation) if isinstance(facts.segments, list) else None,
        _anycast(facts.nodes, settings.anycast_ip) if isinstance(facts.nodes, list) else None,
        _elasticity(facts.pods) if isinstance(facts.pods, PodCounts) else None,
        tuple(map(rollout_of, facts.rollouts)) if isinstance(facts.rollouts, list) else None,
    )


def _leader(facts: Facts, now: datetime) -> Leader | None:
    if not facts.installed.in_force.leader_election.leader_elect:
        return Leader("", "no leader election", None)
    return leader_of(facts.lease, now) if isinstance(facts.lease, Lease) else None


def leader_of(lease: Lease, now: datetime) -> Leader:
    """Its holder leads while it renews the Lease; the clocks of two machines may differ by another duration."""
    renewed = _moment(lease.spec.renew_time)
    lasts = timedelta(seconds=2 * (lease.spec.lease_duration_seconds or 0))
    leads = renewed is not None and now - renewed <= lasts
    return Leader(key_of(lease.metadata), (lease.spec.holder_identity or "") if leads else "", renewed)


def expiry(certificate: bytes) -> datetime | None:
    try:
        return not_after(certificate)
    except ValueError:
        return None


def authority_ends(configuration: Configuration) -> datetime | None:
    """When the first of its webhooks has no valid CA any more."""
    ends = [
        max(
            (ca.not_valid_after_utc for ca in certificates_in(decoded(each.client_config.ca_bundle))),
            default=None,
        )
        for each in configuration.webhooks
        if each.is_ours
    ]
    return min((each for each in ends if each), default=None)


def rollout_of(resource: Rolled) -> Rollout:
    status, progressing = resource.status, resource.condition("Progressing")
    return Rollout(
        resource.metadata.namespace,
        resource.metadata.name,
        progressing.get("reason", "Unknown"),
        desired_nodes=status.get("desiredNodes", 0),
        updated_nodes=status.get("updatedNodes", 0),
        ready_nodes=status.get("readyNodes", 0),
        detached_nodes=status.get("detachedNodes", 0),
        message=progressing.get("message", ""),
    )


def _programs(ours: Installed) -> list[Program]:
    return [
        Program(
            each.metadata.labels.get(COMPONENT, each.metadata.name),
            each.status.ready_replicas,
            each.spec.replicas,
            each.metadata.labels.get(VERSION, ""),
        )
        for each in sorted(ours.deployments, key=lambda each: each.metadata.name, reverse=True)
    ]


def _configuration(kind: str, configuration: Configuration) -> WebhookConfiguration:
    webhooks = [each for each in configuration.webhooks if each.is_ours]
    return WebhookConfiguration(
        kind,
        configuration.metadata.name,
        tuple(each.name for each in webhooks),
        tuple(sorted({each.failure_policy for each in webhooks})),
        authority_ends(configuration),
    )


def _settings(ours: Installed) -> Settings:
    settings = ours.in_force
    features = {
        "ipReservation": settings.ip_reservation.enabled,
        "anycastIP": settings.anycast_ip.enabled,
        "elasticity": settings.elasticity.enabled,
        "ingressDaemonSet": settings.ingress_daemonset.enabled,
    }
    return Settings(ours.settings is not None, features, tuple(ours.refused))


def _reserved(segments: Sequence[Segment], settings: IPReservationSettings) -> IPReservation:
    records = [record for record, _ in by_address(each for each in segments if each.ours).values()]
    others = unmanaged_entries(segments)
    releases = [
        Release(address_of(each.cidr), each.namespace, each.pod, each.reason, at)
        for each in records
        if (at := release_at(each, settings)) and not kept_by(each.cidr, others)
    ]
    return IPReservation(
        len(records),
        sum(each.ended is None for each in records),
        settings.ip_reserve_max_count,
        dict(Counter(each.reason or "unknown" for each in records).most_common()),
        tuple(sorted(releases, key=lambda each: each.expires_at)[:NEXT]),
    )


def _anycast(nodes: Sequence[Node], settings: AnycastIPSettings) -> AnycastIP | None:
    if not settings.enabled:
        return None
    selected = [each for each in nodes if wanted(each, settings)]
    tainted = sorted(each.metadata.name for each in selected if is_tainted(each))
    return AnycastIP(len(selected), len(selected) - len(tainted), tuple(tainted))


def _elasticity(pods: PodCounts) -> Elasticity:
    on_super_nodes = sum(pods.on_super_nodes.values())
    unplaced = sum(not each.spec.node_name for each in pods.pending)
    return Elasticity(
        pods.total,
        sum(each.is_gated for each in pods.pending),
        pods.total - on_super_nodes - unplaced,
        on_super_nodes,
        len(pods.on_super_nodes),
    )


def _moment(text: str | None) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
