"""`drawbridge status`: all features at a glance; what is wrong comes first, with the way out.

One list of each kind is read at most, and of pods only those that are pending or placed.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from pkgutil import resolve_name
from typing import Any

import click
import msgspec
from rich.text import Text

from certs.issue import dns_names, is_issued_by, not_after
from certs.rotation import certificates_in, decoded, pem_of
from cli.errors import ALLOW, WRONG, Failure
from cli.health import PAGE, Health, Overview, Problem
from cli.installation import (
    CONTROLLERS,
    VERSION,
    WEBHOOK,
    Installed,
    Lease,
    MutatingPolicy,
    WebhookConfiguration,
    selector_of,
    webhooks_in,
)
from cli.inventory import Inventory
from cli.output import (
    Cell,
    Document,
    Part,
    Report,
    Table,
    age,
    bad,
    count_of,
    faint,
    fields_of,
    good,
    title,
    until,
)
from cli.session import Command, Session, pass_session, watch_option
from features import FEATURES, unregistered
from kube.errors import Forbidden, KubeError, NotFound
from kube.resources import Resource
from kube.types import key_of
from settings import Settings

SOON = timedelta(days=7)
"""A certificate that ends within this time should have been renewed long ago."""
CERTIFICATES = "docs/how-to/certificates.md"
LEFT_OVER = "docs/how-to/break-glass.md#nodes-stay-tainted"
SERVING = "the serving certificate"
RESTORE = "repair the cause; then helm upgrade creates it again: docs/how-to/break-glass.md"
SECRETS = Resource("", "v1", "secrets")


class Program(Document, frozen=True):
    """*former* pods are from before the last change of its Deployment; *version* is that of the others."""

    name: str
    ready: int
    wanted: int
    former: int
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


class SettingsView(Document, frozen=True):
    in_force: bool
    features: dict[str, bool]
    refused: tuple[str, ...]


class Status(Report, frozen=True):
    """What is wrong comes first; None is what cannot be read.

    *overviews*, by the names of features, are of those that are on; each is a field of the JSON. *checks* are what is
    wrong with the programs, by what was checked, and *unread* what the user may not read: both are *problems*, too.
    """

    namespace: str
    version: str
    problems: tuple[Problem, ...]
    programs: tuple[Program, ...]
    leader: Leader | None
    webhook_configurations: tuple[ConfigurationView, ...]
    certificate_expires: datetime | None
    settings: SettingsView
    overviews: dict[str, Overview | None]
    checks: dict[str, list[Problem]]
    unread: tuple[Problem, ...]

    @property
    def wrong(self) -> Sequence[Problem]:
        """Without what the user may not read, which says nothing of the installation."""
        return [each for each in self.problems if each not in self.unread]

    @property
    def content(self) -> Any:
        fields = {name: value for name, value in fields_of(self).items() if name not in ("checks", "unread")}
        overviews = fields.pop("overviews")
        return fields | {health.field: overviews.get(name) for name, health in healths().items()}

    def parts(self, now: datetime) -> Iterator[Part]:
        fine = good("nothing is wrong" + (" in what you may read" if self.unread else ""))
        found = bad(count_of(len(self.wrong), "problem")) if self.wrong else fine
        yield title(f"Drawbridge {self.version} in namespace {self.namespace}: ") + found
        for problem in self.problems:
            yield Text.assemble(faint("  ? ") if problem in self.unread else bad("  ! "), problem.what)
            yield faint(f"    {problem.way_out}")
        columns = ("PROGRAM", "READY", "VERSION", "LEADER")
        yield Table(columns, [self._program(each, now) for each in self.programs])
        yield _webhook_table(self, now)
        yield Text.assemble("Serving certificate: expires ", _expiry_cell(self.certificate_expires, now))
        yield Table(
            ("FEATURE", "STATE"),
            [(health.title, self._state(name, now)) for name, health in healths().items()],
        )
        for overview in self.overviews.values():
            yield from overview.parts(now) if overview else ()

    def _program(self, program: Program, now: datetime) -> Sequence[Cell]:
        ready = (good if program.ready >= program.wanted else bad)(f"{program.ready}/{program.wanted}")
        leads: Cell = ""
        if program.name == CONTROLLERS:
            leader = self.leader
            if leader is None:
                leads = faint("not readable")
            elif not leader.holder:
                leads = bad("none")
            else:
                renewed = f", renewed {age(leader.renewed, now)} ago" if leader.renewed else ""
                leads = leader.holder + renewed
        return program.name, ready, program.version, leads

    def _state(self, feature: str, now: datetime) -> Cell:
        if feature not in self.overviews:
            return faint("off" if self.settings.in_force else "not known")
        overview = self.overviews[feature]
        return overview.state(now) if overview else faint("not readable")


class _Secret(msgspec.Struct):
    data: dict[str, str] = {}


@click.command(cls=Command)
@watch_option
@pass_session
def status(session: Session, watch: bool) -> None:
    """Show all features at a glance, problems first.

    Exits with 1 if something is wrong.
    """
    if session.follow(lambda: status_of(Inventory(session.cluster)), watch).wrong:
        raise SystemExit(WRONG)


def healths() -> dict[str, Health]:
    """By the names of features."""
    return {row.name: resolve_name(row.health) for row in FEATURES if row.health}


def enabled(settings: Settings) -> dict[str, Health]:
    return {name: health for name, health in healths().items() if getattr(settings, name).enabled}


def status_of(inventory: Inventory, secrets: bool = True) -> Status:
    """Raises KubeError, or Failure, when not even the installation is found; without *secrets*, reads none."""
    ours, now, known = inventory.installed, inventory.now(), healths()
    settings = ours.settings_or_defaults
    looked = enabled(settings)
    reads: dict[str, Callable[[], Any]] = {"lease": inventory.lease, "policies": lambda: inventory.policies}
    if secrets:
        reads["certificate"] = partial(_certificate, inventory)
    reads |= {name: partial(_looked_at, health, inventory) for name, health in looked.items()}
    found = inventory.cluster.read(reads)
    lease, policies, certificate = found["lease"], found["policies"], found.get("certificate")
    features = {name: found[name] for name in looked}
    clock = now
    if isinstance(lease, Lease) and lease.renewed and abs(now - lease.renewed) > _lasts(lease):
        clock = inventory.cluster.server_time() or now  # the clock of this machine may be off
    leader = _leader(lease, settings, clock)
    expires = None
    if isinstance(certificate, bytes):
        with suppress(ValueError):
            expires = not_after(certificate)
    programs = tuple(
        Program(
            each.component or each.metadata.name,
            each.status.ready_replicas,
            each.spec.replicas,
            each.status.replicas - each.status.updated_replicas,
            each.metadata.labels.get(VERSION, ""),
        )
        for each in sorted(ours.deployments, key=lambda each: each.metadata.name, reverse=True)
    )
    configurations = tuple(map(_configuration, ours.configurations))
    refused = "settings refused, the last good ones stay in force"
    ends = {
        f"the CA in the {each.kind} webhook configuration {each.name}": each.ca_expires
        for each in configurations
    }
    if isinstance(certificate, bytes):
        ends[SERVING] = expires
    checks = {
        "webhook configurations": [*_webhooks(ours, None if isinstance(policies, KubeError) else policies)],
        "pods of Drawbridge": [*_pods(programs, ours.namespace)],
        "leader": [*_leaders(leader, clock)],
        "certificates": [*_certificates(ours, ends, certificate, now)],
        "settings": [
            Problem(f"{refused}: {each}", "correct the value; helm upgrade") for each in ours.refused
        ],
    }
    parts = {
        "the Lease of the leader": None if isinstance(lease, NotFound) else lease,
        SERVING: certificate,
        "MutatingAdmissionPolicies": policies,
        "the settings": ours.unread,
        **{known[name].what: each for name, each in features.items()},
    }
    unread = tuple(
        Problem(f"{name}: not readable by you: {each.message}", ALLOW)
        for name, each in parts.items()
        if isinstance(each, Forbidden)
    )
    checks["what is read"] = [
        Problem(f"{name}: {each}", f"repeat it; {PAGE}" if isinstance(each, KubeError) else PAGE)
        for name, each in parts.items()
        if isinstance(each, Exception) and not isinstance(each, Forbidden)
    ]
    seen = [each for each in features.values() if not isinstance(each, Exception)]
    return Status(
        ours.namespace,
        ours.version,
        (
            *(problem for problems in checks.values() for problem in problems),
            *(problem for _, problems in seen for problem in problems),
            *unread,
        ),
        programs,
        leader,
        configurations,
        expires,
        SettingsView(
            ours.settings is not None,
            {health.value: name in looked for name, health in known.items()},
            tuple(ours.refused),
        ),
        {name: None if isinstance(each, Exception) else each[0] for name, each in features.items()},
        checks,
        unread,
    )


def _certificate(inventory: Inventory) -> bytes:
    ours = inventory.installed
    found = inventory.get(SECRETS, ours.settings_or_defaults.certs.secret_name, ours.namespace, _Secret)
    return b64decode(found.data.get("tls.crt", ""))


def _looked_at(health: Health, inventory: Inventory) -> Any:
    try:
        overview, problems = health.look(inventory)
        return overview, tuple(problems)
    except Failure as failure:
        return failure


def _webhooks(installed: Installed, policies: Sequence[MutatingPolicy] | None) -> Iterator[Problem]:
    """*policies* that cannot be read, None, may stand in for any mutating webhook."""
    registered = [*installed.paths, *(each.replaces.path for each in policies or ())]
    if enabled(installed.settings_or_defaults) and not registered:
        yield Problem(
            "there is no webhook configuration: nothing is held at admission, as after break glass", RESTORE
        )
    elif ours := installed.settings:
        missing = unregistered(ours, registered)
        for kind in ("validating",) if policies is None else ("mutating", "validating"):
            paths = [path for path in missing if path.startswith("/mutate/") == (kind == "mutating")]
            if paths:
                what = f"no {kind} webhook configuration has {', '.join(paths)}"
                yield Problem(f"{what}: the API server does not ask, as after break glass", RESTORE)
    found = (each.client_config.service for each in webhooks_in(installed.configurations) if each.is_ours)
    services = {f"{each.namespace}/{each.name}" for each in found if each}
    if len(services) > 1:
        called = ", ".join(sorted(services))
        what = f"webhooks call {called}: two releases release each other's IPs by different limits"
        yield Problem(what, "helm list -A; uninstall all but one")
    yield from _left_over(installed, policies or ())


def _left_over(installed: Installed, policies: Sequence[MutatingPolicy]) -> Iterator[Problem]:
    """Nothing ends a policy but its deletion: the API server needs no program of ours for it."""
    releases = {selector_of(each.metadata) for each in installed.deployments}
    needed = unregistered(installed.settings, ()) if installed.settings else ()
    for each in policies:
        is_off = installed.settings is not None and each.replaces.path not in needed
        if is_off or selector_of(each.metadata) not in releases:
            name = each.metadata.name
            yield Problem(
                f"MutatingAdmissionPolicyBinding {name} is left over: nodes are tainted, and no release opens them",
                f"kubectl delete mutatingadmissionpolicybinding {name}: {LEFT_OVER}",
            )


def _pods(programs: Sequence[Program], namespace: str) -> Iterator[Problem]:
    found = {each.name: each for each in programs}
    for name in (WEBHOOK, CONTROLLERS):
        if name not in found:
            yield Problem(f"there is no Deployment of the {name}", "helm upgrade creates it again")
            continue
        each, of_name = found[name], f"-l app.kubernetes.io/component={name}"
        way_out = f"kubectl -n {namespace} describe pod {of_name}; {PAGE}#drawbridges-own-pods-do-not-start"
        if not each.wanted:
            found_by = f"kubectl -n {namespace} get deployment {of_name}"
            yield Problem(f"the {name} is scaled to 0", f"scale it up: {found_by}")
        elif each.ready < each.wanted:
            yield Problem(f"{each.ready} of {each.wanted} {name} pods are ready", way_out)
        elif each.former:
            what = f"new {name} pods are not ready: {each.former} from before the last change are left"
            yield Problem(what, way_out)


def _leader(lease: Lease | KubeError, settings: Settings, now: datetime) -> Leader | None:
    """Its holder leads while it renews the Lease."""
    election = settings.leader_election
    if not election.leader_elect:
        return Leader("", "no leader election", None)
    if isinstance(lease, NotFound):
        return Leader(f"{election.resource_namespace}/{election.resource_name}", "", None)
    if isinstance(lease, KubeError):
        return None
    renewed = lease.renewed
    leads = renewed is not None and now - renewed <= _lasts(lease)
    return Leader(key_of(lease.metadata), (lease.spec.holder_identity or "") if leads else "", renewed)


def _lasts(lease: Lease) -> timedelta:
    """Twice its duration: clocks may differ a little."""
    return timedelta(seconds=2 * (lease.spec.lease_duration_seconds or 0))


def _leaders(leader: Leader | None, now: datetime) -> Iterator[Problem]:
    if leader and not leader.holder:
        since = leader.renewed
        ago = f"; the Lease was last renewed {int((now - since).total_seconds())} s ago" if since else ""
        yield Problem(
            f"no replica of the controllers leads: nodes stay tainted, pods gated, IPs reserved{ago}",
            f"{PAGE}#nothing-is-done",
        )


def _certificates(
    installed: Installed,
    ends: Mapping[str, datetime | None],
    certificate: bytes | KubeError | None,
    now: datetime,
) -> Iterator[Problem]:
    """When what *ends*; *certificate* is None when it was not to be read."""
    for what, at in ends.items():
        if at is None and what == SERVING:
            yield Problem("the Secret of the serving certificate has none", CERTIFICATES)
        elif at is None:
            yield Problem(
                f"{what} is missing in a webhook: the API server cannot call that one", CERTIFICATES
            )
        elif at <= now:
            yield Problem(f"{what} ended at {at:%Y-%m-%d %H:%M}Z", CERTIFICATES)
        elif at - now < SOON:
            yield Problem(f"{what} ends at {at:%Y-%m-%d %H:%M}Z and was not renewed", CERTIFICATES)
    if not isinstance(certificate, bytes) or ends[SERVING] is None:
        return
    # With the leaf, a server sends the authorities between it and one that is trusted.
    served = certificates_in(certificate)
    chain, names = [pem_of([each]) for each in served], dns_names(served[0])
    called, inside = installed.service.name, f"{installed.namespace}.svc"
    if called and not {f"{called}.{inside}", f"*.{inside}"} & {*names}:
        what = f"the serving certificate is for {', '.join(names) or 'no name'}, not for {called}.{inside}"
        yield Problem(f"{what}: the API server refuses it", CERTIFICATES)
    for configuration in installed.configurations:
        for webhook in configuration.webhooks:
            authorities = certificates_in(decoded(webhook.client_config.ca_bundle))
            is_trusted = any(is_issued_by(each, ca) for each in chain for ca in authorities)
            if webhook.is_ours and authorities and not is_trusted:
                yield Problem(
                    f"{configuration.kind} webhook {webhook.name} does not trust the serving certificate:"
                    " no CA of its caBundle signed it",
                    f"{CERTIFICATES}#when-calls-fail-for-their-certificate",
                )


def _configuration(configuration: WebhookConfiguration) -> ConfigurationView:
    """Its CA ends when the first of its webhooks has no valid one any more, and is missing if one has none."""
    webhooks = [each for each in configuration.webhooks if each.is_ours]
    bundles = [certificates_in(decoded(each.client_config.ca_bundle)) for each in webhooks]
    ends = [max(ca.not_valid_after_utc for ca in bundle) for bundle in bundles if bundle]
    return ConfigurationView(
        configuration.kind,
        configuration.metadata.name,
        tuple(each.name for each in webhooks),
        tuple(sorted({each.failure_policy for each in webhooks})),
        min(ends, default=None) if all(bundles) else None,
    )


def _webhook_table(status: Status, now: datetime) -> Table:
    rows: list[list[Cell]] = [
        [
            f"{each.kind} {each.name}",
            str(len(each.webhooks)),
            ", ".join(each.failure_policies),
            _expiry_cell(each.ca_expires, now),
            ", ".join(each.webhooks),
        ]
        for each in status.webhook_configurations
    ]
    columns = ("CONFIGURATION", "WEBHOOKS", "ON FAILURE", "CA EXPIRES", "NAMES")
    return Table(columns, rows, wide=1)


def _expiry_cell(ends: datetime | None, now: datetime) -> Text:
    if ends is None:
        return faint("at an unknown time")
    return (good if ends > now else bad)(until(ends, now))
