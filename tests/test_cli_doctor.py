"""`drawbridge doctor`: each check finds what it is for."""

from __future__ import annotations

from base64 import b64encode
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from structlog.testing import capture_logs
from urllib3 import PoolManager

from certs.issue import Pair, new_leaf
from cli.cluster import Cluster
from cli.doctor import findings, needed
from cli.installation import CONTROLLERS, WEBHOOK, Access
from cli.inventory import REVIEWS, Inventory
from dev.fake_api import FakeAPI
from dev.fake_api.calls import refusal
from kube.connection import Connection
from settings import ElasticitySettings, Settings
from tests import cli, permissions
from tests.admission import admitted, asked
from tests.factories import NOW
from tests.misbehaving_server import resets, serving
from tests.tables import table
from webhook.elasticity.webhook import PlacementWebhook


def verdicts(api: FakeAPI, check: str, **answers: Any) -> list[str]:
    found = findings_of(api, partial(cli.answered, **answers))
    return [each["verdict"] for each in found if each["check"] == check]


def findings_of(api: FakeAPI, fault: Any) -> Any:
    api.fault = fault
    return cli.shown(api, "doctor")["findings"]


def test_a_dry_run_that_our_webhooks_mark_is_fine() -> None:
    api = cli.installed(*cli.FEATURES)

    def marked(raw: dict[str, Any]) -> dict[str, Any]:
        taint = {"key": "tke.cloud.tencent.com/no-aia-ip", "value": "true", "effect": "NoSchedule"}
        mark = {
            "Node": {"taints": [taint]},
            "Pod": {"schedulingGates": [{"name": "drawbridge.io/placement"}]},
            "IngressDaemonSet": {"selector": {"matchLabels": {"app": "drawbridge-doctor"}}},
        }
        return raw | {"spec": raw.get("spec", {}) | mark[raw["kind"]]}

    for kind in ("Node", "Pod", "IngressDaemonSet"):
        api.mutate(cli.resource(kind), marked)

    assert {*verdicts(api, "webhook server from the API server")} == {"ok"}


def test_a_pod_that_is_not_gated_for_want_of_a_leader_was_seen_by_the_webhook() -> None:
    api = cli.installed("elasticity", leads=False)
    webhook = PlacementWebhook(lambda: ElasticitySettings(enabled=True), lambda _: 86400.0)

    def reviewed(raw: dict[str, Any]) -> dict[str, Any]:
        question = asked(raw, namespace="default")
        return admitted(raw, question, webhook.review(question, 0.0))

    api.mutate(cli.resource("Pod"), reviewed)

    with capture_logs():
        assert {*verdicts(api, "webhook server from the API server")} == {"ok"}


def test_a_webhook_without_a_ca_is_found_beside_one_that_has_it() -> None:
    api = cli.installed("elasticity")
    [held] = api.list(cli.resource("MutatingWebhookConfiguration"))
    first, second = held["webhooks"]
    first["clientConfig"].pop("caBundle")
    api.put(cli.resource("MutatingWebhookConfiguration"), held | {"webhooks": [first, second]})

    assert verdicts(api, "certificates") == ["wrong"]


def leaf(name: str, authority: Pair | None = None) -> Pair:
    return new_leaf(
        authority or cli.authority(), [name], [], NOW - timedelta(hours=1), NOW + timedelta(days=60)
    )


BETWEEN = leaf("between")
SIGNED_BETWEEN = leaf(cli.HOST, BETWEEN).certificate


@table(
    "chain, verdict",
    {
        "for the Service that is called": (leaf(cli.HOST).certificate, "ok"),
        "for all Services of its namespace": (leaf("*.drawbridge.svc").certificate, "ok"),
        "for a Service of another namespace": (leaf("drawbridge-webhook.elsewhere.svc").certificate, "wrong"),
        "without the authority that signed it": (SIGNED_BETWEEN, "wrong"),
        "with the authority that signed it": (SIGNED_BETWEEN + BETWEEN.certificate, "ok"),
    },
)
def test_the_serving_certificate_must_be_one_that_the_api_server_accepts(chain: bytes, verdict: str) -> None:
    api = cli.installed()
    [held] = api.list(cli.resource("Secret"))
    api.put(cli.resource("Secret"), held | {"data": held["data"] | {"tls.crt": b64encode(chain).decode()}})

    assert {*verdicts(api, "certificates")} == {verdict}


@pytest.mark.parametrize(
    ("excluded", "namespace"),
    [(["kube-system", "drawbridge"], "default"), (["kube-system", "default", "drawbridge"], "kube-public")],
)
def test_dry_runs_are_made_in_a_namespace_whose_pods_are_placed(excluded: list[str], namespace: str) -> None:
    api = cli.installed("elasticity")
    cli.configure(api, "elasticity", excludedNamespaces=excluded)
    api.fault = cli.answered
    assert [*findings(Inventory(cli.cluster_of(api, "kube-system")))]

    [asked] = [each.path for each in api.calls if each.method == "POST" and each.path.endswith("/pods")]
    assert asked == f"/api/v1/namespaces/{namespace}/pods"


AS_WEBHOOK = "system:serviceaccount:drawbridge:drawbridge-webhook"


def test_an_address_is_reserved_as_the_webhook_servers_do_and_released() -> None:
    api = cli.installed()

    assert verdicts(api, "a reservation") == ["ok"]

    writes = [each for each in api.calls if "ipreservations" in each.path and each.method != "GET"]
    assert [each.method for each in writes] == ["POST", "PATCH"]
    assert {each.headers["impersonate-user"] for each in writes} == {AS_WEBHOOK}
    [left] = api.list(cli.resource("IPReservation"))
    assert left["spec"]["reservedCIDRs"] == []


def test_a_user_who_may_not_impersonate_reserves_nothing() -> None:
    api = cli.installed()

    assert verdicts(api, "a reservation", forbidden="impersonate") == ["skipped"]
    assert not any(each.method != "GET" and "ipreservations" in each.path for each in api.calls)


@pytest.mark.parametrize(
    ("date", "expected"),
    [
        pytest.param(cli.http_date(NOW - timedelta(minutes=7)), ["wrong", "warning"], id="another time"),
        pytest.param(cli.http_date(NOW).removesuffix(" GMT"), ["ok"], id="without a zone it is in UTC"),
        pytest.param(cli.http_date(NOW).replace("GMT", "-0000"), ["ok"], id="so it is in an unknown one"),
        pytest.param("soon", ["skipped"], id="no date"),
    ],
)
def test_clocks_must_agree(date: str, expected: list[str]) -> None:
    assert verdicts(cli.installed(), "clocks", date=date) == expected


def test_a_clock_of_this_machine_that_is_ahead_ends_no_leader() -> None:
    api, there = cli.installed(leads=False), NOW - timedelta(minutes=7)
    api.now = lambda: there
    api.put(cli.resource("Lease"), cli.lease(there))
    api.now = lambda: NOW

    assert verdicts(api, "leader", date=cli.http_date(there)) == ["ok"]


EGRESS_CHECK = {"enabled": True, "url": "https://ip.example.com/", "image": "drawbridge:1"}


def test_the_permissions_that_are_asked_about_are_those_of_the_chart() -> None:
    settings = Settings.model_validate(
        {name: {"enabled": True} for name in ("elasticity", "ingressDaemonSet")}
        | {
            "ipReservation": {
                "workloadOptIn": True,
                "sameAddress": {"enabled": True},
                "standing": {"enabled": True},
                "pools": {"enabled": True},
            }
        }
        | {
            "anycastIP": {
                "enabled": True,
                "clusterID": cli.CLUSTER_ID,
                "egressCheck": EGRESS_CHECK,
                "podAddress": {"enabled": True},
            }
        }
    )
    without = Settings.model_validate({"ipReservation": {"standing": {"enabled": False}}})
    assert (CONTROLLERS, Access("patch", "pods")) not in [*needed(without)]
    granted = [(each.account, held) for each in permissions.table() for held in each.permissions]
    asked = [(program, each.located("own", "projectcalico.org")) for program, each in needed(settings)]

    assert (CONTROLLERS, Access("watch", "deployments", "apps")) in asked
    assert (CONTROLLERS, Access("create", "pods", "", "own")) in asked
    assert (WEBHOOK, Access("get", "nodes")) in asked
    for program, access in asked:
        assert any(
            account == program
            and (held.group, held.resource, held.verb) == (access.group, access.resource, access.verb)
            and held.where in (permissions.EVERYWHERE, access.namespace)
            for account, held in granted
        ), (program, access)


def test_the_lease_that_is_asked_about_is_the_one_of_the_installation() -> None:
    def asked(**election: object) -> set[tuple[str, str, str]]:
        settings = {"elasticity": {"enabled": True}, "leaderElection": election}
        found = needed(Settings.model_validate(settings))
        return {
            (program, each.verb, each.name)
            for program, each in found
            if each.resource == "leases" and each.name
        }

    of_controllers = {(CONTROLLERS, verb, "gate") for verb in ("get", "update")}
    assert asked(resourceName="gate") == {(WEBHOOK, "get", "gate"), *of_controllers}
    assert asked(leaderElect=False) == set(), "there is none"


@pytest.mark.parametrize(
    ("path", "check", "verdict"),
    [
        pytest.param("/apis/projectcalico.org/v3", "Calico's API", "wrong", id="Calico's API server is down"),
        pytest.param("/version", "versions", "skipped", id="the version"),
        pytest.param(
            f"{REVIEWS}/subjectaccessreviews",
            "permissions of Drawbridge",
            "skipped",
            id="what the programs may do",
        ),
        pytest.param(
            f"{REVIEWS}/selfsubjectaccessreviews",
            "your permissions",
            "skipped",
            id="what the user may do",
        ),
    ],
)
def test_what_the_api_server_does_not_answer_hides_no_other_finding(
    path: str, check: str, verdict: str
) -> None:
    api = cli.installed(*cli.FEATURES)
    fine = {each["check"] for each in findings_of(api, cli.answered)}
    refused = refusal(503, "ServiceUnavailable", "service unavailable")

    found = findings_of(api, lambda call: refused if call.path == path else cli.answered(call))

    assert [each["verdict"] for each in found if each["check"] == check] == [verdict]
    assert {each["check"] for each in found} == fine


def test_an_answer_that_breaks_off_leaves_the_time_unread() -> None:
    with serving(lambda _: resets) as server:
        connection = Connection(server.url, PoolManager())
        assert Cluster(server.client(), "default", connection).server_time() is None
        assert len(server.asked) == 1
