"""`drawbridge doctor`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import click

from calico.ledger import round_trip
from calico.reservations import GROUPS, Reservations
from cli.access import OF_USER, Access, located, needed
from cli.commands.status import facts_of
from cli.doctor import Answers, NotTried, Probe, findings, parts_of, probes, problem_of, sorted_findings
from cli.errors import WRONG
from cli.installation import WEBHOOK
from cli.inventory import Inventory
from cli.session import Command, Session, pass_session
from cli.status import status_of
from kube.client import Resource
from kube.errors import ApiError, Forbidden, KubeError, NotFound
from runtime import uuid4
from telemetry.build import VERSION
from webhook.smoke_check import fault, review

PROXY_TIMEOUT = 10.0
TRIAL_SECONDS = 5.0


@click.command(cls=Command)
@pass_session
def doctor(session: Session) -> None:
    """Find out what is wrong with the installation.

    Runs the checks of docs/how-to/troubleshooting.md. Reserves an IP that no pod has, as the webhook servers do, and
    releases it; writes nothing else. Ends with 1 when something is wrong.
    """
    inventory = Inventory(session.cluster)
    facts = facts_of(inventory)
    status = status_of(facts, inventory.now())
    found = sorted_findings(findings(facts, status, answers_of(inventory)))
    session.output.show(found, parts_of)
    if found.wrong:
        raise SystemExit(WRONG)


def answers_of(inventory: Inventory) -> Answers:
    """Raises KubeError when not even the version can be read."""
    ours, cluster = inventory.installed, inventory.cluster
    calico = {each: _serves(inventory, each) for each in GROUPS}
    group = next((each for each, served in calico.items() if served), GROUPS[-1]).partition("/")[0]
    accounts = ours.accounts
    of_accounts = [each for each in needed(ours.in_force, ours.namespace, group) if each[0] in accounts]
    of_user = [located(each, ours.namespace, group) for each in OF_USER]
    version = cluster.client.request("GET", "/version")
    return Answers(
        (version["gitVersion"], VERSION),
        (
            calico,
            cluster.read({"cooldown": inventory.cooldown})["cooldown"],
            _reserved(inventory),
        ),
        _all(inventory, ours.paths, partial(_reach, inventory)) | _probed(inventory),
        (
            _all(inventory, of_accounts, lambda each: inventory.may(each[1], accounts[each[0]])),
            _all(inventory, of_user, inventory.may),
        ),
        inventory.configurations,
        (cluster.server_time(), cluster.now()),
    )


def _reserved(inventory: Inventory) -> str | KubeError | NotTried:
    """What keeps the webhook server's ServiceAccount from reserving and releasing an address, or nothing."""
    ours, cluster = inventory.installed, inventory.cluster
    account, settings = ours.accounts.get(WEBHOOK, ""), ours.in_force.ip_reservation
    if not settings.enabled or not account:
        return NotTried.OFF
    client = cluster.client_of(account)
    if client is None:
        return NotTried.IMPERSONATING
    asked = Access("impersonate", "serviceaccounts", "", ours.namespace, account.rpartition(":")[2])
    may = cluster.read({"may": partial(inventory.may, asked)})["may"]
    if may is not True:
        return may or NotTried.FORBIDDEN
    store = Reservations(client, settings.calico_api_version)
    return round_trip(store, "doctor", ours.namespace, cluster.now(), TRIAL_SECONDS)


def _all(inventory: Inventory, keys: Iterable[Any], ask: Callable[[Any], Any]) -> dict[Any, Any]:
    return inventory.cluster.read({each: partial(ask, each) for each in keys})


def _serves(inventory: Inventory, api_version: str) -> bool:
    group, version = api_version.split("/")
    return inventory.client.serves(Resource(group, version, "ipreservations", namespaced=False))


def _probed(inventory: Inventory) -> dict[str, str | KubeError]:
    ours, cluster = inventory.installed, inventory.cluster
    namespace = "default" if cluster.namespace == ours.namespace else cluster.namespace
    found = {each.what: each for each in probes(ours.in_force, namespace)}
    answers = cluster.read({what: partial(_dry_run, inventory, each) for what, each in found.items()})
    return {what: problem_of(found[what], answer) for what, answer in answers.items()}


def _dry_run(inventory: Inventory, probe: Probe) -> dict[str, Any]:
    path = probe.resource.path(probe.namespace)
    return inventory.client.request("POST", path, body=probe.body, query={"dryRun": "All"})


def _reach(inventory: Inventory, path: str) -> str:
    """What is wrong with the answer to a review, a dry run without an object, that the API server passes on."""
    uid, ours = str(uuid4()), inventory.installed
    service = ours.service
    proxy = f"/api/v1/namespaces/{ours.namespace}/services/https:{service.name}:{service.port}/proxy{path}"
    try:
        content = inventory.client.request("POST", proxy, body=review(uid), type=bytes, timeout=PROXY_TIMEOUT)
    except (Forbidden, NotFound):
        raise
    except ApiError as error:
        return error.message
    except KubeError as error:
        return str(error)
    return fault(200, content, uid)
