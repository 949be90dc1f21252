"""`drawbridge doctor`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import click
import msgspec

from calico.ledger import round_trip
from calico.reservations import GROUPS, Reservations
from cli.cluster import Cluster
from cli.commands.status import facts_of
from cli.doctor import (
    OF_USER,
    Access,
    Answers,
    NotTried,
    Probe,
    attributes,
    findings,
    located,
    needed,
    parts_of,
    probes,
    problem_of,
    sorted_findings,
)
from cli.errors import WRONG
from cli.installation import WEBHOOK, Installed
from cli.inventory import cooldown, webhook_configurations
from cli.session import Command, Session, pass_session
from cli.status import status_of
from kube.client import Resource
from kube.errors import ApiError, Forbidden, KubeError, NotFound
from runtime import uuid4
from telemetry.build import VERSION
from webhook.smoke_check import fault, review


@click.command(cls=Command)
@pass_session
def doctor(session: Session) -> None:
    """Find out what is wrong with the installation.

    Runs the checks of docs/how-to/troubleshooting.md. Reserves an IP that no pod has, as the webhook servers do, and
    releases it; writes nothing else. Ends with 1 when something is wrong.
    """
    facts = facts_of(session.cluster)
    answers = answers_of(session.cluster, facts.installed)
    found = sorted_findings(findings(facts, status_of(facts, session.cluster.now()), answers))
    session.output.show(found, parts_of)
    if found.wrong:
        raise SystemExit(WRONG)


REVIEWS = "/apis/authorization.k8s.io/v1"
PROXY_TIMEOUT = 10.0
TRIAL_SECONDS = 5.0


class _Verdict(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Verdict = msgspec.field(default_factory=_Verdict)


def answers_of(cluster: Cluster, ours: Installed) -> Answers:
    """Raises KubeError when not even the version can be read."""
    calico = {each: _serves(cluster, each) for each in GROUPS}
    group = next((each for each, served in calico.items() if served), GROUPS[-1]).partition("/")[0]
    everyones = webhook_configurations(cluster)
    accounts = ours.accounts
    of_accounts = [each for each in needed(ours.in_force, ours.namespace, group) if each[0] in accounts]
    of_user = [located(each, ours.namespace, group) for each in OF_USER]
    version = cluster.client.request("GET", "/version")
    return Answers(
        (version["gitVersion"], VERSION),
        (
            calico,
            cluster.read({"cooldown": partial(cooldown, cluster)})["cooldown"],
            _reserved(cluster, ours),
        ),
        _all(cluster, ours.paths, partial(_reach, cluster, ours)) | _probed(cluster, ours),
        (
            _all(cluster, of_accounts, lambda each: _may(cluster, each[1], accounts[each[0]])),
            _all(cluster, of_user, partial(_may, cluster)),
        ),
        (everyones.mutating, everyones.validating),
        (cluster.server_time(), cluster.now()),
    )


def _reserved(cluster: Cluster, ours: Installed) -> str | KubeError | NotTried:
    """What keeps the webhook server's ServiceAccount from reserving and releasing an address, or nothing."""
    account, settings = ours.accounts.get(WEBHOOK, ""), ours.in_force.ip_reservation
    if not settings.enabled or not account:
        return NotTried.OFF
    client = cluster.client_of(account)
    if client is None:
        return NotTried.IMPERSONATING
    asked = Access("impersonate", "serviceaccounts", "", ours.namespace, account.rpartition(":")[2])
    may = cluster.read({"may": partial(_may, cluster, asked)})["may"]
    if may is not True:
        return may or NotTried.FORBIDDEN
    store = Reservations(client, settings.calico_api_version)
    return round_trip(store, "doctor", ours.namespace, cluster.now(), TRIAL_SECONDS)


def _all(cluster: Cluster, keys: Iterable[Any], ask: Callable[[Any], Any]) -> dict[Any, Any]:
    return cluster.read({each: partial(ask, each) for each in keys})


def _serves(cluster: Cluster, api_version: str) -> bool:
    group, version = api_version.split("/")
    return cluster.client.serves(Resource(group, version, "ipreservations", namespaced=False))


def _may(cluster: Cluster, access: Access, account: str = "") -> bool:
    """Whether *account*, or else the user, may."""
    spec: dict[str, Any] = {"resourceAttributes": attributes(access)}
    kind = "SelfSubjectAccessReview"
    if account:
        spec["user"], kind = account, "SubjectAccessReview"
        spec["groups"] = ["system:serviceaccounts", "system:authenticated"]
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    path = f"{REVIEWS}/{kind.lower()}s"
    return cluster.client.request("POST", path, body=body, type=_Review).status.allowed


def _probed(cluster: Cluster, ours: Installed) -> dict[str, str | KubeError]:
    namespace = "default" if cluster.namespace == ours.namespace else cluster.namespace
    found = {each.what: each for each in probes(ours.in_force, namespace)}
    answers = cluster.read({what: partial(_dry_run, cluster, each) for what, each in found.items()})
    return {what: problem_of(found[what], answer) for what, answer in answers.items()}


def _dry_run(cluster: Cluster, probe: Probe) -> dict[str, Any]:
    path = probe.resource.path(probe.namespace)
    return cluster.client.request("POST", path, body=probe.body, query={"dryRun": "All"})


def _reach(cluster: Cluster, ours: Installed, path: str) -> str:
    """What is wrong with the answer to a review, a dry run without an object, that the API server passes on."""
    uid, service = str(uuid4()), ours.service
    proxy = f"/api/v1/namespaces/{ours.namespace}/services/https:{service.name}:{service.port}/proxy{path}"
    try:
        content = cluster.client.request("POST", proxy, body=review(uid), type=bytes, timeout=PROXY_TIMEOUT)
    except (Forbidden, NotFound):
        raise
    except ApiError as error:
        return error.message
    except KubeError as error:
        return str(error)
    return fault(200, content, uid)
