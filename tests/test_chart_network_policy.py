"""The chart's NetworkPolicies: closed where the operator says who may come in, and never to what must come in."""

from typing import Any

import pytest

from tests.charts import Objects, helm_needed, refusal, render

KIND = "NetworkPolicy"
SCRAPER = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
DNS = {"ports": [{"protocol": "UDP", "port": 53}]}


def policy(objects: Objects, component: str) -> dict[str, Any]:
    return objects[KIND, f"drawbridge-{component}"]["spec"]


def entries(objects: Objects, component: str) -> dict[int, Any]:
    """Who may come in, by port; None is everybody."""
    return {
        rule["ports"][0]["port"]: rule.get("from")
        for rule in policy(objects, component)["ingress"]
        if rule["ports"]
    }


def restricted(**values: object) -> Objects:
    return render({"networkPolicy": {"enabled": True, **values}})


@helm_needed
def test_there_are_none_unless_asked_for() -> None:
    assert [name for kind, name in render() if kind == KIND] == []


@helm_needed
def test_each_is_about_the_pods_of_one_program() -> None:
    objects = restricted()

    for component in ("webhook", "controllers"):
        template = objects["Deployment", f"drawbridge-{component}"]["spec"]["template"]
        selector = policy(objects, component)["podSelector"]["matchLabels"]
        assert selector.items() <= template["metadata"]["labels"].items()
        assert selector["app.kubernetes.io/component"] == component


@helm_needed
def test_without_a_word_of_who_calls_only_the_ports_are_limited() -> None:
    objects = restricted()

    assert entries(objects, "webhook") == {9443: None, 8080: None}
    assert entries(objects, "controllers") == {8080: None}
    assert {tuple(policy(objects, each)["policyTypes"]) for each in ("webhook", "controllers")} == {
        ("Ingress",)
    }


@helm_needed
def test_the_webhook_port_is_for_the_api_servers_and_for_helm_test() -> None:
    objects = restricted(apiServers=["10.0.0.0/28", "fd00::/64"])

    *blocks, test = entries(objects, "webhook")[9443]
    assert blocks == [{"ipBlock": {"cidr": "10.0.0.0/28"}}, {"ipBlock": {"cidr": "fd00::/64"}}]
    pod = objects["Pod", "drawbridge-test"]
    assert test["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()


@helm_needed
def test_metrics_are_for_those_who_are_named() -> None:
    objects = restricted(metricsFrom=[SCRAPER])

    assert entries(objects, "webhook") == {9443: None, 8080: [SCRAPER]}
    assert entries(objects, "controllers") == {8080: [SCRAPER]}


@helm_needed
def test_what_may_be_reached_is_limited_only_where_it_is_given() -> None:
    for component in ("webhook", "controllers"):
        spec = policy(restricted(egress=[DNS]), component)
        assert (spec["policyTypes"], spec["egress"]) == (["Ingress", "Egress"], [DNS])


@helm_needed
def test_ports_that_were_moved_are_followed() -> None:
    values = {
        "networkPolicy": {"enabled": True},
        "config": {"webhookPort": 10250, "metricsBindAddress": "0.0.0.0:9100"},
    }

    assert entries(render(values), "webhook") == {10250: None, 9100: None}


@helm_needed
@pytest.mark.parametrize(
    ("values", "message"),
    [
        pytest.param({"apiServers": ["10.0.0.1"]}, "/networkPolicy/apiServers/0", id="an address, no CIDR"),
        pytest.param({"metricsFrom": [{}]}, "/networkPolicy/metricsFrom/0", id="nobody in particular"),
        pytest.param({"metricsFrom": [{"podSelecter": {}}]}, "podSelecter", id="a slip of the pen"),
        pytest.param({"egress": [{"from": []}]}, "/networkPolicy/egress/0", id="the other direction"),
    ],
)
def test_what_is_no_policy_is_refused_by_name(values: dict[str, Any], message: str) -> None:
    assert message in refusal({"networkPolicy": {"enabled": True, **values}})
