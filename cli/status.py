"""`drawbridge status`: all features at a glance; what is wrong comes first, with the way out.

One list of each kind is read at most, and of pods only those that are pending or placed.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import groupby
from pkgutil import resolve_name
from typing import Any

import click
import msgspec
from msgspec.structs import replace
from rich.text import Text

from certs.ca_bundle import certificates_in, decoded
from certs.issue import is_issued_by, not_after
from cli.errors import WRONG, Failure, way_to_permission
from cli.health import PAGE, Health, Overview, Problem
from cli.installation import COMPONENT, CONTROLLERS, VERSION, WEBHOOK, Installed, Lease, WebhookConfiguration
from cli.inventory import Inventory
from cli.output import Cell, Document, Part, Report, Table, age, bad, faint, fields_of, good, left, title
from cli.session import Command, Session, pass_session
from features import FEATURES, unregistered
from kube.client import Resource
from kube.errors import Forbidden, KubeError, NotFound
from kube.types import key_of
from settings import Settings as ValidSettings

SOON = timedelta(days=7)
"""A certificate that ends within this time should have been renewed long ago."""
CERTIFICATES = "docs/how-to/certificates.md"
RESTORE = "repair the cause; then helm upgrade creates it again: docs/how-to/break-glass.md"
SECRETS = Resource("", "v1", "secrets")


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


class Settings(Document, frozen=True):
    in_force: bool
    features: dict[str, bool]
    refused: tuple[str, ...]


class Status(Report, frozen=True):
    """What is wrong comes first; None is what cannot be read.

    *overviews*, by the names of features, are of those that are on; each is a field of the JSON.
    """

    namespace: str
    version: str
    problems: tuple[Problem, ...]
    programs: tuple[Program, ...]
    leader: Leader | None
    webhook_configurations: tuple[ConfigurationView, ...]
    certificate_expires: datetime | None
    settings: Settings
    overviews: dict[str, Overview | None]

    @property
    def content(self) -> Any:
        fields = fields_of(self)
        overviews = fields.pop("overviews")
        return fields | {health.field: overviews.get(name) for name, health in healths().items()}

    def parts(self, now: datetime) -> Iterator[Part]:
        count = len(self.problems)
        name = title(f"Drawbridge {self.version} in namespace {self.namespace}: ")
        yield name + (
            bad(f"{count} problem{'s' if count > 1 else ''}") if count else good("nothing is wrong")
        )
        for problem in self.problems:
            yield Text.assemble(bad("  ! "), problem.what)
            yield faint(f"    {problem.way_out}")
        yield ""
        yield _program_table(self, now)
        yield ""
        yield _webhook_table(self, now)
        yield ""
        states = [(health.title, self._state(name, now)) for name, health in healths().items()]
        yield Table(("FEATURE", "STATE"), states)
        for overview in self.overviews.values():
            yield from overview.parts(now) if overview else ()

    def _state(self, feature: str, now: datetime) -> Cell:
        if feature not in self.overviews:
            return faint("off")
        overview = self.overviews[feature]
        return overview.state(now) if overview else faint("not readable")


@dataclass(frozen=True)
class Facts:
    """*certificate* is None when it was not to be read; *features* are those that are on."""

    installed: Installed
    lease: Lease | KubeError
    certificate: bytes | KubeError | None
    features: Mapping[str, tuple[Overview, tuple[Problem, ...]] | Exception]


class _Secret(msgspec.Struct):
    data: dict[str, str] = {}


@click.command(cls=Command)
@click.option("-w", "--watch", is_flag=True, help="Show it again whenever it changes, until Ctrl-C.")
@pass_session
def status(session: Session, watch: bool) -> None:
    """All features at a glance; what is wrong comes first.

    Ends with 1 when something is wrong.
    """
    if session.follow(
        lambda: status_of(facts_of(Inventory(session.cluster)), session.cluster.now()), watch
    ).problems:
        raise SystemExit(WRONG)


def healths() -> dict[str, Health]:
    """By the names of features."""
    return {row.name: resolve_name(row.health) for row in FEATURES if row.health}


def enabled(settings: ValidSettings) -> dict[str, Health]:
    return {name: health for name, health in healths().items() if getattr(settings, name).enabled}


def facts_of(inventory: Inventory, secrets: bool = True) -> Facts:
    """Raises KubeError, or Failure, when not even the installation is found; without *secrets*, reads none."""
    ours = inventory.installed
    reads: dict[str, Callable[[], Any]] = {"lease": inventory.lease}
    if secrets:
        reads["certificate"] = partial(_certificate, inventory)
    reads |= {name: partial(_looked_at, health, inventory) for name, health in enabled(ours.in_force).items()}
    found = inventory.cluster.read(reads)
    return Facts(ours, found.pop("lease"), found.pop("certificate", None), found)


def _certificate(inventory: Inventory) -> bytes:
    ours = inventory.installed
    found = inventory.get(SECRETS, ours.in_force.certs.secret_name, ours.namespace, _Secret)
    return b64decode(found.data.get("tls.crt", ""))


def _looked_at(health: Health, inventory: Inventory) -> Any:
    try:
        overview, problems = health.look(inventory)
        return overview, tuple(problems)
    except Failure as failure:
        return failure


def status_of(facts: Facts, now: datetime) -> Status:
    ours, certificate = facts.installed, facts.certificate
    settings = ours.in_force
    features = {health.value: getattr(settings, name).enabled for name, health in healths().items()}
    found = Status(
        ours.namespace,
        ours.version,
        (),
        tuple(_programs(ours)),
        _leader(facts, now),
        tuple(_configuration(kind, each) for kind, each in ours.configurations),
        expiry(certificate) if isinstance(certificate, bytes) else None,
        Settings(ours.settings is not None, features, tuple(ours.refused)),
        {name: None if isinstance(each, Exception) else each[0] for name, each in facts.features.items()},
    )
    general = [problem for problems in checked(facts, found, now).values() for problem in problems]
    of_features = [
        problem for each in facts.features.values() if not isinstance(each, Exception) for problem in each[1]
    ]
    return replace(found, problems=(*general, *of_features, *unread(facts)))


def checked(facts: Facts, status: Status, now: datetime) -> dict[str, list[Problem]]:
    """What is wrong with the programs, by what was checked."""
    return {
        "webhook configurations": [*_webhooks(facts.installed)],
        "pods of Drawbridge": [*_pods(status)],
        "leader": [*_leaders(facts, status, now)],
        "certificates": [*_certificates(facts, status, now)],
        "settings": [
            Problem(
                f"settings refused, the last good ones stay in force: {each}",
                "correct the value; helm upgrade",
            )
            for each in facts.installed.refused
        ],
    }


def _webhooks(installed: Installed) -> Iterator[Problem]:
    if enabled(installed.in_force) and not [*installed.configurations]:
        yield Problem(
            "there is no webhook configuration: nothing is held at admission, as after break glass", RESTORE
        )
    elif ours := installed.settings:
        missing = unregistered(ours, installed.paths)
        for kind, paths in groupby(sorted(missing, key=kind_of), kind_of):
            what = f"no {kind} webhook configuration has {', '.join(paths)}"
            yield Problem(f"{what}: the API server does not ask, as after break glass", RESTORE)


def kind_of(path: str) -> str:
    """Of the webhook configuration that has it."""
    return "mutating" if path.startswith("/mutate/") else "validating"


def _pods(status: Status) -> Iterator[Problem]:
    found = {each.name: each for each in status.programs}
    for name in (WEBHOOK, CONTROLLERS):
        if name not in found:
            yield Problem(f"there is no Deployment of the {name}", "helm upgrade creates it again")
        elif found[name].ready < found[name].wanted:
            yield Problem(
                f"{found[name].ready} of {found[name].wanted} {name} pods are ready",
                f"kubectl -n {status.namespace} describe pod -l app.kubernetes.io/component={name};"
                f" {PAGE}#drawbridges-own-pods-do-not-start",
            )


def _leaders(facts: Facts, status: Status, now: datetime) -> Iterator[Problem]:
    if isinstance(facts.lease, NotFound) or (status.leader and not status.leader.holder):
        if not facts.installed.in_force.leader_election.leader_elect:
            return
        since = status.leader.renewed if status.leader else None
        ago = f"; the Lease was last renewed {int((now - since).total_seconds())} s ago" if since else ""
        yield Problem(
            f"no replica of the controllers leads: nodes stay tainted, pods gated, IPs reserved{ago}",
            f"{PAGE}#nothing-is-done",
        )


def _certificates(facts: Facts, status: Status, now: datetime) -> Iterator[Problem]:
    for each in status.webhook_configurations:
        what = f"the CA in the {each.kind} webhook configuration {each.name}"
        if each.ca_expires is None:
            yield Problem(f"{what} is missing: the API server can call no webhook", CERTIFICATES)
        else:
            yield from _expiry(what, each.ca_expires, now)
    if not isinstance(facts.certificate, bytes):
        return
    if status.certificate_expires is None:
        yield Problem("the Secret of the serving certificate has none", CERTIFICATES)
    else:
        yield from _expiry("the serving certificate", status.certificate_expires, now)
        yield from _distrust(facts.installed, facts.certificate)


def _expiry(what: str, ends: datetime, now: datetime) -> Iterator[Problem]:
    if ends <= now:
        yield Problem(f"{what} ended at {ends:%Y-%m-%d %H:%M}Z", CERTIFICATES)
    elif ends - now < SOON:
        yield Problem(f"{what} ends at {ends:%Y-%m-%d %H:%M}Z and was not renewed", CERTIFICATES)


def _distrust(installed: Installed, certificate: bytes) -> Iterator[Problem]:
    for kind, configuration in installed.configurations:
        for webhook in configuration.webhooks:
            authorities = certificates_in(decoded(webhook.client_config.ca_bundle))
            if (
                webhook.is_ours
                and authorities
                and not any(is_issued_by(certificate, ca) for ca in authorities)
            ):
                yield Problem(
                    f"{kind} webhook {webhook.name} does not trust the serving certificate:"
                    " no CA of its caBundle signed it",
                    f"{CERTIFICATES}#when-calls-fail-for-their-certificate",
                )


def unread(facts: Facts) -> Iterator[Problem]:
    known = healths()
    parts = {
        "the Lease of the leader": None if isinstance(facts.lease, NotFound) else facts.lease,
        "the serving certificate": facts.certificate,
        **{known[name].what: found for name, found in facts.features.items()},
    }
    for name, part in parts.items():
        if isinstance(part, Forbidden):
            yield Problem(f"{name}: not readable by you", way_to_permission(part.message))
        elif isinstance(part, Exception):
            yield Problem(f"{name}: {part}", f"repeat it; {PAGE}" if isinstance(part, KubeError) else PAGE)


def _leader(facts: Facts, now: datetime) -> Leader | None:
    """Its holder leads while it renews the Lease; the clocks of two machines may differ by another duration."""
    if not facts.installed.in_force.leader_election.leader_elect:
        return Leader("", "no leader election", None)
    if isinstance(facts.lease, KubeError):
        return None
    spec = facts.lease.spec
    renewed = _moment(spec.renew_time)
    lasts = timedelta(seconds=2 * (spec.lease_duration_seconds or 0))
    leads = renewed is not None and now - renewed <= lasts
    return Leader(key_of(facts.lease.metadata), (spec.holder_identity or "") if leads else "", renewed)


def _moment(text: str | None) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def expiry(certificate: bytes) -> datetime | None:
    try:
        return not_after(certificate)
    except ValueError:
        return None


def _programs(ours: Installed) -> Iterator[Program]:
    for each in sorted(ours.deployments, key=lambda each: each.metadata.name, reverse=True):
        labels = each.metadata.labels
        name, version = labels.get(COMPONENT, each.metadata.name), labels.get(VERSION, "")
        yield Program(name, each.status.ready_replicas, each.spec.replicas, version)


def _configuration(kind: str, configuration: WebhookConfiguration) -> ConfigurationView:
    """Its CA ends when the first of its webhooks has no valid one any more."""
    webhooks = [each for each in configuration.webhooks if each.is_ours]
    bundles = (certificates_in(decoded(each.client_config.ca_bundle)) for each in webhooks)
    ends = (max(ca.not_valid_after_utc for ca in bundle) for bundle in bundles if bundle)
    return ConfigurationView(
        kind,
        configuration.metadata.name,
        tuple(each.name for each in webhooks),
        tuple(sorted({each.failure_policy for each in webhooks})),
        min(ends, default=None),
    )


def _program_table(status: Status, now: datetime) -> Table:
    rows: list[list[Cell]] = []
    for each in status.programs:
        ready = f"{each.ready}/{each.wanted}"
        leader = _leader_cell(status.leader, now) if each.name == CONTROLLERS else Text()
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
    expiries = ("CA EXPIRES", "CERTIFICATE EXPIRES")
    columns = ("WEBHOOK CONFIGURATION", "WEBHOOKS", "ON FAILURE", *expiries, "NAMES")
    return Table(columns, rows, wide=1)


def _expiry_cell(ends: datetime | None, now: datetime) -> Text:
    if ends is None:
        return faint("unknown")
    if ends <= now:
        return bad(f"{age(ends, now)} ago")
    return good(f"in {left(ends, now)}")
