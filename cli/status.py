"""All features at a glance: what was read of each, what is wrong with it and the way out, and how that is shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby

from msgspec.structs import replace
from rich.text import Text

from api.anycast_ip import TAINT, is_tainted, wanted
from api.ingress_daemonset.status import Progressing
from calico.segment import IPReservation as Segment
from certs.ca_bundle import certificates_in, decoded
from certs.issue import is_issued_by, not_after
from cli.errors import way_to_permission
from cli.installation import COMPONENT, CONTROLLERS, VERSION, WEBHOOK, Installed, Lease, WebhookConfiguration
from cli.objects import STOPPED, UNKNOWN, Pod, StoredResource
from cli.output import Cell, Document, Part, Table, age, bad, duration, faint, good, title, warning
from cli.pools import PoolFacts, headroom
from cli.reservations import address_of, by_address, kept_by, release_at, unmanaged_entries
from features import unregistered
from kube.errors import Forbidden, KubeError, NotFound
from kube.types import Node, ObjectMeta, key_of
from settings import AnycastIPSettings, IPReservationSettings

SOON = timedelta(days=7)
"""A certificate that ends within this time should have been renewed long ago."""
GATED, TAINTED = timedelta(minutes=1), timedelta(minutes=10)
"""How long a pod usually waits for its placement, and a node for its address, at most."""
LOW = 0.1
"""The share of a pool's addresses that should be free; the alert has the same."""
PAGE = "docs/how-to/troubleshooting.md"
CERTIFICATES = "docs/how-to/certificates.md"
RESTORE = "repair the cause; then helm upgrade creates it again: docs/how-to/break-glass.md"
WHAT_STOPPED: Mapping[str, str] = {
    Progressing.HALTED: "is halted",
    Progressing.CANARY_DEGRADED: "waits for its canary, which fails",
    Progressing.ROLLING_BACK: "has failed, and nodes return to the former template",
    Progressing.ROLLED_BACK: "has failed, and nodes have the former template",
}
NEXT = 5
"""Releases that are shown."""
DONE = (Progressing.COMPLETE, UNKNOWN)


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


class ConfigurationView(Document, frozen=True):
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
    webhook_configurations: tuple[ConfigurationView, ...]
    certificate_expires: datetime | None
    settings: Settings
    ip_reservation: IPReservation | None = None
    anycast_ip: AnycastIP | None = None
    elasticity: Elasticity | None = None
    ingress_daemon_sets: tuple[Rollout, ...] | None = None


@dataclass(frozen=True)
class PodCounts:
    """*pending* are those that have not started; *on_super_nodes* by super node; *total* is of the whole cluster."""

    total: int
    pending: Sequence[Pod]
    on_super_nodes: dict[str, int]


@dataclass(frozen=True)
class Facts:
    """None is what belongs to a feature that is off, and a *certificate* that was not to be read."""

    installed: Installed
    lease: Lease | KubeError
    certificate: bytes | KubeError | None
    segments: Sequence[Segment] | Exception | None = None
    nodes: Sequence[Node] | KubeError | None = None
    pods: PodCounts | KubeError | None = None
    rollouts: Sequence[StoredResource] | KubeError | None = None
    pools: PoolFacts | Exception | None = None


def problems_of(facts: Facts, status: Status, now: datetime) -> Iterator[Problem]:
    yield from webhooks(facts, status)
    yield from programs(status)
    yield from leader(facts, status, now)
    yield from certificates(facts, status, now)
    yield from settings(status)
    yield from _nodes(facts, status, now)
    yield from _pods(facts, now)
    yield from _reservations(facts)
    yield from _pools_of_calico(facts)
    yield from _rollouts(facts, status)
    yield from unread(facts)


def webhooks(facts: Facts, status: Status) -> Iterator[Problem]:
    if any(status.settings.features.values()) and not [*facts.installed.configurations()]:
        yield Problem(
            "there is no webhook configuration: nothing is held at admission, as after break glass",
            RESTORE,
        )
    elif ours := facts.installed.settings:
        missing = unregistered(ours, facts.installed.paths)
        for kind, paths in groupby(sorted(missing, key=kind_of), kind_of):
            what = f"no {kind} webhook configuration has {', '.join(paths)}"
            yield Problem(f"{what}: the API server does not ask, as after break glass", RESTORE)


def kind_of(path: str) -> str:
    """Of the webhook configuration that has it."""
    return "mutating" if path.startswith("/mutate/") else "validating"


def programs(status: Status) -> Iterator[Problem]:
    found = {each.name: each for each in status.programs}
    for name in (WEBHOOK, CONTROLLERS):
        if name not in found:
            yield Problem(f"there is no Deployment of the {name}", "helm upgrade creates it again")
        elif found[name].ready < found[name].wanted:
            program = found[name]
            yield Problem(
                f"{program.ready} of {program.wanted} {name} pods are ready",
                f"kubectl -n {status.namespace} describe pod -l app.kubernetes.io/component={name};"
                f" {PAGE}#drawbridges-own-pods-do-not-start",
            )


def leader(facts: Facts, status: Status, now: datetime) -> Iterator[Problem]:
    if not facts.installed.in_force.leader_election.leader_elect:
        return
    if isinstance(facts.lease, NotFound) or (status.leader and not status.leader.holder):
        since = status.leader.renewed if status.leader else None
        ago = f"; the Lease was last renewed {int((now - since).total_seconds())} s ago" if since else ""
        yield Problem(
            f"no replica of the controllers leads: nodes stay tainted, pods gated, IPs reserved{ago}",
            f"{PAGE}#nothing-is-done",
        )


def certificates(facts: Facts, status: Status, now: datetime) -> Iterator[Problem]:
    for each in status.webhook_configurations:
        what = f"the CA in the {each.kind} webhook configuration {each.name}"
        if each.ca_expires is None:
            yield Problem(f"{what} is missing: the API server can call no webhook", CERTIFICATES)
        else:
            yield from _expiry(what, each.ca_expires, now)
    if status.certificate_expires:
        yield from _expiry("the serving certificate", status.certificate_expires, now)
    elif isinstance(facts.certificate, bytes):
        yield Problem("the Secret of the serving certificate has none", CERTIFICATES)
    if isinstance(facts.certificate, bytes) and status.certificate_expires:
        yield from _distrust(facts, facts.certificate)


def _expiry(what: str, ends: datetime, now: datetime) -> Iterator[Problem]:
    if ends <= now:
        yield Problem(f"{what} ended at {ends:%Y-%m-%d %H:%M}Z", CERTIFICATES)
    elif ends - now < SOON:
        yield Problem(f"{what} ends at {ends:%Y-%m-%d %H:%M}Z and was not renewed", CERTIFICATES)


def _distrust(facts: Facts, certificate: bytes) -> Iterator[Problem]:
    for kind, configuration in facts.installed.configurations():
        for each in configuration.webhooks:
            authorities = certificates_in(decoded(each.client_config.ca_bundle))
            if each.is_ours and authorities and not any(is_issued_by(certificate, ca) for ca in authorities):
                yield Problem(
                    f"{kind} webhook {each.name} does not trust the serving certificate:"
                    " no CA of its caBundle signed it",
                    f"{CERTIFICATES}#when-calls-fail-for-their-certificate",
                )


def settings(status: Status) -> Iterator[Problem]:
    for each in status.settings.refused:
        yield Problem(
            f"settings refused, the last good ones stay in force: {each}", "correct the value; helm upgrade"
        )


def _nodes(facts: Facts, status: Status, now: datetime) -> Iterator[Problem]:
    tainted = status.anycast_ip.tainted if status.anycast_ip else ()
    nodes = facts.nodes if isinstance(facts.nodes, list) else ()
    late = [
        each.metadata.name
        for each in nodes
        if each.metadata.name in tainted and _is_older(each.metadata, TAINTED, now)
    ]
    if late:
        yield Problem(
            f"{_listed(late)} still {_verb(late, 'has', 'have')} the taint {TAINT.key} after 10 minutes",
            "kubectl get events --field-selector type=Warning,involvedObject.kind=Node;"
            " docs/reference/names.md#events-anycast-ip",
        )


def _pods(facts: Facts, now: datetime) -> Iterator[Problem]:
    pending = facts.pods.pending if isinstance(facts.pods, PodCounts) else ()
    late = [
        key_of(each.metadata) for each in pending if each.is_gated and _is_older(each.metadata, GATED, now)
    ]
    if late:
        yield Problem(
            f"{_listed(late)} {_verb(late, 'is', 'are')} gated for over a minute",
            "drawbridge elasticity list -A says what each waits for; docs/how-to/break-glass.md#pods-stay-gated",
        )


def _reservations(facts: Facts) -> Iterator[Problem]:
    segments = facts.segments if isinstance(facts.segments, list) else ()
    for each in segments:
        if each.ours and each.malformed:
            yield Problem(
                f"IPReservation {each.metadata.name} has an entry that Calico cannot read: {each.malformed[0]!r};"
                " Calico may assign no IP to any pod",
                "docs/how-to/break-glass.md#calico-gives-no-address-to-any-pod",
            )


def _pools_of_calico(facts: Facts) -> Iterator[Problem]:
    if not isinstance(facts.pools, PoolFacts):
        return
    if facts.pools.unknown:
        yield Problem(f"Calico's pools are not known: {facts.pools.unknown}", PAGE)
    for each in headroom(facts.pools, ()):
        if each.free < LOW * each.addresses:
            yield Problem(
                f"pool {each.pool} has {each.free} of {each.addresses} IPs free: {each.assigned} are assigned,"
                f" {each.reserved} reserved",
                "docs/how-to/runbooks/DrawbridgePoolLow.md",
            )


def _rollouts(facts: Facts, status: Status) -> Iterator[Problem]:
    for each in status.ingress_daemon_sets or ():
        if each.state in STOPPED:
            yield Problem(
                f"the rollout of {each.namespace}/{each.name} {WHAT_STOPPED[each.state]}: {each.message}",
                f"drawbridge rollout get {each.name} -n {each.namespace};"
                " then correct the template, or restore the former one",
            )
    for resource in facts.rollouts if isinstance(facts.rollouts, list) else ():
        degraded = resource.reported.condition("Degraded")
        if degraded.status == "True":
            name = key_of(resource.metadata)
            yield Problem(
                f"IngressDaemonSet {name}: {degraded.message}",
                "docs/reference/ingressdaemonset.md#when-it-waits",
            )


def unread(facts: Facts) -> Iterator[Problem]:
    parts = {
        "the Lease of the leader": None if isinstance(facts.lease, NotFound) else facts.lease,
        "the serving certificate": facts.certificate,
        "reserved IPs": facts.segments,
        "Calico's pools": None if isinstance(facts.pools, PoolFacts) else facts.pools,
        "nodes": facts.nodes,
        "pods": facts.pods,
        "IngressDaemonSets": facts.rollouts,
    }
    for name, part in parts.items():
        if isinstance(part, Forbidden):
            yield Problem(f"{name}: not readable by you", way_to_permission(part.message))
        elif isinstance(part, Exception):
            yield Problem(f"{name}: {part}", f"repeat it; {PAGE}" if isinstance(part, KubeError) else PAGE)


def _is_older(metadata: ObjectMeta, than: timedelta, now: datetime) -> bool:
    return metadata.creation_timestamp is not None and now - metadata.creation_timestamp > than


def _listed(names: list[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(sorted(names)[:most]) + more


def _verb(names: list[str], one: str, many: str) -> str:
    return one if len(names) == 1 else many


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


def authority_ends(configuration: WebhookConfiguration) -> datetime | None:
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


def rollout_of(resource: StoredResource) -> Rollout:
    status = resource.reported
    progressing = status.condition("Progressing")
    return Rollout(
        resource.metadata.namespace,
        resource.metadata.name,
        progressing.reason or UNKNOWN,
        status.desired_nodes,
        status.updated_nodes,
        status.ready_nodes,
        status.detached_nodes,
        progressing.message,
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


def _configuration(kind: str, configuration: WebhookConfiguration) -> ConfigurationView:
    webhooks = [each for each in configuration.webhooks if each.is_ours]
    return ConfigurationView(
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


def parts_of(status: Status, now: datetime) -> Iterator[Part]:
    yield _heading(status)
    for problem in status.problems:
        yield Text.assemble(bad("  ! "), problem.what)
        yield faint(f"    {problem.way_out}")
    yield ""
    yield _program_table(status, now)
    yield ""
    yield _webhook_table(status, now)
    yield ""
    yield Table(("FEATURE", "STATE"), list(_feature_rows(status, now)))
    yield from _rollout_parts(status)
    yield from _release_parts(status, now)


def _heading(status: Status) -> Text:
    name = title(f"Drawbridge {status.version} in namespace {status.namespace}: ")
    count = len(status.problems)
    return name + (bad(f"{count} problem{'s' if count > 1 else ''}") if count else good("nothing is wrong"))


def _program_table(status: Status, now: datetime) -> Table:
    rows: list[list[Cell]] = []
    for each in status.programs:
        ready = f"{each.ready}/{each.wanted}"
        leader = _leader_cell(status.leader, now) if each.name == "controllers" else Text()
        rows.append([each.name, (good if each.ready >= each.wanted else bad)(ready), each.version, leader])
    return Table(("PROGRAM", "READY", "VERSION", "LEADER"), rows)


def _leader_cell(leader: Leader | None, now: datetime) -> Text:
    if leader is None:
        return faint("not readable")
    if not leader.holder:
        return bad("none")
    renewed = f", renewed {age(leader.renewed, now)} ago" if leader.renewed else ""
    return Text(leader.holder + renewed)


def _webhook_table(status: Status, now: datetime) -> Table:
    rows: list[list[Cell]] = [
        [
            f"{each.kind} {each.name}",
            str(len(each.webhooks)),
            ", ".join(each.failure_policies),
            _expiry_cell(each.ca_expires, now),
            _expiry_cell(status.certificate_expires, now),
            ", ".join(each.webhooks),
        ]
        for each in status.webhook_configurations
    ]
    columns = (
        "WEBHOOK CONFIGURATION",
        "WEBHOOKS",
        "ON FAILURE",
        "CA EXPIRES",
        "CERTIFICATE EXPIRES",
        "NAMES",
    )
    return Table(columns, rows, wide=1)


def _expiry_cell(ends: datetime | None, now: datetime) -> Text:
    if ends is None:
        return faint("unknown")
    return (
        good(f"in {duration((ends - now).total_seconds())}") if ends > now else bad(f"{age(ends, now)} ago")
    )


def _feature_rows(status: Status, now: datetime) -> Iterator[tuple[Cell, Cell]]:
    features = status.settings.features
    yield "IP reservation", _state(features["ipReservation"], _reserved_cell(status.ip_reservation, now))
    yield "anycast IP", _state(features["anycastIP"], _anycast_cell(status))
    yield "elasticity", _state(features["elasticity"], _placed_cell(status.elasticity))
    yield "IngressDaemonSets", _state(features["ingressDaemonSet"], _rolling_cell(status.ingress_daemon_sets))


def _state(enabled: bool, text: Cell | None) -> Cell:
    if not enabled:
        return faint("off")
    return faint("not readable") if text is None else text


def _reserved_cell(found: IPReservation | None, now: datetime) -> Cell | None:
    if found is None:
        return None
    if not found.addresses:
        return "no IP is reserved"
    reasons = ", ".join(f"{count} {reason}" for reason, count in found.by_reason.items())
    counted = f"{found.addresses - found.not_ended} of {found.limit} count"
    text = (
        f"{found.addresses} reserved ({reasons}); {counted}, {found.not_ended} of pods without a stored end"
    )
    if found.next_releases:
        text += f"; next release {_until(found.next_releases[0].expires_at, now)}"
    return text


def _until(at: datetime, now: datetime) -> str:
    return f"in {duration((at - now).total_seconds())}" if at > now else "now"


def _anycast_cell(status: Status) -> Cell | None:
    found = status.anycast_ip
    if found is None:
        return None
    if not found.nodes:
        return "no node needs an address"
    text = Text(f"{found.open} of {found.nodes} nodes open")
    if found.tainted:
        names = ", ".join(found.tainted[:3]) + (", ..." if len(found.tainted) > 3 else "")
        text += warning(f"; {len(found.tainted)} tainted: {names}")
    return text


def _placed_cell(found: Elasticity | None) -> Cell | None:
    if found is None:
        return None
    text = f"{found.local} pods on local nodes, {found.on_super_nodes} on super nodes ({found.super_nodes})"
    return Text(text) + (warning(f"; {found.gated} gated") if found.gated else Text("; none gated"))


def _rolling_cell(found: tuple[Rollout, ...] | None) -> Cell | None:
    if found is None:
        return None
    moving = sum(each.state not in DONE for each in found)
    return f"{len(found)}, {moving} of them with a rollout in progress" if found else "none"


def _rollout_parts(status: Status) -> Iterator[Part]:
    moving = [each for each in status.ingress_daemon_sets or () if each.state not in DONE]
    if moving:
        yield ""
        yield Table(
            ("ROLLOUT", "STATE", "UPDATED", "DETACHED", "MESSAGE"),
            [
                (
                    f"{each.namespace}/{each.name}",
                    bad(each.state) if each.state in STOPPED else warning(each.state),
                    f"{each.updated_nodes}/{each.desired_nodes}",
                    str(each.detached_nodes),
                    each.message,
                )
                for each in moving
            ],
        )


def _release_parts(status: Status, now: datetime) -> Iterator[Part]:
    releases = status.ip_reservation.next_releases if status.ip_reservation else ()
    if releases:
        yield ""
        yield Table(
            ("NEXT RELEASES", "IN", "POD", "REASON"),
            [
                (
                    each.address,
                    _until(each.expires_at, now).removeprefix("in "),
                    f"{each.namespace}/{each.pod}",
                    each.reason,
                )
                for each in releases
            ],
        )
