"""What is wrong, the gravest first, each with the way out: a function of values."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import groupby

from api.anycast_ip import TAINT
from certs.ca_bundle import certificates_in, decoded
from certs.issue import is_issued_by
from cli.errors import way_to_permission
from cli.installed.types import CONTROLLERS, WEBHOOK
from cli.pools.headroom import PoolFacts, headroom
from cli.status.facts import Facts, PodCounts
from cli.status.types import Problem, Status
from features import unregistered
from kube.errors import Forbidden, KubeError, NotFound
from kube.types import ObjectMeta, key_of

SOON = timedelta(days=7)
"""A certificate that ends within this time should have been renewed long ago."""
GATED, TAINTED = timedelta(minutes=1), timedelta(minutes=10)
"""How long a pod usually waits for its placement, and a node for its address, at most."""
LOW = 0.1
"""The share of a pool's addresses that should be free; the alert has the same."""
PAGE = "docs/how-to/troubleshooting.md"
CERTIFICATES = "docs/how-to/certificates.md"
RESTORE = "repair the cause; then helm upgrade creates it again: docs/how-to/break-glass.md"


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


STOPPED = {
    "Halted": "is halted",
    "CanaryDegraded": "waits for its canary, which fails",
    "RollingBack": "has failed, and nodes return to the former template",
    "RolledBack": "has failed, and nodes have the former template",
}


def _rollouts(facts: Facts, status: Status) -> Iterator[Problem]:
    for each in status.ingress_daemon_sets or ():
        if each.state in STOPPED:
            yield Problem(
                f"the rollout of {each.namespace}/{each.name} {STOPPED[each.state]}: {each.message}",
                f"drawbridge rollout get {each.name} -n {each.namespace};"
                " then correct the template, or restore the former one",
            )
    for resource in facts.rollouts if isinstance(facts.rollouts, list) else ():
        degraded = resource.condition("Degraded")
        if degraded.get("status") == "True":
            name = key_of(resource.metadata)
            yield Problem(
                f"IngressDaemonSet {name}: {degraded.get('message', '')}",
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
