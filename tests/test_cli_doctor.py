"""`drawbridge doctor`: each check finds what it is for."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from email.utils import format_datetime
from typing import Any

import msgspec
import pytest

from cli.access import Access
from cli.doctor import needed, of_others
from cli.health import Finding, Verdict
from cli.installation import CONTROLLERS, RegisteredWebhook, Rule, WebhookConfiguration, WebhookConfigurations
from cli.ip_reservation.health import of_cooldown
from dev.fake_api import FakeAPI, Kind
from dev.fake_api.calls import Reply, Request
from kube.client import Resource
from kube.errors import KubeError, Unreachable
from kube.types import ObjectMeta
from settings import IPReservationSettings, Settings
from tests import cli, permissions
from tests.factories import NOW

Answer = Callable[[Request], Reply | None]


def served(body: Any, **headers: str) -> Reply:
    return Reply(200, json.dumps(body).encode(), headers)


def answering(api: FakeAPI, *answers: Answer) -> FakeAPI:
    """What the fake API server does not serve: discovery of versions, reviews of access, the proxy of Services."""
    every = (*answers, version(), access(lambda _: True), proxied)
    api.fault = lambda call: next((reply for answer in every if (reply := answer(call))), None)
    return api


def version(number: str = "v1.34.1", **headers: str) -> Answer:
    return lambda call: served({"gitVersion": number}, **headers) if call.path == "/version" else None


def access(may: Callable[[dict[str, Any]], bool]) -> Answer:
    def answer(call: Request) -> Reply | None:
        if "accessreviews" not in call.path:
            return None
        return served({"status": {"allowed": may(call.body["spec"])}})

    return answer


def proxied(call: Request) -> Reply | None:
    if "/proxy/" not in call.path:
        return None
    response = {"uid": call.body["request"]["uid"], "allowed": True}
    return served({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})


def unwell(api: FakeAPI) -> list[tuple[str, str, str]]:
    found = cli.shown(api, "doctor")["findings"]
    return [(each["verdict"], each["check"], each["message"]) for each in found if each["verdict"] != "ok"]


@pytest.mark.parametrize(
    ("cooldown", "settings", "expected"),
    [
        pytest.param(0, {}, [("ok", "ipCooldownSeconds is not set")], id="none"),
        pytest.param(
            60, {}, [("ok", "for 60s after its release; reservations last longer: 40m")], id="shorter"
        ),
        pytest.param(600, {"ipReserveTime": "10m"}, [("warning", "reservations add little")], id="as long"),
        pytest.param(1200, {"ipReserveTime": "10m"}, [("warning", "for 20m after")], id="longer"),
        pytest.param(
            60,
            {"sameAddress": {"enabled": True}},
            [("ok", "for 60s"), ("warning", "StatefulSets' pods that come back earlier get other IPs")],
            id="with same addresses",
        ),
        pytest.param(
            0, {"sameAddress": {"enabled": True}}, [("ok", "not set")], id="none, with same addresses"
        ),
        pytest.param(Unreachable("reset"), {}, [("skipped", "not read: the API server")], id="not read"),
    ],
)
def test_a_cooldown_of_calico_that_makes_reservations_needless_is_a_warning(
    cooldown: int | KubeError, settings: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    found = [*of_cooldown(IPReservationSettings.model_validate(settings), cooldown)]

    assert [each.verdict for each in found] == [verdict for verdict, _ in expected]
    assert all(said in each.message for each, (_, said) in zip(found, expected, strict=True))


def test_the_cooldown_is_read_in_the_group_that_calico_serves() -> None:
    configurations = Resource("projectcalico.org", "v3", "ipamconfigurations", namespaced=False)
    api = answering(cli.installed(kinds=[Kind(configurations, "IPAMConfiguration")]))
    spec = {"strictAffinity": False, "autoAllocateBlocks": True, "ipCooldownSeconds": 1200}
    api.put(configurations, {"metadata": {"name": "default"}, "spec": spec})

    [message] = [
        each["message"] for each in cli.shown(api, "doctor")["findings"] if "cooldown" in each["check"]
    ]
    assert "for 20m after its release" in message


FEATURES = ("anycastIP", "elasticity", "ingressDaemonSet")


def of_dry_runs(api: FakeAPI) -> dict[str, str]:
    found = cli.shown(api, "doctor")["findings"]
    return {
        each["message"].partition(":")[0]: each["verdict"] for each in found if "dry run" in each["message"]
    }


def test_a_dry_run_that_our_webhooks_mark_is_fine() -> None:
    api = answering(cli.installed(*FEATURES))

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

    assert {*of_dry_runs(api).values()} == {"ok"}


AS_WEBHOOK = "system:serviceaccount:drawbridge:drawbridge-webhook"


def of_reservation(api: FakeAPI) -> tuple[str, str]:
    found = cli.shown(api, "doctor")["findings"]
    [(verdict, message)] = [
        (each["verdict"], each["message"]) for each in found if each["check"] == "a reservation"
    ]
    return verdict, message


def test_an_address_is_reserved_as_the_webhook_servers_do_and_released() -> None:
    api = answering(cli.installed())

    assert of_reservation(api)[0] == "ok"

    writes = [each for each in api.calls if "ipreservations" in each.path and each.method != "GET"]
    assert [each.method for each in writes] == ["POST", "PATCH"]
    assert {each.headers["impersonate-user"] for each in writes} == {AS_WEBHOOK}
    [left] = api.list(cli.resource("IPReservation"))
    assert left["spec"]["reservedCIDRs"] == []


def test_a_user_who_may_not_impersonate_reserves_nothing() -> None:
    api = answering(cli.installed(), access(lambda spec: spec["resourceAttributes"]["verb"] != "impersonate"))

    assert of_reservation(api)[0] == "skipped"
    assert not any(each.method != "GET" and "ipreservations" in each.path for each in api.calls)


def test_clocks_must_agree() -> None:
    late = format_datetime(NOW - timedelta(minutes=7), usegmt=True)

    found = [each for each in unwell(answering(cli.installed(), version(Date=late))) if each[1] == "clocks"]
    assert [each[0] for each in found] == ["wrong", "warning"]


def webhook(**rule: list[str]) -> WebhookConfiguration:
    given = {"operations": ["*"], "apiGroups": ["*"], "resources": ["*"]} | rule
    rules = (msgspec.convert(given, Rule),)
    return WebhookConfiguration(
        ObjectMeta(name="theirs"), (RegisteredWebhook("policy.example", failure_policy="Fail", rules=rules),)
    )


def others(mutating: list[WebhookConfiguration], validating: list[WebhookConfiguration]) -> list[Finding]:
    return list(of_others(WebhookConfigurations(mutating, validating)))


@pytest.mark.parametrize(
    ("rule", "verdict"),
    [
        pytest.param({}, Verdict.WARNING, id="all objects"),
        pytest.param({"resources": ["pods"]}, Verdict.OK, id="pods, which policies may alter"),
        pytest.param({"operations": ["CONNECT"]}, Verdict.OK, id="no writes"),
        pytest.param({"apiGroups": ["batch"]}, Verdict.OK, id="another group"),
    ],
)
def test_mutating_webhooks_that_see_our_objects_are_named(
    rule: dict[str, list[str]], verdict: Verdict
) -> None:
    [found] = others([webhook(**rule)], [])

    assert found.verdict is verdict


def test_validating_webhooks_that_fail_closed_on_our_objects_are_named() -> None:
    [found] = others([], [webhook()])

    assert found.verdict is Verdict.WARNING
    assert "and blocks them while it is down" in found.message


EGRESS_CHECK = {"url": "https://ip.example.com/", "image": "drawbridge:1"}


def test_the_permissions_that_are_asked_about_are_those_of_the_chart() -> None:
    settings = Settings.model_validate(
        {name: {"enabled": True} for name in ("elasticity", "ingressDaemonSet")}
        | {
            "ipReservation": {
                "workloadOptIn": True,
                "sameAddress": {"enabled": True},
                "pools": {"enabled": True, "history": "24h"},
            }
        }
        | {"anycastIP": {"enabled": True, "clusterID": cli.CLUSTER_ID, "egressCheck": EGRESS_CHECK}}
    )
    assert (CONTROLLERS, Access("patch", "pods")) not in [*needed(Settings())]
    granted = [(each.account, held) for each in permissions.table() for held in each.permissions]
    asked = [(program, each.located("own", "projectcalico.org")) for program, each in needed(settings)]

    assert (CONTROLLERS, Access("watch", "deployments", "apps")) in asked
    assert (CONTROLLERS, Access("create", "pods", "", "own")) in asked
    for program, access in asked:
        assert any(
            account == program
            and (held.group, held.resource, held.verb) == (access.group, access.resource, access.verb)
            and held.where in (permissions.EVERYWHERE, access.namespace)
            for account, held in granted
        ), (program, access)
