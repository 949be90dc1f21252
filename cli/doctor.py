"""The checks of docs/how-to/troubleshooting.md: what is asked for them, and what the answers mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, StrEnum
from typing import Any

from api.anycast_ip import TAINT
from api.elasticity import GATE, LOCAL_REPLICAS
from api.ingress_daemonset import API_VERSION, GROUP, INGRESS_DAEMONSETS, KIND, NODE_LABEL
from calico.ipam_config import COOLDOWN
from calico.ledger import ADDRESS
from cli.access import Access
from cli.errors import unreadable, way_to_permission
from cli.installation import Lease, RegisteredWebhook, Rule, WebhookConfiguration, WebhookConfigurations
from cli.output import Document, Part, Table, bad, duration, faint, good, warning
from cli.status import (
    PAGE,
    Facts,
    Problem,
    Status,
    certificates,
    leader,
    programs,
    settings,
    unread,
    webhooks,
)
from kube.errors import ApiError, Forbidden, KubeError, NotFound
from kube.resources import NODES, PODS, Resource
from settings import IPReservationSettings, Settings

PROBE_NAME = "drawbridge-doctor"
FAILED = "failed calling webhook"
"""What the API server says when a webhook that fails closed gave no answer."""
UNMARKED = "the webhook was not called, or gave no answer, and the API server went on without"
Raw = dict[str, Any]
COOLDOWN_CHECK = "Calico's cooldown"
COOLDOWN_PAGE = "docs/explanation/ip-reservation.md#calicos-cooldown"
OTHERS_CHECK = "webhooks of other programs"
CALICO_GROUPS = ("projectcalico.org", "crd.projectcalico.org")
UNTOUCHED = (
    *((group, "ipreservations") for group in CALICO_GROUPS),
    (GROUP, "ingressdaemonsets"),
    ("coordination.k8s.io", "leases"),
)
"""What no other program has a reason to alter."""
SHARED = (("", "pods"), ("", "nodes"), ("apps", "deployments"), ("apps", "daemonsets"))
"""What policies do alter: Drawbridge takes what the API server stores for its baseline."""
OLDEST = (1, 30)
"""The oldest Kubernetes that is supported: docs/reference/support.md."""
SKEW = timedelta(seconds=5)
"""Between two machines whose clocks are synchronized, with the time that a request takes."""
NETWORK = "docs/how-to/install.md#private-clusters-and-other-networks"


class Verdict(StrEnum):
    WRONG = "wrong"
    WARNING = "warning"
    SKIPPED = "skipped"
    OK = "ok"


STYLES = {Verdict.WRONG: bad, Verdict.WARNING: warning, Verdict.SKIPPED: faint, Verdict.OK: good}


class Finding(Document, frozen=True):
    check: str
    verdict: Verdict
    message: str
    way_out: str = ""


class Findings(Document, frozen=True):
    findings: tuple[Finding, ...]

    @property
    def wrong(self) -> int:
        return sum(each.verdict is Verdict.WRONG for each in self.findings)


def sorted_findings(found: Iterator[Finding]) -> Findings:
    """The gravest first."""
    order = [*Verdict]
    return Findings(tuple(sorted(found, key=lambda each: order.index(each.verdict))))


def parts_of(found: Findings) -> Iterator[Part]:
    rows = [(STYLES[each.verdict](each.verdict), each.check, each.message) for each in found.findings]
    yield Table(("VERDICT", "CHECK", "FINDING"), rows)
    ways = dict.fromkeys((each.check, each.way_out) for each in found.findings if each.way_out)
    if ways:
        yield ""
        yield Table(("CHECK", "WHAT TO DO"), [*ways])


def of_accounts(answers: Mapping[tuple[str, Access], bool | KubeError]) -> Iterator[Finding]:
    if refused := next((each for each in answers.values() if isinstance(each, Forbidden)), None):
        yield Finding(
            "permissions of Drawbridge",
            Verdict.SKIPPED,
            "you may not ask what others may do",
            way_to_permission(refused.message),
        )
        return
    missing = [
        f"the {program} may not {access}" for (program, access), may in answers.items() if may is False
    ]
    for each in missing:
        yield Finding("permissions of Drawbridge", Verdict.WRONG, each, "helm upgrade restores its roles")
    if not missing:
        yield Finding("permissions of Drawbridge", Verdict.OK, f"all {len(answers)} that were asked about")


def of_user(answers: Mapping[Access, bool | KubeError]) -> Iterator[Finding]:
    missing = [str(access) for access, may in answers.items() if may is False]
    if missing:
        message = f"you may not {'; '.join(missing)}: some commands will not work"
        yield Finding("your permissions", Verdict.WARNING, message, "have an administrator allow it")
    else:
        yield Finding("your permissions", Verdict.OK, "enough for all commands")


@dataclass(frozen=True)
class Probe:
    """*body* is sent as a dry run; *is_marked* says of the answer whether the webhook has seen it."""

    what: str
    resource: Resource
    namespace: str | None
    body: Raw
    is_marked: Callable[[Raw], bool]


def probes(settings: Settings, namespace: str) -> Iterator[Probe]:
    """Of the features that are on. IP reservation has none: its webhook is not called in a dry run."""
    if settings.anycast_ip.enabled:
        node = _probe_object("v1", "Node", labels=settings.anycast_ip.node_labels)
        yield Probe("dry run of a Node", NODES, None, node, _is_tainted)
    if settings.elasticity.enabled:
        pod = _probe_object("v1", "Pod", annotations={LOCAL_REPLICAS: "1"}) | {"spec": _pod()}
        yield Probe("dry run of a pod", PODS, namespace, pod, _is_gated)
    if settings.ingress_daemonset.enabled:
        template = {"metadata": {"labels": {"app": PROBE_NAME}}, "spec": _pod()}
        # No node has it: nothing would be done with it, were it stored.
        spec = {"nodeSelector": {NODE_LABEL: PROBE_NAME}, "template": template}
        resource = _probe_object(API_VERSION, KIND) | {"spec": spec}
        yield Probe("dry run of an IngressDaemonSet", INGRESS_DAEMONSETS, namespace, resource, _is_defaulted)


def problem_of(probe: Probe, answer: Raw | KubeError) -> str | KubeError:
    """Nothing when all is well; the error when it says nothing about the webhook."""
    if isinstance(answer, ApiError) and FAILED in answer.message:
        return answer.message
    if isinstance(answer, KubeError):
        return answer
    return "" if probe.is_marked(answer) else UNMARKED


def _probe_object(api_version: str, kind: str, **metadata: Any) -> Raw:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": PROBE_NAME, **metadata}}


def _pod() -> Raw:
    """One that every profile of pod security admits."""
    restricted = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    resources = {"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"cpu": "1m", "memory": "1Mi"}}
    container = {"name": "none", "image": PROBE_NAME, "securityContext": restricted, "resources": resources}
    return {"containers": [container], "automountServiceAccountToken": False}


def _is_tainted(node: Raw) -> bool:
    return any(each.get("key") == TAINT.key for each in node.get("spec", {}).get("taints") or ())


def _is_gated(pod: Raw) -> bool:
    return any(each.get("name") == GATE for each in pod.get("spec", {}).get("schedulingGates") or ())


def _is_defaulted(resource: Raw) -> bool:
    """The selector is made of the template's labels, which no schema can do."""
    return bool(resource.get("spec", {}).get("selector"))


def of_cooldown(settings: IPReservationSettings, cooldown: int | KubeError) -> Iterator[Finding]:
    """*cooldown* in seconds, 0 for none."""
    if not settings.enabled:
        return
    if isinstance(cooldown, KubeError):
        failure = unreadable(cooldown)
        yield Finding(COOLDOWN_CHECK, Verdict.SKIPPED, f"not read: {failure.message}", failure.way_out)
        return
    yield _cooldown_and_reservations(settings, cooldown)
    if cooldown and settings.same_address.enabled:
        yield Finding(
            COOLDOWN_CHECK,
            Verdict.WARNING,
            f"Calico refuses an IP for {duration(cooldown)} after its release ({COOLDOWN}), also to its own pod that"
            " comes back: with ipReservation.sameAddress, StatefulSets' pods that come back earlier get other IPs",
            f"lower {COOLDOWN}, or switch ipReservation.sameAddress off; what each of them covers: {COOLDOWN_PAGE}",
        )


def _cooldown_and_reservations(settings: IPReservationSettings, cooldown: int) -> Finding:
    if not cooldown:
        return Finding(
            COOLDOWN_CHECK, Verdict.OK, f"none ({COOLDOWN} is not set): only reservations keep IPs"
        )
    if cooldown < settings.ip_reserve_time:
        message = (
            f"Calico keeps every IP for {duration(cooldown)} after its release; reservations last longer"
        )
        return Finding(COOLDOWN_CHECK, Verdict.OK, f"{message}: {duration(settings.ip_reserve_time)}")
    reserved = duration(settings.ip_reserve_time)
    return Finding(
        COOLDOWN_CHECK,
        Verdict.WARNING,
        f"Calico keeps every IP for {duration(cooldown)} after its release ({COOLDOWN}), and ipReserveTime is"
        f" {reserved}: reservations add little",
        f"raise config.ipReserveTime, or lower {COOLDOWN}; what each of them covers: {COOLDOWN_PAGE}",
    )


def of_others(configurations: WebhookConfigurations) -> Iterator[Finding]:
    found = [*_altering(configurations.mutating), *_blocking(configurations.validating)]
    yield from found
    if not found:
        yield Finding(OTHERS_CHECK, Verdict.OK, "none alters or blocks what Drawbridge writes")


def _altering(configurations: Sequence[WebhookConfiguration]) -> Iterator[Finding]:
    for configuration, webhook in _unmanaged(configurations):
        name = f"{webhook.name} ({configuration.metadata.name})"
        if seen := _seen(webhook, UNTOUCHED):
            yield Finding(
                OTHERS_CHECK,
                Verdict.WARNING,
                f"mutating webhook {name} may alter {seen}",
                "exclude them in its rules: an altered object is written again and again",
            )
        elif seen := _seen(webhook, SHARED):
            yield Finding(OTHERS_CHECK, Verdict.OK, f"mutating webhook {name} may alter {seen}")


def _blocking(configurations: Sequence[WebhookConfiguration]) -> Iterator[Finding]:
    for configuration, webhook in _unmanaged(configurations):
        seen = _seen(webhook, UNTOUCHED)
        if seen and webhook.failure_policy == "Fail":
            yield Finding(
                OTHERS_CHECK,
                Verdict.WARNING,
                f"validating webhook {webhook.name} ({configuration.metadata.name}) may refuse {seen}, and blocks"
                " them while it is down",
                "exclude them in its rules",
            )


def _unmanaged(
    configurations: Sequence[WebhookConfiguration],
) -> Iterator[tuple[WebhookConfiguration, RegisteredWebhook]]:
    for each in configurations:
        yield from ((each, webhook) for webhook in each.webhooks if not webhook.is_ours)


def _seen(webhook: RegisteredWebhook, kinds: Sequence[tuple[str, str]]) -> str:
    seen = {plural for group, plural in kinds if any(_covers(rule, group, plural) for rule in webhook.rules)}
    return ", ".join(sorted(seen))


def _covers(rule: Rule, group: str, plural: str) -> bool:
    is_of_writes = {"*", "CREATE", "UPDATE"} & {*rule.operations} and {"*", group} & {*rule.api_groups}
    return bool(is_of_writes and {"*", "*/*", plural} & {*rule.resources})


class NotTried(Enum):
    """Why no address was reserved."""

    OFF = "IP reservation is off"
    FORBIDDEN = "you may not impersonate the ServiceAccount of the webhook servers"
    IMPERSONATING = "your kubeconfig impersonates another user, which cannot be done twice"


@dataclass(frozen=True)
class Answers:
    """What was asked besides the facts of the status.

    *reached*: by path or dry run, what is wrong with the webhook server's answer through the API server, or nothing.
    """

    versions: tuple[str, str]
    """Of the API server, and of this command."""
    calico: tuple[Mapping[str, bool], int | KubeError, str | KubeError | NotTried]
    """Which of its groups serve IPReservation; the seconds of its cooldown; what kept an address from being reserved
    and released, or nothing."""
    reached: Mapping[str, str | KubeError]
    access: tuple[Mapping[tuple[str, Access], bool | KubeError], Mapping[Access, bool | KubeError]]
    others: WebhookConfigurations
    """Webhook configurations of all programs."""
    times: tuple[datetime | None, datetime]
    """Of the API server, and of this machine."""


def findings(facts: Facts, status: Status, answers: Answers) -> Iterator[Finding]:
    now = answers.times[1]
    yield from _of("webhook configurations", webhooks(facts, status), "present")
    yield from _of("pods of Drawbridge", programs(status), "all are ready")
    yield from _of("leader", leader(facts, status, now), status.leader.holder if status.leader else "unknown")
    yield from _of("certificates", certificates(facts, status, now), "trusted, and not about to end")
    yield from _of("settings", settings(status), "valid")
    yield from _unreadable(facts)
    yield from _calico(facts, answers.calico[0])
    yield from of_cooldown(facts.installed.in_force.ip_reservation, answers.calico[1])
    yield from _reserved(answers.calico[2])
    yield from _reached(facts, answers.reached)
    yield from of_accounts(answers.access[0])
    yield from of_user(answers.access[1])
    yield from of_others(answers.others)
    yield from _versions(status, *answers.versions)
    yield from _clocks(facts.lease, *answers.times)


def _of(check: str, problems: Iterator[Problem], fine: str) -> Iterator[Finding]:
    found = [Finding(check, Verdict.WRONG, each.what, each.way_out) for each in problems]
    yield from found or [Finding(check, Verdict.OK, fine)]


def _unreadable(facts: Facts) -> Iterator[Finding]:
    for each in unread(facts):
        yield Finding("what is read", Verdict.SKIPPED, each.what, each.way_out)


def _calico(facts: Facts, served: Mapping[str, bool]) -> Iterator[Finding]:
    wanted = facts.installed.in_force.ip_reservation
    if not wanted.enabled:
        return
    usable = tuple(served) if wanted.calico_api_version == "auto" else (wanted.calico_api_version,)
    found = [each for each in usable if served.get(each)]
    if found:
        yield Finding("Calico's API", Verdict.OK, f"IPReservation is served in {found[0]}")
        return
    yield Finding(
        "Calico's API",
        Verdict.WRONG,
        f"IPReservation is served in none of {', '.join(usable)}: deletions of selected pods are refused",
        "install Calico's CRDs, or set ipReservation.calicoApiVersion to auto",
    )


def _reserved(answer: str | KubeError | NotTried) -> Iterator[Finding]:
    check = "a reservation"
    if answer is NotTried.OFF:
        return
    if isinstance(answer, NotTried):
        yield Finding(check, Verdict.SKIPPED, f"not tried: {answer.value}", "helm test checks it")
    elif isinstance(answer, KubeError):
        yield Finding(check, Verdict.SKIPPED, f"not tried: {answer}", "helm test checks it")
    elif answer:
        yield Finding(check, Verdict.WRONG, answer, f"{PAGE}#a-request-is-refused-or-fails")
    else:
        yield Finding(check, Verdict.OK, f"{ADDRESS} was reserved as pods' addresses are, and released")


def _reached(facts: Facts, reached: Mapping[str, str | KubeError]) -> Iterator[Finding]:
    check = "webhook server from the API server"
    for what, problem in reached.items():
        if isinstance(problem, Forbidden):
            yield Finding(check, Verdict.SKIPPED, f"{what}: not checked", way_to_permission(problem.message))
        elif isinstance(problem, NotFound) and what.startswith("/"):
            message = f"{what}: not checked: the API server's proxy knows no endpoint of the Service"
            yield Finding(check, Verdict.SKIPPED, message, "helm test checks it")
        elif isinstance(problem, KubeError):
            yield Finding(check, Verdict.SKIPPED, f"{what}: not checked: {problem}", "see what refuses it")
        elif problem and what.startswith("/") and facts.installed.in_force.webhook.client_ca:
            message = f"{what}: not checked: the server demands a client certificate, and the proxy has none"
            yield Finding(check, Verdict.SKIPPED, message, "helm test checks it")
        elif problem:
            way_out = f"{NETWORK}; {PAGE}#a-request-is-refused-or-fails"
            yield Finding(check, Verdict.WRONG, f"{what}: {problem}", way_out)
        else:
            yield Finding(check, Verdict.OK, f"{what}: answered")


def _versions(status: Status, server: str, command: str) -> Iterator[Finding]:
    check = "versions"
    numbers = server.removeprefix("v").split(".")[:2]
    if tuple(int(each) for each in numbers if each.isdecimal()) < OLDEST:
        yield Finding(
            check, Verdict.WRONG, f"Kubernetes is {server}", "use 1.30 or newer: docs/reference/support.md"
        )
    elif "," in status.version:
        way_out = "wait for the upgrade to end, or repeat helm upgrade"
        yield Finding(check, Verdict.WARNING, f"programs have different versions: {status.version}", way_out)
    elif status.version != command:
        message = f"Drawbridge is {status.version}, this command {command}"
        yield Finding(check, Verdict.WARNING, message, "use the command of the installed version")
    else:
        yield Finding(check, Verdict.OK, f"Kubernetes {server}, Drawbridge {status.version}")


def _clocks(lease: Lease | KubeError, server: datetime | None, here: datetime) -> Iterator[Finding]:
    check, way_out = "clocks", f"synchronize it (NTP); {PAGE}#clocks"
    found = []
    if server and abs(here - server) > SKEW:
        message = f"this machine differs from the API server by {_seconds(here - server)}"
        found.append(Finding(check, Verdict.WARNING, message, way_out))
    renewed = (
        datetime.fromisoformat(lease.spec.renew_time)
        if isinstance(lease, Lease) and lease.spec.renew_time
        else None
    )
    if server and renewed and renewed - server > SKEW:
        message = f"the leader's clock is ahead of the API server's by {_seconds(renewed - server)}"
        found.append(Finding(check, Verdict.WRONG, message, way_out))
    yield from found or [
        Finding(check, Verdict.OK if server else Verdict.SKIPPED, "agree" if server else "not read")
    ]


def _seconds(difference: timedelta) -> str:
    return f"{abs(difference.total_seconds()):.0f} s"
