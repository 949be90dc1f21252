"""`drawbridge doctor`: the checks of docs/how-to/troubleshooting.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any

import click

from api.ingress_daemonset import GROUP
from calico.reservations import GROUPS, resource_in
from cli.cluster import attempt
from cli.errors import ALLOW, WRONG
from cli.health import PAGE, Finding, Probe, Raw, Verdict
from cli.installation import (
    ADMISSION,
    CALICO,
    CONTROLLERS,
    OWN,
    Access,
    Lease,
    Needs,
    RegisteredWebhook,
    WebhookConfiguration,
    needs_of,
)
from cli.inventory import Inventory
from cli.output import Part, Report, Table, bad, faint, good, warning
from cli.session import Command, Session, pass_session
from cli.status import Status, enabled, status_of
from kube.errors import ApiError, Forbidden, KubeError, NotFound
from kube.resources import SERVICES
from runtime import uuid4
from settings import Settings
from telemetry.program import VERSION
from webhook.smoke_check import fault, review

PROXY_TIMEOUT = 10.0
FAILED = "failed calling webhook"
"""What the API server says when a webhook that fails closed gave no answer."""
UNMARKED = "the webhook was not called, or gave no answer, and the API server went on without"
OTHERS_CHECK = "webhooks of other programs"
UNTOUCHED = (
    *((group.partition("/")[0], "ipreservations") for group in GROUPS),
    (GROUP, "ingressdaemonsets"),
    ("coordination.k8s.io", "leases"),
)
"""What no other program has a reason to alter."""
SKEW = timedelta(seconds=5)
"""Between two machines whose clocks are synchronized, with the time that a request takes."""
NETWORK = "docs/how-to/install.md#private-clusters-and-other-networks"
STYLES = {Verdict.WRONG: bad, Verdict.WARNING: warning, Verdict.SKIPPED: faint, Verdict.OK: good}
OF_USER = (
    Access("get", "secrets", "", OWN),
    Access("list", "nodes"),
    Access("list", "pods"),
    Access("list", "ipreservations", CALICO),
    Access("patch", "ipreservations", CALICO),
    Access("create", "pods/eviction"),
    Access("patch", "ingressdaemonsets", GROUP),
)


class Findings(Report, frozen=True):
    """The gravest first."""

    findings: tuple[Finding, ...]

    def parts(self, now: datetime) -> Iterator[Part]:
        rows = [(STYLES[each.verdict](each.verdict), each.check, each.message) for each in self.findings]
        yield Table(("VERDICT", "CHECK", "FINDING"), rows)
        ways = dict.fromkeys((each.check, each.way_out) for each in self.findings if each.way_out)
        yield Table(("CHECK", "WHAT TO DO"), [*ways])


@click.command(cls=Command)
@pass_session
def doctor(session: Session) -> None:
    """Diagnose the installation.

    Runs the checks of docs/how-to/troubleshooting.md. Reserves and releases an IP that no pod has, as the webhook
    servers do; writes nothing else. Exits with 1 if something is wrong.
    """
    order = [*Verdict]
    found = sorted(findings(Inventory(session.cluster)), key=lambda each: order.index(each.verdict))
    session.show(Findings(tuple(found)))
    if any(each.verdict is Verdict.WRONG for each in found):
        raise SystemExit(WRONG)


def findings(inventory: Inventory) -> Iterator[Finding]:
    """Raises KubeError when not even the installation can be read."""
    status, ours, cluster = status_of(inventory), inventory.installed, inventory.cluster
    settings = ours.settings_or_defaults
    policies = attempt(lambda: inventory.policies)
    fine = {
        "webhook configurations": "" if isinstance(policies, KubeError) else "present",
        "pods of Drawbridge": "all are ready",
        "leader": status.leader.holder if status.leader else "",
        "certificates": "trusted, and not about to end" if status.certificate_expires else "",
        "settings": "valid" if status.settings.in_force else "",
        "what is read": "all that you may read",
    }
    for check, problems in status.checks.items():
        wrong = (Finding(check, Verdict.WRONG, each.what, each.way_out) for each in problems)
        yield from _or_fine(wrong, check, fine[check])
    for problem in status.unread:
        yield Finding("what is read", Verdict.SKIPPED, problem.what, problem.way_out)
    healths = enabled(settings).values()
    for health in healths:
        yield from health.checks(inventory)
    probes = [health.probe(settings) for health in healths if health.probe]
    reached = cluster.read(
        {path: partial(_reach, inventory, path) for path in ours.paths}
        | {probe.what: partial(_dry_run, inventory, probe) for probe in probes}
    )
    for what, answer in reached.items():
        yield _reach_finding(what, answer, client_ca=bool(settings.webhook.client_ca))
    yield from _permissions(inventory)
    of_others = webhooks_of_others(inventory.configurations)
    yield from _or_fine(of_others, OTHERS_CHECK, "none alters or blocks what Drawbridge writes")
    version = attempt(partial(cluster.client.request, "GET", "/version"))
    yield _versions(status, version)
    time = None if isinstance(version, KubeError) else cluster.server_time()
    yield from _clocks(attempt(inventory.lease), time, inventory.now())


def _or_fine(found: Iterable[Finding], check: str, message: str) -> Sequence[Finding]:
    """Those of one *check*, or else that it is as the *message* says; nothing without one, of what was not read."""
    return [*found] or [Finding(check, Verdict.OK, message)] * bool(message)


def _dry_run(inventory: Inventory, probe: Probe) -> str:
    namespace, settings = inventory.cluster.namespace, inventory.installed.settings_or_defaults
    excluded = {inventory.namespace, *settings.elasticity.excluded_namespaces}
    # The last two are in every cluster.
    among = [each for each in (namespace, "default", "kube-public") if each not in excluded]
    path = probe.resource.path(among[0] if among else namespace)
    try:
        answer: Raw = inventory.client.request("POST", path, body=probe.body, query={"dryRun": "All"})
    except ApiError as error:
        if FAILED in error.message:
            return error.message
        raise
    return "" if probe.is_marked(answer) else UNMARKED


def _reach(inventory: Inventory, path: str) -> str:
    """What is wrong with the answer to a review, a dry run without an object, that the API server passes on."""
    uid, ours = str(uuid4()), inventory.installed
    service = ours.service
    proxy = f"/api/v1/namespaces/{ours.namespace}/services/https:{service.name}:{service.port}/proxy{path}"
    try:
        content = inventory.client.request("POST", proxy, body=review(uid), type=bytes, timeout=PROXY_TIMEOUT)
    except Forbidden:
        raise
    except NotFound as error:
        # Where the cluster keeps EndpointSlices alone, the proxy says so of a Service that is there, too.
        if inventory.find(SERVICES, service.name, ours.namespace, Raw) is None:
            return error.message
        raise
    except ApiError as error:
        return error.message
    except KubeError as error:
        return str(error)
    return fault(200, content, uid)


def _reach_finding(what: str, problem: str | KubeError, *, client_ca: bool) -> Finding:
    by_proxy, why, way_out = what.startswith("/"), "", "helm test checks it"
    if isinstance(problem, Forbidden):
        why, way_out = f": {problem.message}", ALLOW
    elif isinstance(problem, NotFound) and by_proxy:
        why = ": the API server's proxy knows no endpoint of the Service"
    elif isinstance(problem, KubeError):
        why, way_out = f": {problem}", "see what refuses it"
    elif problem and by_proxy and client_ca:
        why = ": the server demands a client certificate, and the proxy has none"
    elif problem:
        ways = f"{NETWORK}; {PAGE}#a-request-is-refused-or-fails"
        return Finding("webhook server from the API server", Verdict.WRONG, f"{what}: {problem}", ways)
    else:
        return Finding("webhook server from the API server", Verdict.OK, f"{what}: answered")
    message = f"{what}: not checked{why}"
    return Finding("webhook server from the API server", Verdict.SKIPPED, message, way_out)


def needed(settings: Settings) -> Needs:
    """What our ServiceAccounts must be allowed."""
    certs, election = settings.certs, settings.leader_election
    lease, secret = ("leases", "coordination.k8s.io", OWN), ("secrets", "", OWN)
    yield from needs_of(CONTROLLERS, "create", "events")
    yield from needs_of(CONTROLLERS, "create", *lease)
    if election.leader_elect:
        yield from needs_of(CONTROLLERS, "get update", *lease, election.resource_name)
    if certs.mode == "self-managed":
        yield from needs_of(CONTROLLERS, "create", *secret)
        yield from needs_of(CONTROLLERS, "get update", *secret, certs.secret_name)
        for kind in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
            yield from needs_of(CONTROLLERS, "get update", kind, ADMISSION, "", certs.configuration_name)
    for health in enabled(settings).values():
        yield from health.needs(settings)


def _permissions(inventory: Inventory) -> Iterator[Finding]:
    ours, read = inventory.installed, inventory.cluster.read
    accounts, check = ours.accounts, "permissions of Drawbridge"
    of_calico = [resource_in(each, "ipreservations") for each in GROUPS]
    served = (each for each in of_calico if attempt(partial(inventory.client.serves, each)))
    group = next(served, of_calico[-1]).group
    asked = [
        (program, each.located(ours.namespace, group))
        for program, each in needed(ours.settings_or_defaults)
        if program in accounts
    ]
    answers = read({(name, each): partial(inventory.may, each, accounts[name]) for name, each in asked})
    missing = [f"the {program} may not {each}" for (program, each), may in answers.items() if may is False]
    wrong = (Finding(check, Verdict.WRONG, each, "helm upgrade restores its roles") for each in missing)
    found = [*wrong, *_unread(check, answers.values())]
    yield from _or_fine(found, check, f"all {len(answers)} that were asked about")
    check, of_user = "your permissions", [each.located(ours.namespace, group) for each in OF_USER]
    own = read({each: partial(inventory.may, each) for each in of_user})
    found = [*_unread(check, own.values())]
    if denied := "; ".join(str(each) for each, may in own.items() if may is False):
        message = f"you may not {denied}: some commands will not work"
        found.append(Finding(check, Verdict.WARNING, message, "have an administrator allow it"))
    yield from _or_fine(found, check, "enough for all commands")


def _unread(check: str, answers: Iterable[Any]) -> Iterator[Finding]:
    """That some of *answers* are none; one says why."""
    failed = (each for each in answers if isinstance(each, KubeError))
    yield from (Finding.unread(check, "", each) for each in islice(failed, 1))


def webhooks_of_others(configurations: Sequence[WebhookConfiguration]) -> Iterator[Finding]:
    warns = partial(Finding, OTHERS_CHECK, Verdict.WARNING)
    for configuration in configurations:
        kind = configuration.kind
        for webhook in configuration.webhooks:
            untouched = "" if webhook.is_ours else _untouched(webhook)
            name = f"{kind} webhook {webhook.name} ({configuration.metadata.name})"
            if untouched and kind == "mutating":
                way_out = "an altered object is written again and again"
                yield warns(f"{name} may alter {untouched}", f"exclude them in its rules: {way_out}")
            elif untouched and webhook.failure_policy == "Fail":
                what = f"{name} may refuse {untouched}, and blocks them while it is down"
                yield warns(what, "exclude them in its rules")


def _untouched(webhook: RegisteredWebhook) -> str:
    """Those of UNTOUCHED that it is asked about when they are written."""
    rules = [rule for rule in webhook.rules if {"*", "CREATE", "UPDATE"} & {*rule.operations}]
    seen = {
        plural
        for group, plural in UNTOUCHED
        for rule in rules
        if {"*", group} & {*rule.api_groups} and {"*", "*/*", plural} & {*rule.resources}
    }
    return ", ".join(sorted(seen))


def _versions(status: Status, answer: Raw | KubeError) -> Finding:
    check, ours = "versions", status.version
    if isinstance(answer, KubeError):
        return Finding.unread(check, "", answer)
    server = answer["gitVersion"]
    if "," in ours:
        way_out = "wait for the upgrade to end, or repeat helm upgrade"
        return Finding(check, Verdict.WARNING, f"programs have different versions: {ours}", way_out)
    if ours != VERSION:
        message = f"Drawbridge is {ours}, this command {VERSION}"
        return Finding(check, Verdict.WARNING, message, "use the command of the installed version")
    return Finding(check, Verdict.OK, f"Kubernetes {server}, Drawbridge {ours}")


def _clocks(lease: Lease | KubeError, server: datetime | None, here: datetime) -> Iterator[Finding]:
    check, way_out = "clocks", f"synchronize it (NTP); {PAGE}#clocks"
    if server is None:
        yield Finding(check, Verdict.SKIPPED, "not read")
        return
    off = abs(here - server)
    renewed = lease.spec.renew_time if isinstance(lease, Lease) else None
    ahead = datetime.fromisoformat(renewed) - server if renewed else timedelta()
    if off > SKEW:
        message = f"this machine differs from the API server by {off.total_seconds():.0f} s"
        yield Finding(check, Verdict.WARNING, message, way_out)
    if ahead > SKEW:
        message = f"the leader's clock is ahead of the API server's by {ahead.total_seconds():.0f} s"
        yield Finding(check, Verdict.WRONG, message, way_out)
    if max(off, ahead) <= SKEW:
        yield Finding(check, Verdict.OK, "agree")
