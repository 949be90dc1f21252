"""What the doctor read, and what each of its checks makes of it: functions of values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from calico.round_trip import ADDRESS
from cli.doctor.access import Access, of_accounts, of_user
from cli.doctor.cooldown import of_cooldown
from cli.doctor.others import of_others
from cli.doctor.types import Finding, Verdict
from cli.errors import way_to_permission
from cli.installed.types import Configuration, Lease
from cli.status.facts import Facts
from cli.status.problems import PAGE, certificates, leader, programs, settings, unread, webhooks
from cli.status.types import Problem, Status
from kube.errors import Forbidden, KubeError, NotFound

OLDEST = (1, 30)
"""The oldest Kubernetes that is supported: docs/reference/support.md."""
SKEW = timedelta(seconds=5)
"""Between two machines whose clocks are synchronized, with the time that a request takes."""
NETWORK = "docs/how-to/install.md#private-clusters-and-other-networks"


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
    others: tuple[list[Configuration], list[Configuration]]
    """Mutating and validating webhook configurations, of all programs."""
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
    yield from of_others(*answers.others)
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
