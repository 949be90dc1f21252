"""The status as it is shown and printed."""

from __future__ import annotations

from datetime import datetime

from cli.output import Document


class Problem(Document, frozen=True):
    what: str
    way_out: str


class Program(Document, frozen=True):
    name: str
    ready: int
    wanted: int
    version: str


class Leader(Document, frozen=True):
    """*holder* is empty when no replica leads."""

    lease: str
    holder: str
    renewed: datetime | None


class WebhookConfiguration(Document, frozen=True):
    kind: str
    name: str
    webhooks: tuple[str, ...]
    failure_policies: tuple[str, ...]
    ca_expires: datetime | None


class Release(Document, frozen=True):
    address: str
    namespace: str
    pod: str
    reason: str
    expires_at: datetime


class IPReservation(Document, frozen=True):
    """Addresses that are reserved: *not_ended* ones do not count towards *limit*; the others go at their time.

    Of these the ends of pods are not stored: they exist, have just gone, or never were.
    """

    addresses: int
    not_ended: int
    limit: int
    by_reason: dict[str, int]
    next_releases: tuple[Release, ...]


class AnycastIP(Document, frozen=True):
    """Nodes that need an anycast IP: *tainted* ones wait for it."""

    nodes: int
    open: int
    tainted: tuple[str, ...]


class Elasticity(Document, frozen=True):
    pods: int
    gated: int
    local: int
    on_super_nodes: int
    super_nodes: int


class Rollout(Document, frozen=True):
    namespace: str
    name: str
    state: str
    desired_nodes: int
    updated_nodes: int
    ready_nodes: int
    detached_nodes: int
    message: str


class Settings(Document, frozen=True):
    in_force: bool
    features: dict[str, bool]
    refused: tuple[str, ...]


class Status(Document, frozen=True):
    """What is wrong comes first; None is a feature that is off, or that cannot be read."""

    namespace: str
    version: str
    problems: tuple[Problem, ...]
    programs: tuple[Program, ...]
    leader: Leader | None
    webhook_configurations: tuple[WebhookConfiguration, ...]
    certificate_expires: datetime | None
    settings: Settings
    ip_reservation: IPReservation | None = None
    anycast_ip: AnycastIP | None = None
    elasticity: Elasticity | None = None
    ingress_daemon_sets: tuple[Rollout, ...] | None = None
